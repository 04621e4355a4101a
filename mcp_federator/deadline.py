"""An end to waits that every request has: what `asyncio.timeout_at` does, at a quarter of its price.

A timer of its own for each wait is nearly always made in vain.  Here all waits of a loop share one, set for
the earliest end that was known when it was set; where that wait is over by then, it is set anew.

Hazards:
- One task may be in several blocks at once.  Each ends only what it cancelled itself, and leaves a
  cancellation by others what it is.
- The timer outlives the last wait; it finds nothing to do then.
"""

import asyncio
from math import inf
from types import TracebackType
from weakref import WeakKeyDictionary


class until:  # noqa: N801 - it is used as a function, like those of asyncio
    """A block that may last until a time of the loop's clock, then its task is cancelled.

    Raises:
        TimeoutError: from the end of the block, if that happened.
    """

    __slots__ = ("_before", "_late", "_task", "_watch", "when")

    def __init__(self, when: float) -> None:
        self.when = when
        self._late = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task can be given a deadline")
        self._task = task
        self._before = task.cancelling()
        loop = task.get_loop()
        self._watch = watch = _watch_of(loop)
        watch.blocks[self] = None
        if self.when < watch.at:
            watch.set(self.when, loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if not self._late:
            del self._watch.blocks[self]
        elif self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def end(self) -> None:
        """It is time."""
        self._late = True
        self._task.cancel()


class _Watch:
    """The blocks of one loop; `at` is the time for which a timer is set.

    It must not hold the loop, nor a handle that does: it is kept as long as the loop is.
    """

    __slots__ = ("at", "blocks")

    def __init__(self) -> None:
        self.at = inf
        self.blocks: dict[until, None] = {}

    def set(self, when: float, loop: asyncio.AbstractEventLoop) -> None:
        """Look again at this time; a timer for a later one finds that it is not the one any more."""
        self.at = when
        loop.call_at(when, self._ring, when, loop)

    def _ring(self, at: float, loop: asyncio.AbstractEventLoop) -> None:
        if at != self.at:
            return
        self.at = inf
        now = loop.time()
        for block in [block for block in self.blocks if block.when <= now]:
            del self.blocks[block]
            block.end()
        if self.blocks:
            self.set(min(block.when for block in self.blocks), loop)


_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch]" = WeakKeyDictionary()


def _watch_of(loop: asyncio.AbstractEventLoop) -> _Watch:
    watch = _watches.get(loop)
    if watch is None:
        watch = _watches[loop] = _Watch()
    return watch
