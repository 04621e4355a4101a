"""Composite cursors: where a walk over many upstreams stands, as one opaque text.

A client brings back what we gave it, after a restart, to another replica, under a changed configuration; so
the text holds everything, and names upstreams instead of counting them (design, section 4).  It is sealed and
not secret: whoever holds it may read the upstreams' own cursors in it, but cannot make or change one.

What may not come in: what a cursor means for the next page (merge), and errors as the asker is told.

Hazards:
- Nothing is decoded before its length is checked; how a text is sealed and spelt is `sealing`'s affair.
- A change of the structures below is a change of `_VERSION`.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from mcp_federator.federation.sealing import Sealing
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
        self._sealing = Sealing(secrets, _PURPOSE, _VERSION)

    def encode(self, cursor: CompositeCursor) -> str:
        """The cursor as base64url text without padding: a version, the seal, and what is sealed."""
        return self._sealing.seal(_encoder.encode(cursor))

    def decode(self, text: str, method: Method) -> CompositeCursor:
        """The cursor that `encode` made this text of.

        Raises:
            ValueError: any text that is no cursor of ours for `method` (server/utilities/pagination, "Error
                Handling").
        """
        if len(text) > MAX_CHARS:
            raise ValueError("longer than any cursor of ours")
        content = self._sealing.open(text)
        try:
            cursor = _decoder.decode(content)
        except msgspec.MsgspecError as error:
            raise ValueError("sealed by us, but no cursor") from error
        if cursor.method is not method:
            raise ValueError("of another list")
        return cursor
