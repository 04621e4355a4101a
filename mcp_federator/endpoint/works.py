"""What legacy clients have under way: work that outlives its connection, and can be called off by its id.

A lost connection is no cancellation in these revisions; `notifications/cancelled` is one (2025-11-25,
basic/transports, "Sending Messages to the Server"; basic/utilities/cancellation).  So the work is a task of
its own: the handler waits for it, may have to leave it, and a later message may stop it.

What may not come in: what the work is.

Hazards:
- Every client begins with id 1: a request is known by its session and its id together (case H23).
- A stop reaches only work in this process.
- The loop keeps only weak references to tasks: all that is not done is held here.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeAlias

from mcp_federator.model import Answer

MAX_LEFT: Final = 64
"""How much may go on at once with nobody waiting; beyond it, what is left is cancelled."""

Key: TypeAlias = tuple[bytes, object]
"""A session's token and a request's id, decoded."""


class StoppedError(Exception):
    """The client called the work off: it expects no response any more."""


class _Work:
    __slots__ = ("stopped", "task")

    def __init__(self, task: asyncio.Task[Answer]) -> None:
        self.task = task
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True
        self.task.cancel()


class Works:
    """The work under way."""

    def __init__(self) -> None:
        self._by_key: dict[Key, _Work] = {}
        self._all: set[_Work] = set()
        self._left: set[_Work] = set()

    def __len__(self) -> int:
        """Work that is not done."""
        return len(self._all)

    async def run(self, key: Key, load: Coroutine[Any, Any, Answer]) -> Answer:
        """Do the work and bring its answer; when this caller is cancelled, the work goes on.

        Raises:
            StoppedError: it was called off.
            Exception: whatever the work raised.
        """
        work = _Work(asyncio.create_task(load, name="mcp-federator legacy request"))
        self._by_key[key] = work
        self._all.add(work)

        def done(task: asyncio.Task[Answer]) -> None:
            self._all.discard(work)
            self._left.discard(work)
            if self._by_key.get(key) is work:
                del self._by_key[key]
            if not task.cancelled():
                task.exception()  # Perhaps nobody waits for it: taken, so that it is not reported.

        work.task.add_done_callback(done)
        try:
            await asyncio.wait((work.task,))
        except asyncio.CancelledError:
            self._leave(work)
            raise
        if work.stopped:
            raise StoppedError
        if work.task.cancelled():
            raise RuntimeError("the work was cancelled by somebody else")
        return work.task.result()

    def stop(self, key: Key) -> None:
        """Call off the request, if it is under way here."""
        work = self._by_key.get(key)
        if work is not None:
            work.stop()

    def stop_session(self, token: bytes) -> None:
        """Call off all requests of a session."""
        for (owner, _), work in self._by_key.items():
            if owner == token:
                work.stop()

    async def close(self) -> None:
        """Call off everything, and wait for its end."""
        works = tuple(self._all)
        for work in works:
            work.stop()
        await asyncio.gather(*(work.task for work in works), return_exceptions=True)

    def _leave(self, work: _Work) -> None:
        if work.task.done():
            return
        if len(self._left) >= MAX_LEFT:
            work.stop()
        else:
            self._left.add(work)
