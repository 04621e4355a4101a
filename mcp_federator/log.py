"""What the process tells its operator, line by line, on stderr.

Two kinds of line share one writer: ordinary lines of stdlib logging (what happened), and one line per request
(`RequestLog`).  What may not come in: a secret's value, an upstream's raw text, and, above debug, a URI.

Hazards:
- A pipe nobody reads blocks whoever writes to it, and a non-blocking stderr would be non-blocking for every
  process that shares it.  So a thread of its own writes; it may block, the event loop never does.
- Text from outside can hold line breaks and terminal commands; all of it passes `clean`.
- A logging call can come while the garbage collector runs inside another: the writer's lock is reentrant.
"""

import asyncio
import atexit
import json
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Final, Literal, TypeAlias

import msgspec

from mcp_federator.model import Era, Method

Format: TypeAlias = Literal["text", "json"]
Level: TypeAlias = Literal["debug", "info", "warning", "error"]

_MAX_PENDING_CHARS: Final = 1 << 20
_MAX_BUFFERED_LINES: Final = 256
_FLUSH_AFTER: Final = 0.05
_CLOSE_WAIT: Final = 1.0
_MAX_MESSAGE_CHARS: Final = 2_000
_MAX_TRACE_LINES: Final = 100
_MAX_ID_CHARS: Final = 200
_MAX_GATHERED: Final = 256

_to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_METHODS: Final = frozenset(method.value for method in Method)


def clean(text: str, limit: int = 200) -> str:
    """`text` as at most `limit` printing characters on one line; others are escaped as Python writes them."""
    if len(text) <= limit and text.isprintable():
        return text
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:limit])
    return shown if len(text) <= limit and len(shown) <= limit else shown[: limit - 1] + "…"


class Writer:
    """Writes text to a file descriptor from its own thread; for the caller it never blocks and never fails.

    At most 1 Mi characters wait.  Lines beyond that are dropped, and how many is written as soon as writing
    goes on.  A descriptor that refuses (closed, a broken pipe, a full disk) loses what was being written, and
    is tried again with the next line.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._state = threading.Condition()
        self._texts: list[str] = []
        self._pending = 0
        self._dropped = 0
        self._closing = False
        self._thread: threading.Thread | None = None

    def put(self, text: str, lines: int = 1) -> None:
        """Hand over whole lines, line breaks included."""
        with self._state:
            if self._pending + len(text) > _MAX_PENDING_CHARS:
                self._dropped += lines
            else:
                self._texts.append(text)
                self._pending += len(text)
            if self._thread is None or not self._thread.is_alive():
                self._closing = False
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                with suppress(RuntimeError):  # the interpreter is ending and starts no more threads
                    self._thread.start()
            self._state.notify_all()

    def close(self, wait: float = _CLOSE_WAIT) -> None:
        """Wait at most `wait` seconds until all is written.  A later line opens the writer again."""
        with self._state:
            self._closing = True
            self._state.notify_all()
            thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join(wait)

    def _run(self) -> None:
        while True:
            with self._state:
                self._state.wait_for(lambda: self._texts or self._dropped or self._closing)
                if not self._texts and not self._dropped:
                    self._thread = None
                    return
                if self._dropped:
                    note = f"{self._dropped} lines dropped: stderr was not read"
                    self._texts.append(f"{_stamp(time.time())} warning mcp_federator.log: {note}\n")
                text, taken = "".join(self._texts), self._pending
                self._texts.clear()
                self._dropped = 0
            self._write(text.encode(errors="backslashreplace"))
            with self._state:
                self._pending -= taken

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        with suppress(OSError, ValueError):
            while rest:
                try:
                    rest = rest[os.write(self._fd, rest) :]
                except BlockingIOError:  # another owner of the descriptor made it non-blocking
                    select.select((), (self._fd,), ())


@cache
def stderr() -> Writer:
    """The one writer of this process."""
    # A process that was started without a stderr may have a socket under that number by now.
    writer = Writer(2 if sys.__stderr__ is not None else -1)
    atexit.register(writer.close)
    return writer


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
            self._second_stamp = _second_stamp(second)
        return f"{self._second_stamp}.{int((now - second) * 1000):03d}Z"

    def close(self) -> None:
        """Flush, and wait at most a second until all is written."""
        self.flush()
        self._writer.close()


def configure(
    format: Format = "text",  # noqa: A002 - the configuration's word
    level: Level = "info",
    *,
    writer: Writer | None = None,
) -> None:
    """Send the ordinary lines of the whole process to stderr; may be called again.

    `level` is for our own loggers; libraries speak from `warning` on, since what they say at lower levels can
    hold URIs and clients' data.
    """
    handler = _Handler(writer or stderr())
    handler.setFormatter(_JsonFormatter() if format == "json" else _TextFormatter())
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.ERROR if level == "error" else logging.WARNING)
    logging.getLogger("mcp_federator").setLevel(level.upper())


class _Handler(logging.Handler):
    def __init__(self, writer: Writer) -> None:
        super().__init__()
        self._writer = writer

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._writer.put(self.format(record) + "\n")
        except Exception:  # noqa: BLE001 - a wrong logging call must not fail the work around it
            self.handleError(record)


class _TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = f"{_stamp(record.created)} {record.levelname.lower()} {record.name}: "
        message = clean(record.getMessage(), _MAX_MESSAGE_CHARS)
        return "\n  ".join([head + message, *_traceback(self, record)])


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        members = {
            "time": _stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clean(record.getMessage(), _MAX_MESSAGE_CHARS),
        }
        traceback = _traceback(self, record)
        if traceback:
            members["traceback"] = "\n".join(traceback)
        return _to_json(members)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    if not record.exc_info:
        return []
    lines = formatter.formatException(record.exc_info).splitlines()
    return [clean(line, _MAX_MESSAGE_CHARS) for line in lines[-_MAX_TRACE_LINES:]]


def _json_id(id: bytes | None) -> str:  # noqa: A002 - the protocol's word
    """The id as it was written, where that is short and prints; else a string that shows it."""
    if id is None:
        return "null"
    text = id.decode(errors="replace")
    return text if len(text) <= _MAX_ID_CHARS and text.isprintable() else _quote(text)


def _quote(text: str) -> str:
    return _to_json(clean(text))


def _second_stamp(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _stamp(now: float) -> str:
    return f"{_second_stamp(int(now))}.{int(now % 1 * 1000):03d}Z"
