"""Text that we give away and know again: sealed, not secret.

Whoever holds it may read what is in it, but cannot make or change one.  It opens on every process that has
the same secret, after a restart too.  What the content means, and how long a text may be, is the user's
affair.

Hazards:
- One content has one spelling.  base64 as Python decodes it has many, so what was decoded is encoded again
  and compared; otherwise two texts would be one.
- Nothing is parsed before its seal is checked.
- Each kind of text has a purpose of its own: what was sealed as one kind must not open as another.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final

_SEAL_BYTES: Final = 16


class Sealing:
    """Seals one kind of text.

    Args:
        secrets: at least one, none empty; the first seals, all open, so that secrets can be rotated.
        purpose: the kind, in words.
        version: one byte, of how the content is written.

    Raises:
        ValueError: there is no secret, or an empty one.
    """

    def __init__(self, secrets: Sequence[bytes], purpose: bytes, version: bytes) -> None:
        if not secrets or not all(secrets):
            raise ValueError("a seal needs secrets, and none of them empty")
        self._keys = tuple(hmac.digest(secret, purpose, "sha256") for secret in secrets)
        self._version = version

    def seal(self, content: bytes) -> str:
        """The content as base64url text without padding: the version, the seal, and what is sealed."""
        return _spell(self._version + _tag(self._keys[0], content) + content)

    def open(self, text: str) -> bytes:
        """The content that `seal` made this text of.

        Raises:
            ValueError: any text that is none of ours.
        """
        sealed = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        if _spell(sealed) != text:
            raise ValueError("not spelt as a text of ours")
        version, tag, content = sealed[:1], sealed[1 : 1 + _SEAL_BYTES], sealed[1 + _SEAL_BYTES :]
        if version != self._version:
            raise ValueError("of another version")
        if not any(hmac.compare_digest(tag, _tag(key, content)) for key in self._keys):
            raise ValueError("not sealed by us")
        return content


def _tag(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")[:_SEAL_BYTES]


def _spell(sealed: bytes) -> str:
    return urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii")
