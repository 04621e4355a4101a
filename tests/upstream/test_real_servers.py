"""The client against servers that others wrote: mcp's two and fastmcp's."""

import asyncio
import json
from typing import Any

import pytest

from mcp_federator.config import Breaker, Duration
from mcp_federator.errors import Reason
from mcp_federator.model import ANYONE, Era, Hint, Method, Query, Scope
from tests.instruments.servers import KINDS, PRIVATE, Make, Shelf, lowlevel, running, shelf_of
from tests.upstream.asking import Asker, asking, items, members, run

each_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
PAGED = {"mcp-lowlevel": lowlevel, "fastmcp": KINDS["fastmcp"]}


async def whole_list(alpha: Asker) -> list[str]:
    uris: list[str] = []
    cursor: str | None = None
    while True:
        answer = await alpha.list(cursor)
        uris += [item["uri"] for item in items(answer)]
        cursor = answer.next_cursor
        if cursor is None:
            return uris


@each_kind
def test_everything_is_listed_and_read(make: Make) -> None:
    """All resources come with public URIs, and each can be read; texts and blobs are as they were."""
    shelf = Shelf({"file:///a.txt": "text of a", "mem://b/c": b"\x00\xff"}, templates=["x://{name}"])

    async def body(url: str) -> None:
        async with asking(url) as alpha:
            assert await whole_list(alpha) == ["alpha+file:///a.txt", "alpha+mem://b/c"]
            (text,) = members(await alpha.read("file:///a.txt"))["contents"]
            assert (text["uri"], text["text"]) == ("alpha+file:///a.txt", "text of a")
            (blob,) = members(await alpha.read("mem://b/c"))["contents"]
            assert (blob["blob"], "text" in blob) == ("AP8=", False)
            templates = items(await alpha.client.fetch(Query(Method.TEMPLATES), ANYONE))
            assert [item["uriTemplate"] for item in templates] == ["alpha+x://{name}"]
            (made,) = members(await alpha.read("x://y"))["contents"]
            assert made["uri"] == "alpha+x://y"
            status = alpha.client.status
            assert (status.era, status.resources, status.up) == (Era.MODERN, True, True)
            assert status.server == "shelf 1.0"

    with running(shelf, make) as server:
        run(body(server.url))
        assert server.calls.count("server/discover") == 1
        assert "initialize" not in [call.method for call in server.calls]


@pytest.mark.parametrize("make", PAGED.values(), ids=PAGED)
def test_pages_are_walked(make: Make) -> None:
    """Their cursors lead through the whole list."""

    async def body(url: str) -> None:
        async with asking(url) as alpha:
            assert await whole_list(alpha) == [f"alpha+file:///{n}" for n in range(25)]

    with running(shelf_of(25, page_size=10), make) as server:
        run(body(server.url))
        assert server.calls.count("resources/list") == 3


@each_kind
def test_hints_are_theirs(make: Make) -> None:
    """What the server says of life and scope is what is told."""

    async def body(url: str) -> None:
        async with asking(url) as alpha:
            assert (await alpha.read("file:///0")).hint == Hint(60_000, Scope.PRIVATE)

    with running(shelf_of(1, read_hint=PRIVATE), make) as server:
        run(body(server.url))


@each_kind
def test_what_is_not_there_is_not_found(make: Make) -> None:
    """Every server's way to say so is the same to us, and its bad cursor is an error."""

    async def body(url: str) -> None:
        async with asking(url) as alpha:
            told = await alpha.errs("file:///nope")
            assert (told.code, told.not_found) == (-32602, True)
            if told.data is not None:
                assert json.loads(told.data)["uri"] == "alpha+file:///nope"

    with running(shelf_of(3), make) as server:
        run(body(server.url))


def test_H01_a_normalised_uri_reaches_a_real_server() -> None:
    """The server gets the string it listed."""
    shelf = Shelf({"file:///a b.txt": "found", "file:///c": "c"})

    async def body(url: str) -> None:
        async with asking(url) as alpha:
            (found,) = members(await alpha.read("file:///a%20b.txt"))["contents"]
            assert (found["uri"], found["text"]) == ("alpha+file:///a b.txt", "found")

    with running(shelf) as server:
        run(body(server.url))
        assert [call.params["uri"] for call in server.calls.of("resources/read")] == [
            "file:///a%20b.txt",
            "file:///a b.txt",
        ]


@each_kind
def test_comes_back_after_a_restart(make: Make) -> None:
    """While it is down that is told; afterwards it is asked again, over new connections."""

    async def body(server: Any) -> None:
        async with asking(server.url, breaker=Breaker(failures=2, open_for=Duration(5))) as alpha:
            await asyncio.gather(*(alpha.read("file:///0") for _ in range(4)))
            await asyncio.to_thread(server.stop)
            for _ in range(3):
                assert (await alpha.fails("file:///0")).reason is Reason.UNREACHABLE
            assert alpha.client.status.breaker == "open"
            server.start()
            alpha.clock.now += 6
            assert members(await alpha.read("file:///0"))["contents"]

    with running(shelf_of(1), make) as server:
        run(body(server))


def test_a_server_that_takes_too_long() -> None:
    """A request that hangs in a real server ends at the deadline, and the next is answered."""

    async def body(server: Any) -> None:
        async with asking(server.url, timeout=Duration(0.3)) as alpha:
            await alpha.client.probe()
            with server.held():
                assert (await alpha.fails("file:///0")).reason is Reason.TIMEOUT
            assert members(await alpha.read("file:///0"))["contents"]

    with running(shelf_of(1)) as server:
        run(body(server))
