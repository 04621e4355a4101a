"""Files below one directory, reached so that nothing else ever is.

Every step goes from an open directory to one name in it and follows no symlink (`O_NOFOLLOW`), so it does
not matter what is swapped for what, or when: a name is a folder or a file of that very folder, or not there.
The root alone is a path, and may be a symlink; it is opened anew for each call.

A path is a tuple of names, as bytes.  Names that begin with a dot are hidden: neither listed nor opened.

Hazards:
- To open some things is to do something: a FIFO waits, a device may act.  What is no regular file when it is
  looked at is not opened, and what became something else by then is opened without waiting, and left.
- Everything here blocks, and a file system may hang.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final, TypeAlias

import msgspec

from mcp_federator.upstream.limits import TooLargeError
from mcp_federator.upstream.orders import Gathering, Orders, Run

Path: TypeAlias = tuple[bytes, ...]

Stamp: TypeAlias = tuple[int, int, int]

MAX_DEPTH: Final = 64
"""Names in a path."""

MAX_PATH_BYTES: Final = 2048

LARGE: Final = 1000
"""Things in a folder from which on it is worth keeping what a look at it found."""

_CHUNK: Final = 1 << 20
_TRIES: Final = 3
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Entry(msgspec.Struct, frozen=True):
    """A file: its path, size in bytes, and when it was changed, in seconds since 1970."""

    path: Path
    size: int
    changed: float


@contextmanager
def root(path: str) -> Iterator[int]:
    """The open root; raises OSError."""
    folder = os.open(path, _FOLDER)
    try:
        yield folder
    finally:
        os.close(folder)


def is_shown(name: bytes) -> bool:
    """Whether a name is one of those that are shown."""
    return not name.startswith(b".") and b"\\" not in name


def read(folder: int, path: Path, limit: int) -> bytes:
    """The bytes of a file.

    One that is written meanwhile is read again, at most three times; what was read last is taken.

    Raises:
        OSError: there is no such regular file, or it may not be read.
        TooLargeError: it has more than `limit` bytes.
    """
    with _parent(folder, path) as (opened, name):
        return _read(opened, name, limit)


def stamp(folder: int, path: Path) -> Stamp | None:
    """Another value whenever the file is another; None where there is no such regular file."""
    try:
        with _parent(folder, path) as (opened, name):
            found = os.stat(name, dir_fd=opened, follow_symlinks=False)
    except OSError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


@contextmanager
def _parent(folder: int, path: Path) -> Iterator[tuple[int, bytes]]:
    """The open folder that a file is in, and the file's name there; raises OSError."""
    if not path or len(path) > MAX_DEPTH or not all(map(is_shown, path)):
        raise FileNotFoundError(errno.ENOENT, "no such path")
    *folders, name = path
    opened = folder
    try:
        for each in folders:
            inner = os.open(each, _FOLDER | os.O_NOFOLLOW, dir_fd=opened)
            if opened != folder:
                os.close(opened)
            opened = inner
        yield opened, name
    finally:
        if opened != folder:
            os.close(opened)


def _read(folder: int, name: bytes, limit: int) -> bytes:
    if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise FileNotFoundError(errno.ENOENT, "no regular file")
    file = os.open(name, _FILE, dir_fd=folder)
    try:
        before = os.fstat(file)
        if not stat.S_ISREG(before.st_mode):
            raise FileNotFoundError(errno.ENOENT, "no regular file")
        for _ in range(_TRIES - 1):
            data = _bytes(file, limit)
            after = os.fstat(file)
            if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size):
                return data
            before = after
        return _bytes(file, limit)
    finally:
        os.close(file)


def _bytes(file: int, limit: int) -> bytes:
    parts = []
    size = 0
    while part := os.pread(file, min(_CHUNK, limit + 1 - size), size):
        parts.append(part)
        size += len(part)
        if size > limit:
            raise TooLargeError(f"more than {limit} bytes")
    return b"".join(parts)


class Walk:
    """A walk over the regular files that can be read, in the order of their paths.

    A folder that cannot be read, or vanishes meanwhile, costs only itself; so does one that is too deep.

    Args:
        steps: names to look at before it is cut short.
        until: seconds by `clock`, after which it fails.
        clock: seconds, never going back.
        orders: what walks before this one left, and this one leaves to those behind it.

    Attributes:
        last: the path looked at last, where it can go on.
        cut: it was cut short.
    """

    def __init__(
        self,
        steps: int,
        until: float,
        clock: Callable[[], float] = monotonic,
        orders: Orders | None = None,
    ) -> None:
        self._steps = steps
        self._until = until
        self._clock = clock
        self._orders = Orders(clock) if orders is None else orders
        self.last: Path = ()
        self.cut = False

    def files(self, folder: int, after: Path, path: Path = ()) -> Iterator[Entry]:
        """The files below an open folder, whose path is `path`; only those behind `after`, a path in it.

        Raises:
            TimeoutError: the time is over.
        """
        first = after[0] if after else None
        for name, is_folder in self._names(folder, first):
            here = (*path, name)
            self._steps -= 1
            if self._steps < 0:
                self.cut = True
                return
            self.last = here
            if sum(map(len, here)) + len(here) > MAX_PATH_BYTES:
                continue
            if is_folder:
                yield from self._below(folder, name, after[1:] if name == first else (), here)
                if self.cut:
                    return
            elif name != first and (entry := _entry(folder, name, here)) is not None:
                yield entry

    def _below(self, folder: int, name: bytes, after: Path, here: Path) -> Iterator[Entry]:
        if len(here) >= MAX_DEPTH:
            return
        try:
            inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
        except OSError:
            return
        try:
            yield from self.files(inner, after, here)
        finally:
            os.close(inner)

    def _names(self, folder: int, first: bytes | None) -> Iterator[tuple[bytes, bool]]:
        """The names in a folder from `first` on, in order, and which are folders; a run at a time."""
        if first is None:
            self._orders.forget(folder)
        start = first or b""
        while True:
            run = self._orders.find(folder, start) or self._run(folder, start)
            yield from run.since(start)
            if not run.more:
                return
            start = run.names[-1] + b"\x00"

    def _run(self, folder: int, start: bytes) -> Run:
        """The names in a folder from `start` on, as they are now; of one that cannot be read, none."""
        gathering = Gathering(start)
        begun = self._clock()
        try:
            with os.scandir(folder) as found:
                seen = self._gather(found, gathering)
        except TimeoutError:
            raise
        except OSError:
            return Run(start, [], frozenset(), more=False)
        run = gathering.run()
        if seen >= LARGE:
            self._orders.keep(folder, run, self._clock() - begun)
        return run

    def _gather(self, found: Iterable[os.DirEntry[str]], gathering: Gathering) -> int:
        """Take in what is shown of a folder; gives how many things it has."""
        number = 0
        for number, each in enumerate(found, 1):
            if number % LARGE == 1 and self._clock() > self._until:
                raise TimeoutError
            name = os.fsencode(each.name)
            if gathering.wants(name) and is_shown(name):
                is_folder = each.is_dir(follow_symlinks=False)
                if is_folder or each.is_file(follow_symlinks=False):
                    gathering.add(name, is_folder=is_folder)
        return number


def _entry(folder: int, name: bytes, path: Path) -> Entry | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        readable = os.access(name, os.R_OK, dir_fd=folder, effective_ids=True)
    except OSError:
        return None
    if not readable or not stat.S_ISREG(found.st_mode):
        return None
    return Entry(path, found.st_size, found.st_mtime)
