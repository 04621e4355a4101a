"""Composite cursors: where a walk over many upstreams stands, as one opaque text.

A client brings back what we gave it, after a restart, to another replica, under a changed configuration; so
the text holds everything, and names upstreams instead of counting them (design, section 4).  It is sealed and
not secret: whoever holds it may read the upstreams' own cursors in it, but cannot make or change one.

What may not come in: what a cursor means for the next page (merge), and errors as the asker is told.

Hazards:
- One cursor has one spelling.  base64 as Python decodes it has many, so what was decoded is encoded again and
  compared; otherwise two texts would be one place, and `decode` no inverse of `encode`.
- Nothing is parsed before its seal is checked, nothing is decoded before its length is.
- A change of the structures below is a change of `_VERSION`.
"""

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final

import msgspec

from mcp_federator.model import Method, Scope

IDENTITY_BYTES: Final = 4
"""How much of an upstream's identity a place holds: it tells servers apart, it proves nothing."""

MAX_UPSTREAM_CURSOR: Final = 4096
"""The longest cursor taken from an upstream, in bytes of UTF-8."""

MAX_PLACES: Final = 64
"""The most upstreams a walk may have open; the bound of `lists.window`."""

MAX_CHARS: Final = 1 << 19
"""The longest text looked at: `MAX_PLACES` full cursors and the names of 3,500 waiting upstreams."""

_VERSION: Final = b"\x01"
_PURPOSE: Final = b"mcp-federator composite cursor 1"
_SEAL_BYTES: Final = 16


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where the walk stands at one upstream that it has opened and not finished.

    Attributes:
        upstream: its configured name.
        identity: the first `IDENTITY_BYTES` of its identity.
        cursor: its own cursor of the page to ask for; None is its first page, which is not `""`.
        carried: it missed a soft deadline in this walk already.
    """

    upstream: str
    identity: bytes
    cursor: str | None
    carried: bool = False


class CompositeCursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a walk stands.

    Attributes:
        method: the list that is walked.
        scope: what its first page said; it holds for every page (server/utilities/caching, "Interaction with
            Pagination").
        places: the upstreams that are open.
        waiting: the upstreams still to open, the next one first.
    """

    method: Method
    scope: Scope
    places: tuple[Place, ...]
    waiting: tuple[str, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(CompositeCursor)


class Seal:
    """Writes composite cursors, and reads those that it or a replica wrote.

    Args:
        secrets: at least one, none empty; the first seals, all open, so that secrets can be rotated.

    Raises:
        ValueError: there is no secret, or an empty one.
    """

    def __init__(self, secrets: Sequence[bytes]) -> None:
        if not secrets or not all(secrets):
            raise ValueError("a seal needs secrets, and none of them empty")
        self._keys = tuple(hmac.digest(secret, _PURPOSE, "sha256") for secret in secrets)

    def encode(self, cursor: CompositeCursor) -> str:
        """The cursor as base64url text without padding: a version, the seal, and what is sealed."""
        content = _encoder.encode(cursor)
        return _spell(_VERSION + _tag(self._keys[0], content) + content)

    def decode(self, text: str, method: Method) -> CompositeCursor:
        """The cursor that `encode` made this text of.

        Raises:
            ValueError: any text that is no cursor of ours for `method` (server/utilities/pagination, "Error
                Handling").
        """
        if len(text) > MAX_CHARS:
            raise ValueError("longer than any cursor of ours")
        sealed = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        if _spell(sealed) != text:
            raise ValueError("not spelt as a cursor of ours")
        version, tag, content = sealed[:1], sealed[1 : 1 + _SEAL_BYTES], sealed[1 + _SEAL_BYTES :]
        if version != _VERSION:
            raise ValueError("of another version")
        if not any(hmac.compare_digest(tag, _tag(key, content)) for key in self._keys):
            raise ValueError("not sealed by us")
        try:
            cursor = _decoder.decode(content)
        except msgspec.MsgspecError as error:
            raise ValueError("sealed by us, but no cursor") from error
        if cursor.method is not method:
            raise ValueError("of another list")
        return cursor


def _tag(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, "sha256")[:_SEAL_BYTES]


def _spell(sealed: bytes) -> str:
    return urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii")
