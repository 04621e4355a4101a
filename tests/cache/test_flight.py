import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mcp_federator.cache.flight import Flights, Grounded
from tests.cache.stage import run, settle

LANE = "lane"


class Fault(Exception):  # noqa: N818 - not an error of ours
    """Something no flight expects."""


async def held(gate: asyncio.Event, result: str = "answer") -> str:
    await gate.wait()
    return result


def watched(body: Callable[[], Awaitable[None]]) -> list[dict[str, Any]]:
    """Run `body`, collect garbage, and return what asyncio complained of."""
    complaints: list[dict[str, Any]] = []

    async def under_watch() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: complaints.append(context))
        await body()
        await settle()
        gc.collect()

    run(under_watch())
    return complaints


def test_H30_one_load_answers_all_who_wait() -> None:
    """The leader and 99 followers get the same object from one task, and nothing is left."""

    async def body() -> None:
        flights: Flights[str] = Flights()
        gate = asyncio.Event()
        flight = flights.start(LANE, b"", held(gate))
        waiting = [asyncio.create_task(flights.wait(flight)) for _ in range(100)]
        await settle()
        assert flights.running(LANE) is flight
        assert (len(flights), flight.waiters) == (1, 100)
        gate.set()
        assert await asyncio.gather(*waiting) == ["answer"] * 100
        await settle()
        assert flights.running(LANE) is None
        assert len(flights) == 0

    run(body())


@pytest.mark.parametrize("leaver", [0, 1, 2], ids=["leader", "follower", "last"])
def test_H30_one_who_leaves_takes_nothing_from_the_others(leaver: int) -> None:
    """Invariant 8: whoever is cancelled, the load goes on for the rest."""

    async def body() -> None:
        flights: Flights[str] = Flights()
        gate = asyncio.Event()
        flight = flights.start(LANE, b"", held(gate))
        waiting = [asyncio.create_task(flights.wait(flight)) for _ in range(3)]
        await settle()
        waiting[leaver].cancel()
        await settle()
        assert waiting[leaver].cancelled()
        assert flights.running(LANE) is flight
        gate.set()
        rest = [task for task in waiting if task is not waiting[leaver]]
        assert await asyncio.gather(*rest) == ["answer"] * 2

    run(body())


def test_H30_when_all_have_left_the_load_is_cancelled() -> None:
    """The task ends, a newcomer starts a flight of his own at once, and the lane stays his."""

    async def body() -> None:
        flights: Flights[str] = Flights()
        cancelled = asyncio.Event()
        slow_end = asyncio.Event()

        async def load() -> str:
            try:
                return await held(asyncio.Event())
            except asyncio.CancelledError:
                cancelled.set()
                await slow_end.wait()
                raise

        flight = flights.start(LANE, b"", load())
        waiting = [asyncio.create_task(flights.wait(flight)) for _ in range(3)]
        await settle()
        for task in waiting:
            task.cancel()
        await settle()
        try:
            assert cancelled.is_set()
            assert flights.running(LANE) is None
            gate = asyncio.Event()
            second = flights.start(LANE, b"", held(gate, "second"))
            newcomer = asyncio.create_task(flights.wait(second))
        finally:
            slow_end.set()  # or the loop, which cancels what is left, waits for it without end
        await settle()
        assert flight.task.cancelled()
        assert flights.running(LANE) is second
        gate.set()
        assert await newcomer == "second"
        await settle()
        assert len(flights) == 0

    run(body())


def test_a_leader_cancelled_before_the_first_step_leaves_no_trace() -> None:
    """No coroutine that was never awaited, no task, no flight."""

    async def body() -> None:
        flights: Flights[str] = Flights()

        async def ask() -> str:
            return await flights.wait(flights.start(LANE, b"", held(asyncio.Event())))

        leader = asyncio.create_task(ask())
        await asyncio.sleep(0)
        leader.cancel()
        await settle()
        assert leader.cancelled()
        assert flights.running(LANE) is None
        assert len(flights) == 0

    assert watched(body) == []


def test_a_failure_is_told_to_all_and_remembered_by_none() -> None:
    """Each waiter gets the exception; who asks next finds no flight."""

    async def body() -> None:
        flights: Flights[str] = Flights()
        gate = asyncio.Event()

        async def load() -> str:
            await gate.wait()
            raise Fault

        flight = flights.start(LANE, b"", load())
        waiting = [asyncio.create_task(flights.wait(flight)) for _ in range(3)]
        await settle()
        gate.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [Fault] * 3
        assert flights.running(LANE) is None

    assert watched(body) == []


def test_a_flight_that_has_landed_is_not_joined() -> None:
    """Not even in the moment between its end and the loop's telling of it."""

    async def body() -> None:
        flights: Flights[str] = Flights()
        seen: list[object] = []

        async def load() -> str:
            asyncio.get_running_loop().call_soon(lambda: seen.append(flights.running(LANE)))
            return "answer"

        await flights.wait(flights.start(LANE, b"", load()))
        assert seen == [None]

    run(body())


def test_H30_a_failure_nobody_waits_for_is_no_complaint() -> None:
    """All have gone, and the load fails on its way out: asyncio has nothing to say."""

    async def body() -> None:
        flights: Flights[str] = Flights()

        async def load() -> str:
            try:
                await asyncio.Event().wait()
            finally:
                raise Fault

        leader = asyncio.create_task(flights.wait(flights.start(LANE, b"", load())))
        await settle()
        leader.cancel()
        await settle()
        assert leader.cancelled()
        assert len(flights) == 0

    assert watched(body) == []


def test_closing_is_a_failure_to_those_who_wait_and_no_cancellation() -> None:
    """Every task ends; a waiter whom nobody cancelled is told `Grounded`."""

    async def body() -> None:
        flights: Flights[str] = Flights()
        waiting = [
            asyncio.create_task(flights.wait(flights.start(lane, b"", held(asyncio.Event()))))
            for lane in ("one", "two")
        ]
        await settle()
        flights.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [Grounded] * 2
        await settle()
        assert len(flights) == 0

    assert watched(body) == []


def test_a_load_that_cancels_itself_cancels_nobody_else() -> None:
    """A stray CancelledError inside the load is `Grounded` to its waiters."""

    async def body() -> None:
        flights: Flights[str] = Flights()

        async def load() -> str:
            raise asyncio.CancelledError

        with pytest.raises(Grounded):
            await flights.wait(flights.start(LANE, b"", load()))

    assert watched(body) == []


def test_lanes_fly_apart() -> None:
    """A flight is joined by its lane and by nothing else."""

    async def body() -> None:
        flights: Flights[str] = Flights()
        gate = asyncio.Event()
        gate.set()
        one = flights.start("one", b"", held(gate, "1"))
        first = asyncio.create_task(flights.wait(one))
        await asyncio.sleep(0)
        assert flights.running("two") is None
        two = flights.start("two", b"", held(gate, "2"))
        assert [await first, await flights.wait(two)] == ["1", "2"]

    run(body())
