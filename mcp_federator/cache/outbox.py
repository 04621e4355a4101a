"""Changes that Redis has yet to be told of, and those of the last minute in case it forgets.

A change waits here from the moment it is declared until it is written; while one of an upstream waits, what
Redis keeps of that upstream may not be used.  Whoever takes over from a server that failed may lack its last
writes, and would bring back what was changed: so what was written or heard lately is written `again` before
the new server is trusted.  Writing twice costs misses only.

Pure: time is handed in.  Bounded: past `MAX_WAITING` changes of one upstream all of it counts as changed.

Hazard: a change may be declared again while it is being written.  Its number tells whether the one that was
written is the one that waits.
"""

from typing import Final

import msgspec

from mcp_federator.cache.notice import ALL, Notice

MAX_WAITING: Final = 1000
"""Changes of one upstream, waiting or remembered."""

MEMORY: Final = 60.0
"""Seconds for which what was written is remembered; longer than any replica lags before it is promoted."""


class Waiting(msgspec.Struct, frozen=True):
    """A change to be written; `tell`: others have not heard of it."""

    upstream: str
    notice: Notice
    tell: bool
    number: int


class Outbox:
    """The changes of all upstreams."""

    def __init__(self) -> None:
        self._number = 0
        self._waiting: dict[str, dict[Notice, Waiting]] = {}
        self._lately: dict[str, dict[Notice, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def waits(self, upstream: str) -> bool:
        """Whether there is a change of this upstream that Redis has not been told."""
        return upstream in self._waiting

    def put(self, upstream: str, notice: Notice, now: float, *, tell: bool = True) -> None:
        """A change has been declared here."""
        self._remember(upstream, notice, now)
        waiting = self._waiting.setdefault(upstream, {})
        if len(waiting) >= MAX_WAITING and notice not in waiting:
            tell = tell or any(other.tell for other in waiting.values())
            waiting.clear()
            notice = ALL
        known = waiting.get(notice)
        self._number += 1
        tell = tell or (known is not None and known.tell)
        waiting[notice] = Waiting(upstream, notice, tell, self._number)

    def hear(self, upstream: str, notice: Notice, now: float) -> None:
        """Another process has declared a change, and written it."""
        self._remember(upstream, notice, now)

    def again(self, now: float) -> None:
        """Redis may have forgotten what it was told lately."""
        for upstream, lately in list(self._lately.items()):
            for notice, at in list(lately.items()):
                if now - at <= MEMORY:
                    self.put(upstream, notice, at, tell=False)
                else:
                    del lately[notice]
            if not lately:
                del self._lately[upstream]

    def batch(self, limit: int) -> list[Waiting]:
        """What is to be written next, the oldest of each upstream first."""
        found: list[Waiting] = []
        for waiting in self._waiting.values():
            for one in waiting.values():
                if len(found) >= limit:
                    return found
                found.append(one)
        return found

    def written(self, batch: list[Waiting]) -> None:
        """Redis has been told these, and so has everyone who listens."""
        for one in batch:
            waiting = self._waiting.get(one.upstream, {})
            if waiting.get(one.notice) is one:
                del waiting[one.notice]
                if not waiting:
                    del self._waiting[one.upstream]

    def _remember(self, upstream: str, notice: Notice, now: float) -> None:
        lately = self._lately.setdefault(upstream, {})
        # The order is that of the times.
        while lately and now - lately[oldest := next(iter(lately))] > MEMORY:
            del lately[oldest]
        if len(lately) >= MAX_WAITING and notice not in lately:
            lately.clear()
            notice = ALL
        lately.pop(notice, None)
        lately[notice] = now
