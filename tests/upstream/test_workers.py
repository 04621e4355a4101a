import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mcp_federator.upstream.limits import FullError
from mcp_federator.upstream.workers import RaisedError, Workers
from tests.upstream.asking import run


def soon(seconds: float = 10.0) -> float:
    return asyncio.get_running_loop().time() + seconds


class Interrupted(BaseException):
    """Neither an Exception nor one of Python's own."""


def raising(problem: BaseException) -> Callable[[], Any]:
    def function() -> Any:
        raise problem

    return function


async def raising_async(problem: BaseException) -> None:
    raise problem


PROBLEMS = [
    ValueError("x"),
    SystemExit(3),
    KeyboardInterrupt(),
    StopIteration(),
    GeneratorExit(),
    asyncio.CancelledError(),
    TimeoutError(),
    Interrupted(),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda it: type(it).__name__)
def test_whatever_a_function_raises_is_an_outcome(problem: BaseException) -> None:
    """The thread goes on, and so does the process."""

    async def body() -> None:
        workers = Workers("w", 1)
        with pytest.raises(RaisedError) as raised:
            await workers.call(raising(problem), soon())
        assert raised.value.problem is problem
        assert await workers.call(lambda: 1, soon()) == 1
        await workers.close()

    run(body())


@pytest.mark.parametrize("problem", PROBLEMS[:3] + PROBLEMS[5:], ids=lambda it: type(it).__name__)
def test_whatever_a_coroutine_raises_is_an_outcome(problem: BaseException) -> None:
    """SystemExit in a task would end the loop; its own CancelledError would look like ours."""

    async def body() -> None:
        workers = Workers("w", 1)
        with pytest.raises(RaisedError) as raised:
            await workers.wait(raising_async(problem), soon())
        assert type(raised.value.problem) is type(problem)
        await workers.close()

    run(body())


def test_what_a_function_gives_is_awaited_where_it_can_be() -> None:
    """A decorated async method looks like a sync one."""

    async def inner() -> int:
        return 7

    def function() -> Awaitable[int]:
        return inner()

    async def body() -> None:
        workers = Workers("w")
        assert await workers.call(function, soon()) == 7
        await workers.close()

    run(body())


def test_calls_run_beside_each_other_up_to_the_limit() -> None:
    """Three calls that wait for each other end with three threads; a fourth waits its turn."""

    async def body() -> None:
        workers = Workers("w", 3)
        barrier = threading.Barrier(3)
        results = await asyncio.gather(*(workers.call(barrier.wait, soon()) for _ in range(6)))
        assert sorted(results) == [0, 0, 1, 1, 2, 2]
        assert workers._threads == 3
        await workers.close()

    run(body())


def test_a_call_that_hangs_holds_one_thread_until_it_ends() -> None:
    """Its asker leaves in time, the others go on; when all threads hang, nothing is begun until one ends."""

    async def body() -> None:
        workers = Workers("w", 2)
        gate = threading.Event()
        with pytest.raises(TimeoutError):
            await workers.call(gate.wait, soon(0.01))
        assert await workers.call(lambda: 1, soon()) == 1
        with pytest.raises(TimeoutError):
            await workers.call(gate.wait, soon(0.01))
        with pytest.raises(FullError):
            await workers.call(lambda: 1, soon())
        gate.set()
        while workers._left:  # noqa: ASYNC110 - turns of the loop, not a wait
            await asyncio.sleep(0)
        assert await workers.call(lambda: 1, soon()) == 1
        await workers.close()

    run(body())


def test_a_call_nobody_waits_for_never_begins() -> None:
    """Who leaves while his call waits for a thread leaves nothing behind."""

    async def body() -> None:
        workers = Workers("w", 1)
        gate, ran = threading.Event(), []
        first = asyncio.ensure_future(workers.call(gate.wait, soon()))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await workers.call(lambda: ran.append(1), soon(0.01))
        gate.set()
        assert await first
        assert await workers.call(lambda: ran, soon()) == []
        await workers.close()

    run(body())


def test_a_coroutine_that_does_not_take_its_cancellation_is_left_behind() -> None:
    """Its asker leaves in time; as many as the limit, and nothing more is begun."""

    async def stubborn(gate: asyncio.Event) -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    async def body() -> None:
        workers = Workers("w", 1)
        gate = asyncio.Event()
        with pytest.raises(TimeoutError):
            await workers.wait(stubborn(gate), soon(0.01))
        with pytest.raises(FullError):
            await workers.wait(asyncio.sleep(0), soon())
        gate.set()
        await workers.close()
        assert not workers._given_up

    run(body())


def test_the_threads_end_with_close() -> None:
    """All that are idle do."""

    async def body() -> None:
        workers = Workers("only-here", 3)
        await asyncio.gather(*(workers.call(lambda: 1, soon()) for _ in range(3)))
        threads = [it for it in threading.enumerate() if it.name == "only-here"]
        await workers.close()
        for thread in threads:
            await asyncio.to_thread(thread.join, 10)
        assert threads
        assert not any(it.is_alive() for it in threads)

    run(body())
