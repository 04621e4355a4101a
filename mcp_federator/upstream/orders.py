"""Names of large folders in their order, kept while walks go through them.

A system gives the names of a folder in no order, so whoever wants the next few looks at all of them.  What
one look found serves the pages that follow.  What may not come in: how a folder is looked at.

Hazards:
- What is kept may be old.  It is for walks that go on, and goes when one begins: so a walk meets all that was
  there when it began.  Only one that began in another process may miss what came less than `LONGEST` before.
- A name that is kept may be gone, or be another thing by now.
"""

import os
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Final

import msgspec

MAX_NAMES: Final = 50_000
"""Names in a run."""

MAX_RUNS: Final = 4
"""Runs that are kept of one directory, whatever folders they are of."""

SHARE: Final = 10
"""A run is kept for so many times as long as it took to find: so that takes a tenth of the time at most."""

LONGEST: Final = 60.0
"""Seconds that a run is kept at most."""


class Run(msgspec.Struct, frozen=True):
    """Names of a folder that follow each other.

    Attributes:
        start: a text that none of them is before, and all that are before them are.
        names: in order, at most `MAX_NAMES`.
        folders: which of them are folders.
        more: there are names behind the last one.
    """

    start: bytes
    names: list[bytes]
    folders: frozenset[bytes]
    more: bool

    def covers(self, start: bytes) -> bool:
        """Whether the name that comes first from `start` on is one of them, or there is none."""
        return self.start <= start and (not self.more or start <= self.names[-1])

    def since(self, start: bytes) -> Iterator[tuple[bytes, bool]]:
        """The names from `start` on, and whether each is a folder."""
        for at in range(bisect_left(self.names, start), len(self.names)):
            yield self.names[at], self.names[at] in self.folders


class Gathering:
    """Makes a run of names that come in no order, without keeping many more than it will have."""

    def __init__(self, start: bytes) -> None:
        self._start = start
        self._names: list[bytes] = []
        self._folders: set[bytes] = set()
        self._last: bytes | None = None

    def wants(self, name: bytes) -> bool:
        """Whether this name may be one of them."""
        return name >= self._start and (self._last is None or name < self._last)

    def add(self, name: bytes, *, is_folder: bool) -> None:
        """Take a name in."""
        self._names.append(name)
        if is_folder:
            self._folders.add(name)
        if len(self._names) >= 2 * MAX_NAMES:
            self._cut()

    def run(self) -> Run:
        """What came together."""
        if len(self._names) > MAX_NAMES:
            self._cut()
        self._names.sort()
        return Run(self._start, self._names, frozenset(self._folders), self._last is not None)

    def _cut(self) -> None:
        self._names.sort()
        self._folders.difference_update(self._names[MAX_NAMES:])
        del self._names[MAX_NAMES:]
        self._last = self._names[-1]


class Orders:
    """The runs that are kept of the folders of one directory; any thread may ask.

    Args:
        clock: seconds, never going back.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int, bytes], tuple[Run, float]] = OrderedDict()

    def forget(self, folder: int) -> None:
        """Keep nothing of this open folder any more."""
        of = _identity(folder)
        with self._lock:
            for key in [key for key in self._kept if key[:2] == of]:
                del self._kept[key]

    def find(self, folder: int, start: bytes) -> Run | None:
        """A run of this open folder that covers `start`."""
        of = _identity(folder)
        now = self._clock()
        with self._lock:
            for key in [key for key, (_, until) in self._kept.items() if until < now]:
                del self._kept[key]
            for key, (run, _) in self._kept.items():
                if key[:2] == of and run.covers(start):
                    self._kept.move_to_end(key)
                    return run
        return None

    def keep(self, folder: int, run: Run, cost: float) -> None:
        """Keep a run of this open folder that took `cost` seconds to find."""
        key = (*_identity(folder), run.start)
        until = self._clock() + min(SHARE * cost, LONGEST)
        with self._lock:
            self._kept[key] = run, until
            self._kept.move_to_end(key)
            if len(self._kept) > MAX_RUNS:
                self._kept.popitem(last=False)


def _identity(folder: int) -> tuple[int, int]:
    found = os.fstat(folder)
    return found.st_dev, found.st_ino
