"""The client against legacy servers that others wrote: the SDK's mcp 1.30, and server-everything."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import aiohttp
import pytest

from mcp_federator.config import Duration, UpstreamCache
from mcp_federator.model import ANYONE, Era, Hint, Method, Query, Scope
from mcp_federator.upstream.discovery import MIN_LIFE
from tests.instruments import legacy
from tests.instruments.processes import child
from tests.upstream.asking import Asker, asking, items, members, run, settled

KEPT = UpstreamCache(default_ttl=Duration(30), default_scope=Scope.PUBLIC)


@contextmanager
def everything() -> Iterator[str]:
    """server-everything over streamable HTTP, and its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = legacy.package("@modelcontextprotocol/server-everything", "dist", "index.js")
    with child("node", program, "streamableHttp", env={"PORT": str(port)}) as process:
        process.wait_for("listening on port")
        yield f"http://127.0.0.1:{port}/mcp"


Serve = Callable[[], AbstractContextManager[str]]

each_server = pytest.mark.parametrize(
    "serve",
    [
        pytest.param(legacy.http_server, id="mcp-1.30"),
        pytest.param(everything, id="server-everything", marks=legacy.needs_node),
    ],
)


async def whole_list(alpha: Asker) -> list[str]:
    uris: list[str] = []
    cursor: str | None = None
    while True:
        answer = await alpha.list(cursor)
        uris += [item["uri"] for item in items(answer)]
        cursor = answer.next_cursor
        if cursor is None:
            return uris


async def end_session(alpha: Asker, url: str) -> str:
    """Let the server forget our session, behind our back; gives its id."""
    session = await alpha.client._sessions.get(ANYONE, asyncio.get_running_loop().time() + 10)
    async with aiohttp.ClientSession() as http, http.delete(url, headers=session.headers) as response:
        assert response.status == 200
    return str(session.id)


def count(alpha: Asker, method: str, outcome: str) -> int:
    return alpha.metrics._upstream_requests["alpha", method, outcome]


@each_server
def test_everything_is_listed_and_read(serve: Serve) -> None:
    """Each listed resource can be read under its public URI; hints are the configured ones."""

    async def body(url: str) -> None:
        async with asking(url, cache=KEPT) as alpha:
            uris = await whole_list(alpha)
            assert len(uris) >= 7
            for uri in uris:
                answer = await alpha.read(uri.removeprefix("alpha+"))
                assert answer.hint == Hint(30_000, Scope.PUBLIC)
                assert [found["uri"] for found in members(answer)["contents"]] == [uri]
            templates = items(await alpha.client.fetch(Query(Method.TEMPLATES), ANYONE))
            assert all(item["uriTemplate"].startswith("alpha+") for item in templates)
            assert templates
            status = alpha.client.status
            assert (status.era, status.version, status.up) == (Era.LEGACY, "2025-11-25", True)

    with serve() as url:
        run(body(url))


@each_server
def test_H22_an_unknown_resource_is_not_found(serve: Serve) -> None:
    """In the modern code, whatever the server's own is."""

    async def body(url: str) -> None:
        async with asking(url) as alpha:
            wrong = await alpha.errs("nowhere://x")
            assert (wrong.code, wrong.not_found) == (-32602, True)

    with serve() as url:
        run(body(url))


@each_server
def test_H18_a_session_that_the_server_forgot_is_renewed(serve: Serve) -> None:
    """Ten reads at once after the loss: one handshake, no error."""

    async def body(url: str) -> None:
        async with asking(url) as alpha:
            uri = (await whole_list(alpha))[0].removeprefix("alpha+")
            shaken = count(alpha, "other", "ok")
            old = await end_session(alpha, url)
            answers = await asyncio.gather(*(alpha.read(uri) for _ in range(10)))
            assert all(members(answer)["contents"] for answer in answers)
            assert count(alpha, "other", "ok") == shaken + 1
            assert count(alpha, Method.READ, "refused") == 10
            assert await end_session(alpha, url) != old

    with serve() as url:
        run(body(url))


@each_server
def test_a_second_probe_disturbs_no_session(serve: Serve) -> None:
    """A legacy server that is probed again in its service goes on within the same session."""

    async def body(url: str) -> None:
        async with asking(url) as alpha:
            await whole_list(alpha)
            shaken = count(alpha, "other", "ok")
            alpha.clock.now += MIN_LIFE
            await whole_list(alpha)
            await settled(alpha)
            assert await whole_list(alpha)
            assert count(alpha, Method.DISCOVER, "ok") == 2
            assert count(alpha, "other", "ok") == shaken

    with serve() as url:
        run(body(url))


def test_calls_given_up_leave_a_server_well() -> None:
    """Reads cancelled in their flight harm neither the session nor what comes after."""

    async def body(url: str) -> None:
        async with asking(url) as alpha:
            await whole_list(alpha)
            reads: list[asyncio.Task[Any]] = [
                asyncio.create_task(alpha.read("file:///notes/1.md")) for _ in range(20)
            ]
            await asyncio.sleep(0)
            for read in reads[::2]:
                read.cancel()
            await asyncio.wait(reads)
            assert all(members(read.result())["contents"] for read in reads[1::2])
            assert members(await alpha.read("file:///notes/2.md"))["contents"]
            await asyncio.gather(*alpha.transport._telling)

    with legacy.http_server() as url:
        run(body(url))
