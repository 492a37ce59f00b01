"""Content: addressed by a keyed hash of itself, compressed, encrypted, written once (SPEC Y2).

The id of a payload is an HMAC under the index key, which never rotates, so equal content is stored once and nobody
without the key can test a guess. The body is encrypted under a master key, which rotates; the id is bound to the body
as associated data, so that bodies cannot be swapped. Plain content is kept in a bounded cache of the process only.
"""

import hashlib
import hmac
import json
import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from context.errors import CorruptPayloadError
from storage.database import execute_many, fetch_all

COMPRESS_FROM = 200  # bytes; below, zstd's frame costs more than it saves
NONCE = 12


@dataclass(frozen=True)
class Keys:
    """Master keys by id (the first one encrypts, all decrypt) and the index key. 32 bytes each."""

    master: Mapping[str, bytes] = field(repr=False)
    index: bytes = field(repr=False)

    @property
    def current(self) -> str:
        return next(iter(self.master))


@dataclass(frozen=True)
class Sealed:
    """A payload ready to be written. `tokens` maps an estimator id to the tokens of this message."""

    payload_id: bytes
    key_id: str
    codec: str
    size: int
    digest: bytes
    body: bytes = field(repr=False)
    tokens: Mapping[str, int] = field(default_factory=dict)

    def parameters(self) -> dict[str, Any]:
        """As bind parameters of `INSERT`."""
        return {
            "payload_id": self.payload_id,
            "key_id": self.key_id,
            "codec": self.codec,
            "size": self.size,
            "digest": self.digest,
            "body": self.body,
            "tokens": json.dumps(dict(self.tokens)),
        }


def distinct(sealed: Iterable[Sealed]) -> list[dict[str, Any]]:
    """Bind parameters of each payload once, for a commit that may hold the same content twice."""
    return list({one.payload_id: one.parameters() for one in sealed}.values())


class Vault:
    """Seals and opens content; knows the keys, not the database."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.master.items()}

    def keyed_hash(self, content: bytes) -> bytes:
        """The id of content, and the stored form of anything that is only ever compared."""
        return hmac.new(self._keys.index, content, hashlib.sha256).digest()

    def seal(self, content: bytes, tokens: Mapping[str, int] | None = None) -> Sealed:
        """Compress and encrypt. The same content always gets the same id; the ciphertext differs each time."""
        payload_id = self.keyed_hash(content)
        codec, packed = _pack(content)
        body = self._encrypted(payload_id, packed)
        digest = hashlib.sha256(content).digest()
        return Sealed(payload_id, self._keys.current, codec, len(content), digest, body, tokens or {})

    @property
    def current_key(self) -> str:
        """Id of the master key that encrypts."""
        return self._keys.current

    @property
    def known_keys(self) -> frozenset[str]:
        """Ids of the master keys that decrypt."""
        return frozenset(self._ciphers)

    def reseal(self, payload_id: bytes, key_id: str, body: bytes) -> bytes:
        """The same body under the current key, as packed as it was. Raises CorruptPayloadError as `open` does."""
        return self._encrypted(payload_id, self._decrypted(payload_id, key_id, body))

    def open(self, payload_id: bytes, key_id: str, codec: str, body: bytes) -> bytes:
        """The plain content. Raises CorruptPayloadError if key, codec, body or id do not belong together."""
        plain = _unpack(codec, self._decrypted(payload_id, key_id, body))
        if self.keyed_hash(plain) != payload_id:
            raise CorruptPayloadError
        return plain

    def decrypts(self, payload_id: bytes, key_id: str, codec: str, body: bytes) -> bool:
        """Whether its master key encrypted this, whatever it is and whatever its name."""
        try:
            self._decrypted(payload_id, key_id, body)
        except CorruptPayloadError:
            return False
        return True

    def is_named(self, payload_id: bytes, key_id: str, codec: str, body: bytes) -> bool | None:
        """Whether the index key named this. None if it doesn't open, and so can't be named anew."""
        try:
            plain = _unpack(codec, self._decrypted(payload_id, key_id, body))
        except CorruptPayloadError:
            return None
        return self.keyed_hash(plain) == payload_id

    def _encrypted(self, payload_id: bytes, packed: bytes) -> bytes:
        nonce = os.urandom(NONCE)
        return nonce + self._ciphers[self._keys.current].encrypt(nonce, packed, payload_id)

    def _decrypted(self, payload_id: bytes, key_id: str, body: bytes) -> bytes:
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise CorruptPayloadError(
                f"No master key with id {key_id!r} is configured; add it to AGENTLOOM_MASTER_KEYS."
            )
        try:
            return cipher.decrypt(body[:NONCE], body[NONCE:], payload_id)
        except (InvalidTag, ValueError):  # the latter for a body too short to hold its nonce
            raise CorruptPayloadError from None


def _pack(content: bytes) -> tuple[str, bytes]:
    if len(content) < COMPRESS_FROM:
        return "raw", content
    packed = zstandard.ZstdCompressor(level=3).compress(content)
    return ("zstd", packed) if len(packed) < len(content) else ("raw", content)


def _unpack(codec: str, packed: bytes) -> bytes:
    if codec == "raw":
        return packed
    if codec != "zstd":
        raise CorruptPayloadError
    try:
        return zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError:
        raise CorruptPayloadError from None


INSERT = text("""
    INSERT INTO payloads (payload_id, key_id, codec, size, digest, body, tokens)
    VALUES (:payload_id, :key_id, :codec, :size, :digest, :body, CAST(:tokens AS jsonb))
    ON CONFLICT (payload_id) DO NOTHING
