"""Event streams as the HTML standard frames them ("Server-sent events", "Parsing an event stream").

Bytes in, events out; and for what we tell, one line of text in, an event out.  What the data of an event
means is not known here; nor is it decoded: whether it is UTF-8 is checked with the rest of the JSON text.

Hazards.  A line ends in CR LF, LF or a bare CR, and the two bytes of a CR LF may come in different chunks: a
CR ends its line at once, so that no event waits for the next chunk, and a LF right behind it is swallowed.
An event may have any number of `data` lines, its limit is therefore on their sum.  What stands after the last
blank line is no event.
"""

from typing import Final

import msgspec

MAX_LINES: Final = 250_000
"""How many lines a stream may have; each costs the same, also an empty one."""

_BOM: Final = b"\xef\xbb\xbf"
_MAX_DIGITS: Final = 15


class ServerSentEvent(msgspec.Struct, frozen=True):
    """One event.

    `data` may be empty: such an event only sets the id.  `id` is the last one seen, or `""`.
    """

    data: bytes
    event: str = "message"
    id: str = ""


def encode(text: bytes) -> bytes:
    """The event whose data is this text, which holds no line break: JSON needs none."""
    return b"data: %b\n\n" % text


class Decoder:
    """Turns the chunks of one stream, cut anywhere, into events.

    Args:
        max_event_bytes: bounds the data of one event and the length of one line.
        id: the last one of the connection that this one goes on from.
        max_lines: how many the stream may have; infinity for one that is listened to for days.

    Attributes:
        id: the last one that came whole.
        retry: milliseconds that the server asks us to wait before the next connection; None: it does not.
        events: how many came, those without data not counted.
    """

    def __init__(
        self,
        max_event_bytes: int,
        id: str = "",  # noqa: A002 - the standard's word
        max_lines: float = MAX_LINES,
    ) -> None:
        self._limit = max_event_bytes
        self._max_lines = max_lines
        self._line = bytearray()  # what has come of the line that has not ended yet
        self._data = bytearray()
        self._event = ""
        self._lines = 0
        self._id = id
        self.id = id
        self.retry: int | None = None
        self.events = 0
        self._after_cr = False
        self._first = True

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that end within the chunk.

        Raises:
            ValueError: an event passes the limit, or the lines are too many; the stream cannot be read on.
        """
        if not chunk:
            return []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        events = []
        for piece in chunk.splitlines(keepends=True):
            line = piece.rstrip(b"\r\n")
            if len(self._line) + len(line) + len(self._data) > self._limit:
                raise ValueError(f"an event is larger than {self._limit} bytes")
            self._line += line
            if len(line) < len(piece):
                self._lines += 1
                if self._lines > self._max_lines:
                    raise ValueError(f"the stream has more than {self._max_lines} lines")
                event = self._take(bytes(self._line))
                self._line.clear()
                if event is not None:
                    events.append(event)
        return events

    def _take(self, line: bytes) -> ServerSentEvent | None:
        """Interpret one whole line; a blank one ends the event."""
        if self._first:
            line, self._first = line.removeprefix(_BOM), False
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data += value + b"\n"
        elif field == b"event":
            self._event = value.decode(errors="replace")
        elif field == b"id" and b"\0" not in value:
            self._id = value.decode(errors="replace")
        elif field == b"retry" and value.isdigit() and len(value) <= _MAX_DIGITS:
            self.retry = int(value)
        return None  # a comment has an empty field name; unknown fields mean nothing

    def _dispatch(self) -> ServerSentEvent | None:
        data, event = bytes(self._data), self._event
        self._data.clear()
        self._event = ""
        self.id = self._id
        # The last line's end is not part of the data; without any line there is no event.
        if not data:
            return None
        self.events += 1
        return ServerSentEvent(data[:-1], event or "message", self._id)
