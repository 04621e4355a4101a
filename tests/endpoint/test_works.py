"""Work that outlives who asked for it."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from mcp_federator.endpoint import works
from mcp_federator.endpoint.works import StoppedError, Works
from mcp_federator.model import Answer
from tests.endpoint.door import HIT, HangingSource, run, settle

ONE = (b"s1", 1)


class Work:
    """Ends when told to; says how it ended."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self) -> Answer:
        self.begun.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return HIT


async def left(it: Works, key: works.Key, work: Work) -> None:
    """Begin work and leave it."""
    waiting = asyncio.create_task(it.run(key, work()))
    await work.begun.wait()
    waiting.cancel()
    with suppress(asyncio.CancelledError):
        await waiting


def test_work_brings_its_answer() -> None:
    """And nothing of it is kept."""

    async def body() -> None:
        it, work = Works(), Work()
        work.go.set()
        assert await it.run(ONE, work()) is HIT
        assert len(it) == 0
        assert it._by_key == {}

    run(body())


def test_work_goes_on_when_who_waits_leaves() -> None:
    """The waiter's cancellation is his own; the work ends when it ends."""

    async def body() -> None:
        it, work = Works(), Work()
        await left(it, ONE, work)
        assert len(it) == 1
        work.go.set()
        while len(it):
            await settle()
        assert not work.cancelled.is_set()

    run(body())


def test_what_is_left_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound, what nobody waits for is cancelled."""
    monkeypatch.setattr(works, "MAX_LEFT", 2)

    async def body() -> None:
        it, begun = Works(), [Work() for _ in range(3)]
        for n, work in enumerate(begun):
            await left(it, (b"s1", n), work)
        await begun[2].cancelled.wait()
        assert [work.cancelled.is_set() for work in begun] == [False, False, True]
        await it.close()
        assert [work.cancelled.is_set() for work in begun] == [True] * 3
        assert len(it) == 0

    run(body())


@pytest.mark.parametrize(
    ("key", "stopped"),
    [((b"s1", 1), True), ((b"s2", 1), False), ((b"s1", "1"), False), ((b"s1", None), False)],
    ids=["same", "another session", "another type", "malformed"],
)
def test_H23_a_stop_is_for_one_request_of_one_session(key: works.Key, stopped: bool) -> None:
    """Id and session together, the id with its type."""

    async def body() -> None:
        it, work = Works(), Work()
        waiting = asyncio.create_task(it.run(ONE, work()))
        await work.begun.wait()
        it.stop(key)
        if stopped:
            with pytest.raises(StoppedError):
                await waiting
            assert work.cancelled.is_set()
        else:
            work.go.set()
            assert await waiting is HIT

    run(body())


def test_the_end_of_a_session_stops_its_work_alone() -> None:
    """All its requests, and nobody else's."""

    async def body() -> None:
        it, mine, other = Works(), [Work(), Work()], Work()
        waiting = [asyncio.create_task(it.run((b"s1", n), work())) for n, work in enumerate(mine)]
        others = asyncio.create_task(it.run((b"s2", 1), other()))
        await asyncio.gather(*(work.begun.wait() for work in [*mine, other]))
        it.stop_session(b"s1")
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(end) for end in ends] == [StoppedError, StoppedError]
        other.go.set()
        assert await others is HIT

    run(body())


def test_a_failure_that_nobody_hears_is_no_complaint() -> None:
    """Work that fails after it was left is over, without a word."""

    async def body() -> None:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        it, source = Works(), HangingSource()

        async def fail() -> Answer:
            source.asked.set()
            await source.cancelled.wait()
            raise ValueError

        waiting = asyncio.create_task(it.run(ONE, fail()))
        await source.asked.wait()
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        source.cancelled.set()
        while len(it):
            await settle()
        assert complaints == []

    run(body())


def test_a_second_request_with_the_same_id_is_answered_too() -> None:
    """A client that counts wrongly gets both answers; a stop is for the later one."""

    async def body() -> None:
        it, first, second = Works(), Work(), Work()
        waiting = [asyncio.create_task(it.run(ONE, work())) for work in (first, second)]
        await asyncio.gather(first.begun.wait(), second.begun.wait())
        first.go.set()
        assert await waiting[0] is HIT
        it.stop(ONE)
        with pytest.raises(StoppedError):
            await waiting[1]

    run(body())
