"""Calls into code that is not ours: in threads where it may block, on the loop where it is async.

A call has an end even where the code has none.  Who asked goes away at the deadline; what he leaves behind, a
thread or a task, is counted, and when that many are left behind, nothing more is begun.

Hazards:
- Threads are daemons: one that hangs must not keep the process from ending.
- Whatever the code raises is an outcome, SystemExit, StopIteration and its own CancelledError included; to
  look at what it gives is to run it, even to ask for its class.
"""

import asyncio
import logging
import queue
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from types import CoroutineType
from typing import Any, Final

from mcp_federator.upstream.limits import FullError

THREADS: Final = 16
"""Threads of one repository at most, and async calls that were given up and have not ended."""

_CLOSE_WAIT: Final = 1.0

_log = logging.getLogger(__name__)


class RaisedError(Exception):
    """The code raised `problem`."""

    def __init__(self, problem: BaseException) -> None:
        super().__init__(type(problem).__name__)
        self.problem = problem


class _Job:
    """One call for a thread.  `begun` and `left` are guarded by the workers' lock."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[tuple[Any, bool, BaseException | None]] = self.loop.create_future()
        self.begun = False
        self.left = False

    def run(self) -> None:
        value: Any = None
        waits = False
        problem: BaseException | None = None
        try:
            value = self.function()
            waits = isawaitable(value)
        except BaseException as raised:  # noqa: BLE001 - see the hazards
            problem = raised
        with suppress(RuntimeError):  # the loop is closed, nobody waits
            self.loop.call_soon_threadsafe(self._deliver, value, waits, problem)

    def _deliver(self, value: Any, waits: bool, problem: BaseException | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result((value, waits, problem))


class Workers:
    """The threads of one repository, started when they are needed; and its async calls.

    Args:
        name: of the threads.
        limit: how many at most.
    """

    def __init__(self, name: str, limit: int = THREADS) -> None:
        self._name = name
        self._limit = limit
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = 0
        self._wanted = 0
        self._left = 0
        self._given_up: set[asyncio.Task[Any]] = set()

    async def call(self, function: Callable[[], Any], deadline: float) -> Any:
        """What `function` returns, run in a thread; where that is to be awaited, what comes of it.

        Args:
            function: may block, and may never return.
            deadline: on the event loop's clock.

        Raises:
            TimeoutError: nothing until the deadline.
            FullError: all threads are held by calls that were given up.
            RaisedError: the code raised something.
        """
        job = _Job(function)
        self._begin(job)
        try:
            async with asyncio.timeout_at(deadline):
                value, waits, problem = await job.outcome
        finally:
            self._leave(job)
        if problem is not None:
            raise RaisedError(problem)
        return await self.wait(value, deadline) if waits else value

    async def wait(self, work: Awaitable[Any], deadline: float) -> Any:
        """What comes of `work`, run on the loop; raises what `call` raises."""
        if len(self._given_up) >= self._limit:
            if type(work) is CoroutineType:
                work.close()
            raise FullError(f"{self._limit} calls were given up and have not ended")
        task = asyncio.get_running_loop().create_task(_outcome(work), name=self._name)
        try:
            await asyncio.wait((task,), timeout=deadline - asyncio.get_running_loop().time())
        finally:
            if not task.done():
                task.cancel()
                self._given_up.add(task)
                task.add_done_callback(self._given_up.discard)
        if not task.done():
            raise TimeoutError
        if task.cancelled():
            raise RaisedError(asyncio.CancelledError())
        value, problem = task.result()
        if problem is not None:
            raise RaisedError(problem)
        return value

    async def close(self) -> None:
        """Let the threads end, and give what is under way on the loop a second to take its cancellation."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)
        if self._given_up:
            await asyncio.wait(self._given_up, timeout=_CLOSE_WAIT)
        if self._given_up or self._left:
            _log.warning("%s: calls that do not end are left behind", self._name)

    def _begin(self, job: _Job) -> None:
        with self._lock:
            if self._left >= self._limit:
                raise FullError(f"{self._limit} calls were given up and have not ended")
            self._wanted += 1
            if self._wanted > self._threads and self._threads < self._limit:
                self._start()
            self._jobs.put(job)

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more
            if not self._threads:
                self._wanted -= 1
                raise FullError("no thread could be started") from None
        else:
            self._threads += 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            with self._lock:
                job.begun = not job.left
            if job.begun:
                job.run()
            with self._lock:
                self._wanted -= 1
                self._left -= job.begun and job.left
                job.begun = False
            # Nothing of this call may live until the next one.
            del job
        with self._lock:
            self._threads -= 1

    def _leave(self, job: _Job) -> None:
        """Nobody waits for this call any more; one that has not begun never will."""
        with self._lock:
            if not job.outcome.done() or job.outcome.cancelled():
                job.left = True
                self._left += job.begun


async def _outcome(work: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await work, None
    except asyncio.CancelledError:
        raise
    except BaseException as problem:  # noqa: BLE001 - see the hazards
        return None, problem
