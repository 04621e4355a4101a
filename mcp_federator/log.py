"""What the process tells its operator, line by line, on stderr.

Here are the writer that all lines share, and the ordinary lines of stdlib logging; those of requests are made
by `request_log`.  What may not come in: a secret's value, an upstream's raw text, and, above debug, a URI.

Hazards:
- A pipe nobody reads blocks whoever writes to it, and a non-blocking stderr would be non-blocking for every
  process that shares it.  So a thread of its own writes; it may block, the event loop never does.
- Text from outside can hold line breaks and terminal commands; all of it passes `clean`.
- A logging call can come while the garbage collector runs inside another: the writer's lock is reentrant.
"""

import atexit
import json
import logging
import os
import select
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from typing import Final, Literal, TypeAlias

Format: TypeAlias = Literal["text", "json"]
Level: TypeAlias = Literal["debug", "info", "warning", "error"]

_MAX_PENDING_CHARS: Final = 1 << 20
_CLOSE_WAIT: Final = 1.0
_MAX_MESSAGE_CHARS: Final = 2_000
_MAX_TRACE_LINES: Final = 100

to_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""JSON as it stands on a line."""


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
        return to_json(members)


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    if not record.exc_info:
        return []
    lines = formatter.formatException(record.exc_info).splitlines()
    return [clean(line, _MAX_MESSAGE_CHARS) for line in lines[-_MAX_TRACE_LINES:]]


def second_stamp(second: int) -> str:
    """A whole second of UTC as all lines begin with it."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def _stamp(now: float) -> str:
    return f"{second_stamp(int(now))}.{int(now % 1 * 1000):03d}Z"
