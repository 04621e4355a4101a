"""Messages as lines (basic/transports/stdio, "Receiving Messages"): bytes in, lines out, and whose they are.

What a message means is not known here.

Hazards:
- Of a line that is too long nothing may be kept; yet somebody waits for it and must be told.  So its two ends
  are kept, where the usual writers put the id.
- Programs print to stdout what is no message, sometimes a lot of it: a line without a brace is only counted.
- A line ends in LF; a CR before it is white space.  What stands after the last LF is no line.
"""

import re
from typing import Final

import msgspec

from mcp_federator.protocol.text import check_depth

_EDGE: Final = 256
"""Bytes kept of each end of a line that is too long."""

_ONE_LINE: Final = bytes.maketrans(b"\r\n", b"  ")
_FIRST_ID: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*([0-9]{1,15})\s*[,}]')
_LAST_ID: Final = re.compile(rb',\s*"id"\s*:\s*([0-9]{1,15})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


class TooLong(msgspec.Struct, frozen=True):
    """A line that was not kept: its first and its last bytes."""

    head: bytes
    tail: bytes


class Lines:
    """Turns chunks, cut anywhere, into lines without their ends.

    Args:
        limit: bytes a line may have.

    Attributes:
        pending: bytes kept of the line that has not ended yet.
        strays: lines that held no brace and were not given out; blank ones do not count.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._skipped: TooLong | None = None
        self.pending = 0
        self.strays = 0

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """The lines that end within the chunk."""
        first, *others = chunk.split(b"\n")
        self._add(first)
        if not others:
            return []
        lines = [self._end()]
        rest = others.pop()
        lines += others
        self._add(rest)
        found = [line for line in lines if isinstance(line, TooLong) or b"{" in line]
        if len(found) < len(lines):
            self.strays += sum(isinstance(line, bytes) and line.strip(b"\r") != b"" for line in lines)
            self.strays -= sum(isinstance(line, bytes) for line in found)
        return found

    def skip(self) -> None:
        """Keep no more of the line that has begun; when it ends it is `TooLong`."""
        line = b"".join(self._parts)
        self._skipped = TooLong(line[:_EDGE], line[-_EDGE:])
        self._parts.clear()
        self.pending = 0

    def _add(self, piece: bytes) -> None:
        if self._skipped is not None:
            self._skipped = TooLong(self._skipped.head, (self._skipped.tail + piece[-_EDGE:])[-_EDGE:])
        elif piece:
            self._parts.append(piece)
            self.pending += len(piece)
            if self.pending > self._limit:
                self.skip()

    def _end(self) -> bytes | TooLong:
        line = self._skipped or b"".join(self._parts)
        self._parts.clear()
        self._skipped = None
        self.pending = 0
        return line


class Head(msgspec.Struct, frozen=True):
    """What tells where a message belongs.

    Attributes:
        answers: the id of our call that it answers; None where it answers none.
        spontaneous: it is a request or a notification of the other side.
    """

    answers: int | None = None
    spontaneous: bool = False


class _Message(msgspec.Struct, gc=False):
    id: msgspec.Raw = msgspec.Raw()
    method: msgspec.Raw = msgspec.Raw()


_MESSAGE: Final = msgspec.json.Decoder(_Message)


def head_of(message: bytes) -> Head:
    """Where a message belongs; one that cannot be read is likely to answer the call it seems to name.

    Whoever waits for it has to check the whole of it all the same.
    """
    try:
        check_depth(message)
        found = _MESSAGE.decode(message)
    except ValueError:
        return Head(likely_id(message[:_EDGE], message[-_EDGE:]))
    if found.method:
        return Head(spontaneous=True)
    id = bytes(found.id)  # noqa: A001 - the protocol's word
    return Head(int(id) if id.isdigit() else None)


def likely_id(head: bytes, tail: bytes) -> int | None:
    """The id of a response of which only the two ends are known, where it stands first or last."""
    found = _FIRST_ID.match(head) or _LAST_ID.search(tail)
    return None if found is None else int(found[1])


def one_line(message: bytes) -> bytes:
    """A JSON text without line breaks: in strings they are escaped, elsewhere they are white space.

    Parts of a message may be text of our client; a break in it would begin another message of ours.
    """
    return message.translate(_ONE_LINE) if b"\n" in message or b"\r" in message else message
