"""Content comes back as it was sealed, or not at all (SPEC Y2, M7)."""

from dataclasses import replace

import pytest

from context.errors import CorruptPayloadError
from storage.payloads import Keys, Sealed, Vault

VAULT = Vault(Keys({"k1": b"m" * 32}, b"i" * 32))
SMALL, LARGE = VAULT.seal(b"a few words"), VAULT.seal(b"many words " * 100)
CHANGED = {
    "no body": replace(SMALL, body=b""),
    "less than a nonce": replace(SMALL, body=SMALL.body[:5]),
    "a nonce alone": replace(SMALL, body=SMALL.body[:12]),
    "a shorter body": replace(SMALL, body=SMALL.body[:-1]),
    "the body of another": replace(SMALL, body=LARGE.body),
    "another id": replace(SMALL, payload_id=LARGE.payload_id),
    "a key that is not there": replace(SMALL, key_id="k2"),
    "packed, and told as plain": replace(LARGE, codec="raw"),
    "plain, and told as packed": replace(SMALL, codec="zstd"),
    "an unknown codec": replace(SMALL, codec="identity"),
}


def opened(sealed: Sealed) -> bytes:
    return VAULT.open(sealed.payload_id, sealed.key_id, sealed.codec, sealed.body)


def test_what_was_sealed_opens() -> None:
    """SPEC Y2: with and without compression."""
    assert (SMALL.codec, opened(SMALL)) == ("raw", b"a few words")
    assert (LARGE.codec, opened(LARGE)) == ("zstd", b"many words " * 100)


@pytest.mark.parametrize("sealed", CHANGED.values(), ids=CHANGED)
def test_what_does_not_fit_its_id_never_opens(sealed: Sealed) -> None:
    """SPEC Y2, M7: one error for each way in which a stored row can be wrong, so that no wrong text is read or kept."""
    with pytest.raises(CorruptPayloadError):
        opened(sealed)
