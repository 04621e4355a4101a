import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from mcp_federator.client import Change, Changes, Reader
from mcp_federator.model import Change as Kind
from mcp_federator.model import Offers, Wanted
from tests.hub.speaker import Speaker, hub_of, turn
from tests.instruments.virtual_time import run


def follow(body: Coroutine[Any, Any, None]) -> None:
    async def check() -> None:
        await body
        await asyncio.sleep(2)

    run(check())


async def taken(changes: Changes, count: int) -> list[str | None]:
    return [(await anext(changes)).uri for _ in range(count)]


def test_changes_are_told_as_they_come() -> None:
    """Of resources, of parts of them, and of lists, in order; each kept once while nobody goes on."""

    async def body() -> None:
        server = Speaker(prefix="")
        hub = hub_of(server)
        async with Reader(None, hub).listen("x://1", lists=True) as changes:
            assert (changes.uris, changes.lists) == (frozenset({"x://1"}), True)
            await turn()
            assert server.wants == {b"": Wanted(lists=True, uris=frozenset({"x://1"}))}
            waiting = asyncio.create_task(anext(changes))
            await turn()
            server.say(hub, Kind.RESOURCE, "x://1/a")
            assert await waiting == Change("x://1/a")
            for _ in range(3):
                server.say(hub)
            server.say(hub, Kind.RESOURCE, "x://1")
            assert await taken(changes, 2) == [None, "x://1"]
        await turn()
        assert server.wants == {}

    follow(body())


def test_what_is_not_told_is_left_out() -> None:
    """The rest is listened to."""

    async def body() -> None:
        hub = hub_of(Speaker(prefix="", offers=Offers(lists=True)))
        async with Reader(None, hub).listen("x://1", lists=True) as changes:
            assert (changes.uris, changes.lists) == (frozenset(), True)

    follow(body())


@pytest.mark.parametrize("how", ["closed", "left"])
def test_it_ends(how: str) -> None:
    """With its block, or with whatever it listens to; what waited is told first."""

    async def body() -> None:
        server = Speaker(prefix="")
        hub = hub_of(server)
        changes = Reader(None, hub).listen("x://1")
        async with changes:
            server.say(hub, Kind.RESOURCE, "x://1")
            assert await taken(changes, 1) == ["x://1"]
            if how == "closed":
                waiting = asyncio.create_task(taken(changes, 1))
                await turn()
                await hub.end()
                with pytest.raises(StopAsyncIteration):
                    await waiting
        assert [change async for change in changes] == []
        assert len(hub) == 0

    follow(body())


def test_without_a_connection_there_is_nothing_to_listen_to() -> None:
    """As with everything else that a reader does."""
    with pytest.raises(RuntimeError, match="async with"):
        Reader().listen("x://1")
