"""One load for all who wait for it.

A flight is a task; readers only wait for it.  Whoever goes away, leader or follower, leaves the others alone;
when the last has gone, the task is cancelled.  A flight leaves the table when it lands, however it lands, so
nothing of a failure is remembered.

What may not come in: who may take what a flight brings.  That is `readthrough`'s rule.

Hazards:
- The loop keeps only weak references to tasks: one that is cancelled and not yet done is held here.
- A waiter's own cancellation and the task's must not be confused: the first is the waiter's end, the second
  a failure of the load like any other.
- When all have gone nobody looks at the task's exception, and asyncio would complain of that.
"""

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Grounded(Exception):  # noqa: N818 - an event, not an error of the one who is told
    """The load was cancelled from elsewhere while somebody still waited for it."""


class Flight(Generic[T]):
    """A running load.  `partition` is its leader's."""

    __slots__ = ("partition", "task", "waiters")

    def __init__(self, task: asyncio.Task[T], partition: bytes) -> None:
        self.task = task
        self.partition = partition
        self.waiters = 0


class Flights(Generic[T]):
    """The running loads, at most one per lane: a lane is all that must be equal for one load to serve two."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, Flight[T]] = {}
        self._tasks: set[asyncio.Task[T]] = set()

    def __len__(self) -> int:
        """Tasks that are not done, cancelled ones included."""
        return len(self._tasks)

    def running(self, lane: Hashable) -> Flight[T] | None:
        """The flight to join, if there is one; not one that has landed, nor one that all have left."""
        flight = self._lanes.get(lane)
        return None if flight is None or flight.task.done() or not flight.waiters else flight

    def start(self, lane: Hashable, partition: bytes, load: Coroutine[Any, Any, T]) -> Flight[T]:
        """Take off.  The caller's next step is to `wait`: a flight nobody waits for counts as left."""
        flight = Flight(asyncio.create_task(load, name="mcp-federator flight"), partition)
        self._lanes[lane] = flight
        self._tasks.add(flight.task)

        def land(task: asyncio.Task[T]) -> None:
            self._tasks.discard(task)
            if self._lanes.get(lane) is flight:
                del self._lanes[lane]
            if not task.cancelled():
                task.exception()

        flight.task.add_done_callback(land)
        return flight

    async def wait(self, flight: Flight[T]) -> T:
        """What the flight brings, or its exception.

        Raises:
            Grounded: the task was cancelled although this caller still waits.
        """
        task = flight.task
        landed = task.get_loop().create_future()

        def wake(_: asyncio.Task[T]) -> None:
            if not landed.done():
                landed.set_result(None)

        task.add_done_callback(wake)
        flight.waiters += 1
        try:
            await landed
        finally:
            task.remove_done_callback(wake)
            flight.waiters -= 1
            if not flight.waiters and not flight.task.done():
                flight.task.cancel()
        if flight.task.cancelled():
            raise Grounded
        return flight.task.result()

    def close(self) -> None:
        """Cancel all; whoever still waits is told `Grounded`."""
        for task in self._tasks:
            task.cancel()
