"""What a child process says on stderr, as lines of our log (basic/transports/stdio, "stderr").

Each line is one entry with the upstream's name, escaped.  What a server says there is no sign of trouble, so
all is `info`.

Hazard: a child can write faster than anybody reads.  All of it is taken, so that the child is not stopped,
but little of it is told; time comes in as `clock`.
"""

import logging
from collections.abc import Callable
from typing import Final

from mcp_federator.log import clean

MAX_LINE_CHARS: Final = 1000
"""Characters of a line that are shown."""

BURST: Final = 50
"""Lines that may come at once."""

PER_SECOND: Final = 5
"""Lines told in the long run."""

_KEPT: Final = 4 * MAX_LINE_CHARS

_log = logging.getLogger(__name__)


class Stderr:
    """The lines of one process."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._allowed = float(BURST)
        self._since = clock()
        self._begun = b""
        self._left_out = 0

    def feed(self, chunk: bytes) -> None:
        """Take what came, cut anywhere."""
        now = self._clock()
        self._allowed = min(self._allowed + (now - self._since) * PER_SECOND, BURST)
        self._since = now
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            if self._allowed < 1:
                self._left_out += chunk.count(b"\n", start)
                self._begun = b""
                start = chunk.rfind(b"\n") + 1
                break
            self._tell(self._begun + chunk[start : min(end, start + _KEPT)])
            self._begun = b""
            start = end + 1
        self._begun = (self._begun + chunk[start : start + _KEPT])[:_KEPT]

    def end(self) -> None:
        """The process is gone: what it began is a line, and what was left out is told."""
        if self._begun:
            self._tell(self._begun)
            self._begun = b""
        self._tell_left_out()

    def _tell(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        if not text:
            return
        self._allowed -= 1
        self._tell_left_out()
        _log.info("%s: stderr: %s", self._name, clean(text, MAX_LINE_CHARS))

    def _tell_left_out(self) -> None:
        if self._left_out:
            _log.info("%s: stderr: %d lines are left out here", self._name, self._left_out)
            self._left_out = 0
