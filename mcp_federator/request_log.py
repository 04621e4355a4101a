"""One line for each request: what was asked, how it was answered, how long that took.

What may not come in: an upstream's raw text, and, above debug, a URI.

Hazard: it stands on the hot path.  What is to be written is only gathered; lines are made many at a time.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from mcp_federator.log import Format, Level, Writer, clean, second_stamp, stderr, to_json
from mcp_federator.model import Era, Method

_MAX_BUFFERED_LINES: Final = 256
_FLUSH_AFTER: Final = 0.05
_MAX_ID_CHARS: Final = 200
_MAX_GATHERED: Final = 256

_METHODS: Final = frozenset(method.value for method in Method)


class _Request(msgspec.Struct, gc=False):
    """One request as it is to be told, see `RequestLog.write`; `now` is the time."""

    now: float
    id: bytes | None
    method: str
    era: Era
    upstreams: Sequence[str]
    outcome: str
    status: str
    seconds: float
    size: int
    uri: str | None


class RequestLog:
    """One line per request, at level `info`; cheap, since it stands on the hot path.

    What is to be written is only gathered; the lines are made many at a time, at most 50 ms later.
    """

    def __init__(
        self,
        format: Format = "text",  # noqa: A002 - the configuration's word
        level: Level = "info",
        *,
        writer: Writer | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._writer = writer or stderr()
        self._clock = clock
        self._requests: list[_Request] = []
        self._timer: asyncio.TimerHandle | None = None
        self._second = -1
        self._second_stamp = ""
        self.configure(format, level)

    def configure(self, format: Format, level: Level) -> None:  # noqa: A002 - likewise
        """Take over new settings; what was written before keeps its form."""
        self.flush()
        self._json = format == "json"
        self._enabled = level in {"debug", "info"}
        self._uris = level == "debug"

    def write(
        self,
        *,
        id: bytes | None,  # noqa: A002 - the protocol's word
        method: str,
        era: Era,
        upstreams: Sequence[str],
        outcome: str,
        status: str,
        seconds: float,
        size: int,
        uri: str | None = None,
    ) -> None:
        """Write down one request.

        Args:
            id: JSON text of the request's id; None where it could not be read.
            method: any text.
            era: what the asker speaks.
            upstreams: configured names of those the request concerned.
            outcome: what the cache did, `""` where it was not asked.
            status: the word `Metrics.request` counts.
            seconds: from arrival to answer.
            size: bytes of the answer's body.
            uri: shown at debug level only.
        """
        if not self._enabled:
            return
        # What waits to be shown takes no more room than what will be shown of it.
        id = id and id[:_MAX_GATHERED]  # noqa: A001 - likewise
        method = method[:_MAX_GATHERED]
        uri = None if uri is None or not self._uris else uri[:_MAX_GATHERED]
        self._requests.append(
            _Request(self._clock(), id, method, era, upstreams, outcome, status, seconds, size, uri)
        )
        if self._timer is None:
            try:
                self._timer = asyncio.get_running_loop().call_later(_FLUSH_AFTER, self.flush)
            except RuntimeError:  # no loop runs
                self.flush()
        elif len(self._requests) >= _MAX_BUFFERED_LINES:
            self.flush()

    def flush(self) -> None:
        """Hand all that was gathered to the writer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._requests:
            line = self._json_line if self._json else self._text_line
            self._writer.put("".join([line(request) for request in self._requests]), len(self._requests))
            self._requests.clear()

    def _text_line(self, it: _Request) -> str:
        shown_method = it.method if it.method in _METHODS else _quote(it.method)
        shown_uri = f" uri={_quote(it.uri)}" if it.uri is not None else ""
        return (
            f"{self._stamp(it.now)} info request id={_json_id(it.id)} method={shown_method} era={it.era}"
            f" upstreams={','.join(it.upstreams) or '-'} outcome={it.outcome or '-'} status={it.status}"
            f" ms={it.seconds * 1000:.3f} bytes={it.size}{shown_uri}\n"
        )

    def _json_line(self, it: _Request) -> str:
        names = '"' + '","'.join(it.upstreams) + '"' if it.upstreams else ""
        shown_method = f'"{it.method}"' if it.method in _METHODS else _quote(it.method)
        shown_uri = f',"uri":{_quote(it.uri)}' if it.uri is not None else ""
        return (
            f'{{"time":"{self._stamp(it.now)}","level":"info","id":{_json_id(it.id)},"method":{shown_method},'
            f'"era":"{it.era}","upstreams":[{names}],"outcome":"{it.outcome}","status":"{it.status}",'
            f'"ms":{it.seconds * 1000:.3f},"bytes":{it.size}{shown_uri}}}\n'
        )

    def _stamp(self, now: float) -> str:
        second = int(now)
        if second != self._second:
            self._second = second
            self._second_stamp = second_stamp(second)
        return f"{self._second_stamp}.{int((now - second) * 1000):03d}Z"

    def close(self) -> None:
        """Flush, and wait at most a second until all is written."""
        self.flush()
        self._writer.close()


def _json_id(id: bytes | None) -> str:  # noqa: A002 - the protocol's word
    """The id as it was written, where that is short and prints; else a string that shows it."""
    if id is None:
        return "null"
    text = id.decode(errors="replace")
    return text if len(text) <= _MAX_ID_CHARS and text.isprintable() else _quote(text)


def _quote(text: str) -> str:
    return to_json(clean(text))
