"""One piece of work for all who want the same thing at the same time.

What may not come in: what the work is.

Hazards:
- The work belongs to nobody in particular: it goes on when its first asker leaves, bounded by its own
  deadline.
- It may be cancelled by `close` while somebody waits, who must not take that for a cancellation of his own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from mcp_federator.errors import FederatorError

_Made = TypeVar("_Made")

_log = logging.getLogger(__name__)


class Together(Generic[_Made]):
    """The work under way, at most one piece for each key; `name` is that of its tasks."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.tasks: dict[Hashable, asyncio.Task[_Made]] = {}

    def start(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, _Made]]) -> asyncio.Task[_Made]:
        """The work for this key: what is under way, or `work` begun now."""
        task = self.tasks.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(work(), name=self._name)
            self.tasks[key] = task
            task.add_done_callback(lambda done: self._end(key, done))
        return task

    async def result(self, task: asyncio.Task[_Made], deadline: float) -> _Made:
        """What comes of the work.

        Raises:
            TimeoutError: not by `deadline` on the event loop's clock, or not before `close`.
        """
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if task.cancelled() and waiting is not None and not waiting.cancelling():
                raise TimeoutError from None
            raise

    async def close(self) -> None:
        """Cancel all work, and wait until it has ended."""
        tasks: tuple[Awaitable[_Made], ...] = tuple(self.tasks.values())
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, key: Hashable, task: asyncio.Task[_Made]) -> None:
        del self.tasks[key]
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, FederatorError):
            # Where nobody waits any more, nobody else tells of our own mistakes.
            _log.error("a %s failed", self._name, exc_info=problem)
