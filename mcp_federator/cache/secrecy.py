"""What closes an envelope: nobody who can read or write in Redis learns a private answer, or makes up any.

Each entry carries a tag under the server's secret, so that what somebody else wrote, changed, or moved to
another key is none of ours.  Private entries are enciphered besides: AES-256-GCM with a random nonce, under a
key that HKDF-SHA256 derives from the secret for their partition alone; the head is the associated data.
Secrets are a list: the first closes, all open, so that they can be rotated.

What it does not hide: that there is an entry, how long it is, when it ends, and the digests in its head.
Public entries are only tagged; who can read Redis reads them.  Nor does it keep anybody from putting back an
entry that was there before, under the key where it was.

The only room that knows `cryptography`.

Hazards:
- Large entries are closed and opened beside the event loop: several threads may be here at once.
- A nonce must never come twice under one key.  It is 96 random bits, and a key's entries are at most
  those of one partition: 2**32 of them, and the odds of one pair are still one in 2**33.
"""

import hmac
from collections.abc import Sequence
from hashlib import sha256
from secrets import token_bytes
from threading import Lock
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mcp_federator.cache.envelope import Closure
from mcp_federator.model import Scope

MAX_KEYS: Final = 1024
"""Derived keys that are remembered; deriving one takes some ten microseconds."""

_PLAIN: Final = b"\x00"
_SEALED: Final = b"\x01"
_TAG_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_TAG_INFO: Final = b"mcp-federator redis entry tag 1"
_CIPHER_INFO: Final = b"mcp-federator redis private entry 1"


class Secrecy(Closure):
    """Closes under the first of `secrets`, opens under any.

    Args:
        secrets: the server's; at least one, none empty.
        encrypt: encipher private entries; without it they are tagged as public ones are.  What was written
            the other way can be opened in either case.

    Raises:
        ValueError: there is no secret, or an empty one.
    """

    def __init__(self, secrets: Sequence[bytes], *, encrypt: bool = True) -> None:
        if not secrets or not all(secrets):
            raise ValueError("entries in Redis need a secret, and none that is empty")
        self._secrets = tuple(secrets)
        self._tag_keys = tuple(hmac.digest(secret, _TAG_INFO, "sha256") for secret in secrets)
        self._encrypt = encrypt
        self._ciphers: dict[tuple[int, bytes], AESGCM] = {}
        self._lock = Lock()

    def close(self, head: bytes, payload: bytes, scope: Scope, partition: bytes) -> bytes:
        """What is written after `head`: how it is closed, and the payload with its tag."""
        if scope is Scope.PRIVATE and self._encrypt:
            nonce = token_bytes(_NONCE_BYTES)
            return _SEALED + nonce + self._cipher(0, partition).encrypt(nonce, payload, head)
        return _PLAIN + _tag(self._tag_keys[0], head, payload) + payload

    def open(self, head: bytes, closed: bytes, scope: Scope, partition: bytes) -> bytes | None:
        """The payload, or None where it was not closed by us like this."""
        how, rest = closed[:1], closed[1:]
        if how == _PLAIN:
            tag, payload = rest[:_TAG_BYTES], rest[_TAG_BYTES:]
            ours = any(hmac.compare_digest(tag, _tag(key, head, payload)) for key in self._tag_keys)
            return payload if ours else None
        if how == _SEALED and scope is Scope.PRIVATE and len(rest) >= _NONCE_BYTES + _TAG_BYTES:
            nonce, sealed = rest[:_NONCE_BYTES], rest[_NONCE_BYTES:]
            for number in range(len(self._secrets)):
                try:
                    return self._cipher(number, partition).decrypt(nonce, sealed, head)
                except InvalidTag:
                    continue
        return None

    def _cipher(self, number: int, partition: bytes) -> AESGCM:
        ciphers = self._ciphers
        with self._lock:
            cipher = ciphers.get((number, partition))
            if cipher is None:
                derived = HKDF(SHA256(), 32, salt=partition, info=_CIPHER_INFO).derive(self._secrets[number])
                while len(ciphers) >= MAX_KEYS:
                    del ciphers[next(iter(ciphers))]
                cipher = ciphers[number, partition] = AESGCM(derived)
            return cipher


def _tag(key: bytes, head: bytes, payload: bytes) -> bytes:
    # The head is of fixed length, so the two cannot run into each other.
    running = hmac.new(key, head, sha256)
    running.update(payload)
    return running.digest()[:_TAG_BYTES]
