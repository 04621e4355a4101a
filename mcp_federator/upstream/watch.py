"""Whether files below a directory are others than they were: looked at again and again while anybody cares.

Not the kernel's notifications: those differ with each system, and see nothing of a network file system.  What
may not come in: URIs as they are written, and who wants to know.

Hazards:
- All here blocks, and runs in a thread of its own, which a file system that hangs may hold for ever.
- To look costs: a directory of many files is looked at less often, so that it takes a tenth of the time.
"""

import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Final

from mcp_federator.upstream import tree

INTERVAL: Final = 0.4
"""Seconds between two looks, at least."""

SHARE: Final = 10
"""How many times as long as a look takes it rests after it, at least."""

MAX_FILES: Final = 100_000
"""Names that one look at the list passes; what comes or goes behind them is not seen."""

_LONGEST: Final = 60.0


class Watch:
    """The files of one directory; `path` is the directory's."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._paths: Mapping[str, tree.Path] = {}
        self._lists = False
        self._closed = False
        self._stamps: dict[str, tree.Stamp | None] = {}
        self._listed: set[tree.Path] | None = None

    def want(self, paths: Mapping[str, tree.Path], *, lists: bool) -> None:
        """Look at these files from now on, each under its URI, and at which files there are."""
        with self._lock:
            self._paths, self._lists = paths, lists
        self._news.set()

    def end(self) -> None:
        """Look no more."""
        self._closed = True
        self._news.set()

    def run(self, tell: Callable[[str | None], None]) -> None:
        """Look until the end; `tell` is called with the URI of a file that is another, None for the list."""
        while not self._closed:
            self._news.clear()
            begun = monotonic()
            with self._lock:
                paths, lists = self._paths, self._lists
            self._look(paths, lists, tell)
            rest = max(INTERVAL, min(SHARE * (monotonic() - begun), _LONGEST))
            self._news.wait(rest if paths or lists else None)

    def _look(self, paths: Mapping[str, tree.Path], lists: bool, tell: Callable[[str | None], None]) -> None:
        try:
            with tree.root(self._path) as folder:
                stamps = {uri: tree.stamp(folder, path) for uri, path in paths.items()}
                listed = self._files(folder) if lists else None
        except OSError:
            # It is not there, or took too long: that says nothing of what is in it.
            return
        before, self._stamps = self._stamps, stamps
        for uri, stamp in stamps.items():
            # What was not looked at before is what it is.
            if uri in before and before[uri] != stamp:
                tell(uri)
        before_listed, self._listed = self._listed, listed
        if listed is not None and before_listed is not None and listed != before_listed:
            tell(None)

    def _files(self, folder: int) -> set[tree.Path]:
        walk = tree.Walk(MAX_FILES, monotonic() + _LONGEST)
        return {entry.path for entry in walk.files(folder, ())}
