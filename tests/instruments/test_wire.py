import asyncio
from collections.abc import Iterable
from typing import Any

import aiohttp
import pytest

from tests.instruments.wire import (
    Received,
    Step,
    Wire,
    contents,
    drop,
    event,
    never,
    raw,
    reply,
    result,
    stream,
    when_reused,
)

READ = "resources/read"


async def ask(session: aiohttp.ClientSession, wire: Wire, method: str = READ, number: int = 7) -> Any:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": {"uri": "x://1"}}
    async with session.post(wire.url, json=message) as response:
        body = await response.read()
        return response.status, body


def test_answers_in_turn_and_writes_down() -> None:
    """A list is used up in turn and its last answer stays; requests stand in `received` as they came."""

    async def body() -> None:
        async with Wire({READ: [reply(b"1"), reply(b"2")]}) as wire, aiohttp.ClientSession() as session:
            assert [await ask(session, wire) for _ in range(3)] == [(200, b"1"), (200, b"2"), (200, b"2")]
            request = wire.calls(READ)[2]
            assert (request.verb, request.target, request.connection, request.nth) == ("POST", "/mcp", 0, 2)
            assert (request.header("content-TYPE"), request.header("nope")) == ("application/json", None)
            assert (request.method, request.params) == (READ, {"uri": "x://1"})

    asyncio.run(body())


def test_speaks_for_a_modern_server() -> None:
    """Discover answers by itself; a method without an answer is unknown; ids come back."""

    async def body() -> None:
        async with Wire({READ: result(contents("x://1"))}) as wire, aiohttp.ClientSession() as session:
            status, said = await ask(session, wire, "server/discover", 3)
            assert (status, b'"id":3,' in said, b'"resources"' in said) == (200, True, True)
            assert (await ask(session, wire, "foo/bar"))[0] == 404
            assert b'"id":9,' in (await ask(session, wire, READ, 9))[1]

    asyncio.run(body())


@pytest.mark.parametrize("cut", [None, 1, 7])
@pytest.mark.parametrize("compress", [False, True])
def test_cut_and_compressed_bodies_arrive_whole(cut: int | None, compress: bool) -> None:
    """However it is sent, a body is the one that was given."""

    async def body() -> None:
        answer = reply(b"text" * 10, cut=cut, compress=compress)
        async with Wire({READ: answer}) as wire, aiohttp.ClientSession() as session:
            assert await ask(session, wire) == (200, b"text" * 10)

    asyncio.run(body())


def test_waits_for_events_and_sees_who_leaves() -> None:
    """A stream stops at an event until it is set; an asker who closes sets `gone`."""

    async def body() -> None:
        gate = asyncio.Event()
        answers = {READ: [stream(b": 1\n", gate, event({})), never()]}
        async with Wire(answers) as wire, aiohttp.ClientSession() as session:
            waiting = asyncio.create_task(ask(session, wire))
            await wire.arrived(READ)
            assert not waiting.done()
            gate.set()
            assert (await waiting)[1].startswith(b": 1\nevent: message\n")
            waiting = asyncio.create_task(ask(session, wire))
            _, request = await wire.arrived(READ, 2)
            assert not request.gone.is_set()
            waiting.cancel()
            await asyncio.wait_for(request.gone.wait(), 5)

    asyncio.run(body())


def test_kills_kept_connections() -> None:
    """`when_reused` tells the first request of a connection from later ones."""

    async def body() -> None:
        answers = {READ: when_reused(drop(), reply(b"ok"))}
        async with Wire(answers) as wire, aiohttp.ClientSession() as session:
            assert await ask(session, wire) == (200, b"ok")
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await ask(session, wire)
            assert wire.connections == 1

    asyncio.run(body())


def test_goes_down_and_up_on_its_port() -> None:
    """After `stop` nobody listens and all connections are broken; after `start` it is there again."""

    async def body() -> None:
        async with Wire({READ: reply(b"ok")}) as wire, aiohttp.ClientSession() as session:
            url = wire.url
            await ask(session, wire)
            await wire.stop()
            with pytest.raises(aiohttp.ClientError):
                await ask(session, wire)
            await wire.start()
            assert wire.url == url
            assert await ask(session, wire) == (200, b"ok")

    asyncio.run(body())


def test_a_script_that_fails_fails_the_test() -> None:
    """An exception in an answer is raised at the end of the block."""

    def broken(_: Received) -> Iterable[Step]:
        raise ZeroDivisionError

    async def body() -> None:
        async with Wire(broken) as wire, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await ask(session, wire)

    with pytest.raises(ZeroDivisionError):
        asyncio.run(body())


def test_sends_any_bytes() -> None:
    """`raw` is not bound to HTTP."""

    async def body() -> None:
        async with Wire(raw(b"SSH-2.0-x\r\n\r\n")) as wire, aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientResponseError):
                await ask(session, wire)

    asyncio.run(body())
