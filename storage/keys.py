"""How an API key is stored: as a keyed hash of its own domain, so that no other hash in the database can equal it."""

from storage.payloads import Vault

PREFIX = b"api_key\0"


def key_hash(vault: Vault, key: str) -> bytes:
    """The stored form of a key; never reversible, and without the index key not even testable."""
    return vault.keyed_hash(PREFIX + key.encode("utf-8", "surrogatepass"))