""")

CACHE_BYTES = 64 << 20
SELECT = text("SELECT payload_id, key_id, codec, body FROM payloads WHERE payload_id = ANY(:ids)")
WHOLE = text("SELECT payload_id, key_id, codec, size, digest, body FROM payloads WHERE payload_id = ANY(:ids)")


class Payloads:
    """Reads and writes payloads inside the caller's transaction, with a cache of plain content by id."""

    def __init__(self, vault: Vault) -> None:
        self.vault = vault
        self._cache: OrderedDict[bytes, bytes] = OrderedDict()
        self._cached = 0

    def seal(self, content: bytes, tokens: Mapping[str, int] | None = None) -> Sealed:
        """Seal and remember the plain content: what is written now is read next."""
        sealed = self.vault.seal(content, tokens)
        self._remember(sealed.payload_id, content)
        return sealed

    async def write(self, connection: AsyncConnection, sealed: Iterable[Sealed]) -> None:
        """Insert what is not there yet."""
        if rows := [one.parameters() for one in sealed]:
            await execute_many(connection, INSERT, rows)

    async def read(self, connection: AsyncConnection, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        """Plain content by id, from the cache where possible. Raises CorruptPayloadError if one is missing."""
        found = {one: self._cache[one] for one in ids if one in self._cache}
        if missing := [one for one in dict.fromkeys(ids) if one not in found]:
            for row in await fetch_all(connection, SELECT, ids=missing):
                plain = self.vault.open(row["payload_id"], row["key_id"], row["codec"], row["body"])
                self._remember(row["payload_id"], plain)
                found[row["payload_id"]] = plain
        if len(found) < len(set(ids)):
            raise CorruptPayloadError("A stored message is missing its content.")
        return found

    async def read_one(self, connection: AsyncConnection, payload_id: bytes) -> bytes:
        """The plain content of one payload."""
        return (await self.read(connection, [payload_id]))[payload_id]

    async def broken(self, connection: AsyncConnection, ids: Sequence[bytes]) -> frozenset[bytes]:
        """Those of the ids whose stored row is gone or no longer what its id, size and digest say (SPEC M7).

        Looks past the cache, and makes the cache forget what is broken: from then on its readers meet the truth.
        """
        rows = await fetch_all(connection, WHOLE, ids=ids)
        broken = frozenset(ids) - {row["payload_id"] for row in rows if self._is_intact(row)}
        for payload_id in broken & self._cache.keys():
            self._cached -= len(self._cache.pop(payload_id))
        return broken

    def _is_intact(self, row: Mapping[str, Any]) -> bool:
        try:
            plain = self.vault.open(row["payload_id"], row["key_id"], row["codec"], row["body"])
        except CorruptPayloadError:
            return False
        return (row["size"], row["digest"]) == (len(plain), hashlib.sha256(plain).digest())

    def _remember(self, payload_id: bytes, content: bytes) -> None:
        if payload_id in self._cache or len(content) > CACHE_BYTES // 8:
            return
        self._cache[payload_id] = content
        self._cached += len(content)
        while self._cached > CACHE_BYTES:
            _, dropped = self._cache.popitem(last=False)
            self._cached -= len(dropped)
