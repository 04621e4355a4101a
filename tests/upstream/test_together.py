import asyncio
import logging
from math import inf

import pytest

from mcp_federator.errors import FederatorError
from mcp_federator.upstream.together import Together
from tests.upstream.asking import run


class Work:
    """Work that ends when the gate is open."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.begun = 0
        self.fails = fails
        self.gate = asyncio.Event()

    async def __call__(self) -> int:
        self.begun += 1
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        return self.begun


def test_work_is_done_once_for_each_key() -> None:
    """Who wants the same at once gets the same; what has ended begins anew."""

    async def body() -> None:
        work, together = Work(), Together[int]("work")
        work.gate.set()
        assert together.start("a", work) is together.start("a", work)
        assert together.start("a", work) is not together.start("b", work)
        assert await asyncio.gather(*together.tasks.values()) == [1, 2]
        assert await together.result(together.start("a", work), inf) == 3
        assert not together.tasks

    run(body())


def test_waiting_has_an_end_and_the_work_goes_on() -> None:
    """At the deadline the asker is told."""

    async def body() -> None:
        work, together = Work(), Together[int]("work")
        task = together.start("a", work)
        with pytest.raises(TimeoutError):
            await together.result(task, asyncio.get_running_loop().time() + 0.01)
        work.gate.set()
        assert await together.result(task, inf) == 1

    run(body())


def test_close_ends_the_work_and_tells_who_waits() -> None:
    """He is not cancelled himself."""

    async def body() -> None:
        together = Together[int]("work")
        waiting = asyncio.create_task(together.result(together.start("a", Work()), inf))
        await asyncio.sleep(0)
        await together.close()
        with pytest.raises(TimeoutError):
            await waiting

    run(body())


@pytest.mark.parametrize(("problem", "told"), [(ValueError("bug"), 1), (FederatorError("down"), 0)])
def test_only_our_own_mistakes_are_logged(
    problem: Exception, told: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nobody waits any more, nobody else would tell of them."""

    async def body() -> None:
        work, together = Work(problem), Together[int]("handshake")
        work.gate.set()
        await asyncio.wait([together.start("a", work)])
        await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR):
        run(body())
    assert [record.getMessage() for record in caplog.records] == ["a handshake failed"] * told
