"""Ends of waits: what `asyncio.timeout_at` says of them."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.deadline import until
from tests.instruments import virtual_time

now: Callable[[], float] = lambda: asyncio.get_running_loop().time()  # noqa: E731 - a word, for short lines


async def outcome(work: Any) -> tuple[str, float]:
    """How something ended, and when."""
    try:
        await work
    except TimeoutError:
        return "late", now()
    except asyncio.CancelledError:
        return "cancelled", now()
    return "done", now()


async def wait(seconds: float, *ends: float) -> None:
    """Wait within blocks that end at these times, the first one outermost."""
    if not ends:
        await asyncio.sleep(seconds)
        return
    with until(ends[0]):
        await wait(seconds, *ends[1:])


@pytest.mark.parametrize(
    ("seconds", "ends", "expected"),
    [
        (1, [2], ("done", 1)),
        (3, [2], ("late", 2)),
        (3, [-1], ("late", 0)),
        (3, [0], ("late", 0)),
        (3, [1, 2], ("late", 1)),
        (3, [2, 1], ("late", 1)),
        (3, [2, 2], ("late", 2)),
        (3, [float("inf")], ("done", 3)),
    ],
)
def test_a_block_ends_at_its_time(seconds: float, ends: list[float], expected: tuple[str, float]) -> None:
    """A wait within blocks ends when it is over or when the first of the blocks ends."""
    assert virtual_time.run(outcome(wait(seconds, *ends))) == expected


def test_the_block_that_is_late_says_so() -> None:
    """Each block ends what is in it, leaves what is around it alone, and nothing is left of it."""
    said = []

    async def body() -> None:
        with until(5):
            try:
                with until(1):
                    await asyncio.sleep(9)
            except TimeoutError:
                said.append(f"inner at {now():g}")
            try:
                await asyncio.sleep(9)
            except asyncio.CancelledError:
                said.append(f"outer at {now():g}")
                raise

    async def outside() -> None:
        said.append(str(await outcome(body())))
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        await asyncio.sleep(9)

    virtual_time.run(outside())
    assert said == ["inner at 1", "outer at 5", "('late', 5.0)"]


@pytest.mark.parametrize("at", [1, 2])
def test_a_cancellation_by_others_stays_one(at: float) -> None:
    """Also if the block ends at the same time."""

    async def body() -> str:
        task = asyncio.create_task(wait(9, 2))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_at(at, task.cancel)
        return (await outcome(task))[0]

    assert virtual_time.run(body()) == "cancelled"


def test_what_is_not_cancelled_by_its_end_is_done() -> None:
    """Who heeds no cancellation gets no time-out, and is no cancelled task afterwards."""

    async def body() -> int:
        with until(1), suppress(asyncio.CancelledError):
            await asyncio.sleep(9)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert virtual_time.run(body()) == 0


def test_another_error_at_the_end_is_that_error() -> None:
    """An error on the way out is not hidden by the end of the time."""

    async def body() -> None:
        with until(1):
            try:
                await asyncio.sleep(9)
            finally:
                raise KeyError("mine")

    with pytest.raises(KeyError):
        virtual_time.run(body())


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=9))
def test_many_blocks_end_each_at_its_time(waits: list[tuple[int, int, int]]) -> None:
    """However they begin and end beside each other."""

    async def one(begin: int, seconds: int, limit: int) -> tuple[str, float]:
        await asyncio.sleep(begin)
        return await outcome(wait(seconds + 0.5, now() + limit))

    async def body() -> list[tuple[str, float]]:
        return await asyncio.gather(*(one(*each) for each in waits))

    expected = [
        ("done", begin + seconds + 0.5) if seconds + 0.5 < limit else ("late", begin + limit)
        for begin, seconds, limit in waits
    ]
    assert virtual_time.run(body()) == expected


def test_under_the_loop_that_serves() -> None:
    """Timers of uvloop are as coarse as a millisecond."""

    async def body() -> list[str]:
        begun = now()
        waits = [outcome(wait(9, begun + number / 1000)) for number in range(20)]
        return [how for how, _ in await asyncio.gather(*waits)]

    assert uvloop.run(body()) == ["late"] * 20


def test_a_loop_is_not_kept() -> None:
    """What is known of a loop goes with it."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(wait(0, loop.time() + 60))
    loop.close()
    kept = weakref.ref(loop)
    del loop
    gc.collect()
    assert kept() is None


def test_only_a_task_has_a_deadline() -> None:
    """Elsewhere there would be nothing to cancel."""

    async def body() -> None:
        failed: list[RuntimeError] = []

        def enter() -> None:
            try:
                with until(1):
                    pass
            except RuntimeError as error:
                failed.append(error)

        asyncio.get_running_loop().call_soon(enter)
        await asyncio.sleep(0)
        assert failed

    virtual_time.run(body())
