"""H22, H35 and H38 for clients of the 2025 revisions, at the whole product; and their real software."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types.methods import validate_server_result

from mcp_federator.protocol.vocabulary import LEGACY
from tests.instruments import clients, legacy
from tests.instruments.clients import Connect
from tests.instruments.fronted import (
    LIST,
    ONE,
    PARAMS,
    READ,
    SHELF,
    TEMPLATES,
    fronted,
    run,
    shown,
    text,
    waiting,
)
from tests.instruments.house import House, Reply, house
from tests.instruments.servers import PUBLIC, Shelf, lowlevel, running, shelf_of
from tests.instruments.wire import Answer, Received, Wire, error, never, result

SHELF_ANSWERS = {method: result(members) for method, members in SHELF.items()}
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {"capabilities": {}, "clientInfo": {"name": "test", "version": "0"}},
}


class Session:
    """A legacy client, as plain as can be."""

    def __init__(self, it: House, headers: Mapping[str, str]) -> None:
        self.it = it
        self.headers = {**HEADERS, **headers}

    async def send(self, body: Any) -> Reply:
        return await self.it.send(json.dumps(body).encode(), self.headers)

    async def ask(self, method: str, params: Mapping[str, Any] | None = None, *, number: int = 1) -> Reply:
        return await self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})

    async def read(self, uri: str, *, number: int = 1) -> Reply:
        return await self.ask(READ, {"uri": uri}, number=number)

    async def cancel(self, number: int) -> Reply:
        return await self.send(
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
        )

    async def delete(self) -> Reply:
        return await self.it.send(b"", self.headers, "DELETE")


async def began(it: House, version: str = LEGACY[0]) -> Session:
    params = {**INITIALIZE["params"], "protocolVersion": version}  # type: ignore[dict-item] # it is a dict
    reply = await it.send(json.dumps({**INITIALIZE, "params": params}).encode(), HEADERS)
    assert reply.result["protocolVersion"] == version
    named = {} if version == "2025-03-26" else {"MCP-Protocol-Version": version}
    return Session(it, {"Mcp-Session-Id": reply.headers["Mcp-Session-Id"], **named})


@asynccontextmanager
async def met(
    answers: Mapping[str, Answer], version: str = LEGACY[0]
) -> AsyncIterator[tuple[House, Wire, Session]]:
    """A federator over `alpha`, and a session with it."""
    async with fronted(answers) as (it, wire):
        yield it, wire, await began(it, version)


async def reached(wire: Wire, method: str = READ, count: int = 1) -> list[Received]:
    """The calls of a method, once there are so many."""
    async with asyncio.timeout(10):
        while len(wire.calls(method)) < count:  # noqa: ASYNC110 - turns of the loop, not a wait
            await asyncio.sleep(0)
    return wire.calls(method)


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize("first", ["modern", "legacy"])
@pytest.mark.parametrize("method", [READ, LIST, TEMPLATES])
def test_one_copy_serves_both_eras(method: str, first: str, version: str) -> None:
    """Whoever asked first: the other's answer is the same, and the upstream was asked once."""

    async def body() -> None:
        async with met(SHELF_ANSWERS, version) as (it, wire, session):
            ask = {"modern": it.post, "legacy": session.ask}
            one = await ask.pop(first)(method, PARAMS[method])
            (other,) = [await ask[era](method, PARAMS[method]) for era in ask]
            assert shown(one) == shown(other) != []
            assert "hit" in other.cache_status
            assert len(wire.calls(method)) == 1
            reply = one if first == "legacy" else other
            assert reply.result.keys().isdisjoint({"resultType", "ttlMs", "cacheScope"})
            validate_server_result(method, version, reply.result)

    run(body())


def missing(request: Received) -> Any:
    return error(-32602, "No such resource.", data={"uri": request.params["uri"]})(request)


@pytest.mark.parametrize(
    ("answer", "modern", "old", "data"),
    [
        pytest.param(missing, -32602, -32002, {"uri": "alpha+x://1"}, id="modern not found"),
        pytest.param(
            error(-32002, "No.", data={"uri": "x://1"}), -32602, -32002, {"uri": "alpha+x://1"}, id="legacy"
        ),
        pytest.param(error(7001, "No.", data={"k": 1}), 7001, 7001, {"k": 1}, id="own code"),
        pytest.param(
            error(-32050, "No.", data={"k": 1}),
            -32603,
            -32603,
            {"upstream": "alpha", "reason": "refused", "code": -32050},
            id="reserved",
        ),
    ],
)
def test_H22_each_era_has_its_codes(answer: Answer, modern: int, old: int, data: Any) -> None:
    """Not found in the asker's code, with the URI as asked; no error is remembered."""

    async def body() -> None:
        there = asyncio.Event()

        def choose(request: Received) -> Any:
            return (result(ONE) if there.is_set() else answer)(request)

        async with met({READ: choose}) as (it, _, session):
            reply = await it.read("alpha+x://1")
            assert (reply.error["code"], reply.error.get("data")) == (modern, data)
            reply = await session.read("alpha+x://1")
            assert reply.status == 200
            assert (reply.error["code"], reply.error.get("data")) == (old, data)
            there.set()
            assert text(await session.read("alpha+x://1")) == "text"

    run(body())


def test_H22_an_unknown_prefix_is_not_found() -> None:
    """-32002 with the URI as asked; a cursor that is none stays -32602."""

    async def body() -> None:
        async with met(SHELF_ANSWERS) as (_, wire, session):
            reply = await session.read("nobody+x://1")
            assert (reply.error["code"], reply.error["data"]) == (-32002, {"uri": "nobody+x://1"})
            reply = await session.ask(LIST, {"cursor": "bogus"})
            assert (reply.status, reply.error["code"]) == (200, -32602)
            assert wire.calls(READ) == wire.calls(LIST) == []

    run(body())


def test_an_upstream_that_wants_input_cannot_ask_a_legacy_client() -> None:
    """-32603 with `input_required`, and nothing of it is kept."""
    interim = result({"resultType": "input_required", "requestState": "s"})

    async def body() -> None:
        async with met({READ: interim}) as (_, _, session):
            reply = await session.read("alpha+x://1")
            assert (reply.status, reply.error["code"]) == (200, -32603)
            assert reply.error["data"] == {"upstream": "alpha", "reason": "input_required"}

    run(body())


@pytest.mark.parametrize("version", LEGACY)
def test_H35_a_batch_reads_upstream_only_where_its_revision_has_batches(version: str) -> None:
    """Two reads in one body: two answers in one array, or 400 and no upstream call."""
    batch = [{"jsonrpc": "2.0", "id": n, "method": READ, "params": {"uri": f"alpha+x://{n}"}} for n in (1, 2)]

    async def body() -> None:
        async with met(SHELF_ANSWERS, version) as (_, wire, session):
            reply = await session.send(batch)
            if version == "2025-03-26":
                assert reply.status == 200
                assert [one["id"] for one in reply.message] == [1, 2]
                assert len(wire.calls(READ)) == 2
            else:
                assert (reply.status, reply.error["code"]) == (400, -32600)
                assert wire.calls(READ) == []

    run(body())


def after(go: asyncio.Event, answer: Answer) -> Answer:
    return lambda request: chain([go], answer(request))


def test_H38_a_legacy_client_that_leaves_does_not_close_the_upstream_request() -> None:
    """The answer still comes, and is a copy for the next who asks."""

    async def body() -> None:
        go = asyncio.Event()
        async with met({READ: after(go, result(ONE))}) as (it, wire, session):
            reading = asyncio.create_task(session.read("alpha+x://1"))
            (call,) = await reached(wire)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            async with asyncio.timeout(10):
                while not await it.samples("mcp_federator_requests_total", status="client_error"):
                    pass
            assert not call.gone.is_set()
            go.set()
            await waiting(it, 0)
            assert "hit" in (await session.read("alpha+x://1")).cache_status
            assert len(wire.calls(READ)) == 1

    run(body())


def test_H38_a_legacy_cancel_closes_the_upstream_request() -> None:
    """The asker's id 1 means his own request, whatever number ours had."""

    async def body() -> None:
        async with met({LIST: result(SHELF[LIST]), READ: never()}) as (it, wire, session):
            await session.ask(LIST)
            other = await began(it)
            reading = asyncio.create_task(session.read("alpha+x://1"))
            (call,) = await reached(wire)
            assert (await other.cancel(1)).status == 202
            assert not call.gone.is_set()
            assert (await session.cancel(1)).status == 202
            await call.gone.wait()
            reply = await reading
            assert (reply.status, reply.body) == (200, b"")
            await waiting(it, 0)

    run(body())


def test_H38_a_cancel_stops_only_who_said_so() -> None:
    """Another who waits for the same answer gets it, and the upstream is asked once."""

    async def body() -> None:
        go = asyncio.Event()
        async with met({READ: after(go, result(ONE))}) as (it, wire, session):
            other = await began(it)
            reading = [asyncio.create_task(one.read("alpha+x://1")) for one in (session, other)]
            await waiting(it, 2)
            (call,) = await reached(wire)
            await session.cancel(1)
            assert (await reading[0]).body == b""
            assert not call.gone.is_set()
            go.set()
            assert text(await reading[1]) == "text"
            assert len(wire.calls(READ)) == 1

    run(body())


def test_H38_work_of_those_who_left_ends_with_the_process() -> None:
    """A federator that stops leaves no request and no task behind."""

    async def body() -> None:
        async with met({READ: never()}) as (_, wire, session):
            reading = asyncio.create_task(session.read("alpha+x://1"))
            (call,) = await reached(wire)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await call.gone.wait()

    run(body())


def test_a_stream_ends_in_order_when_the_process_stops() -> None:
    """It is counted while it lasts, and does not use up the grace time."""

    async def body() -> None:
        async with fronted(SHELF_ANSWERS, server={"grace": 60}) as (it, _):
            session = await began(it)
            headers = {**session.headers, "Accept": "text/event-stream"}
            async with it.session.get(it.url, headers=headers) as stream:
                assert (stream.status, stream.content_type) == (200, "text/event-stream")
                assert await stream.content.readline() == b":\n"
                assert await it.samples("mcp_federator_sessions") == 1
                it.app.stop()
                # An end without the last chunk would be an error here.
                assert await stream.content.read() == b"\n"

    run(body())


def test_sessions_hold_over_a_restart_where_the_secret_is_set() -> None:
    """And a stranger's process knows nothing of them."""

    async def body() -> None:
        secret = {"secret": "a secret of sixteen"}
        async with Wire(SHELF_ANSWERS) as wire:
            async with house({"alpha": wire.url}, server=secret) as it:
                session = await began(it)
            async with house({"alpha": wire.url}, server=secret) as session.it:
                assert (await session.read("alpha+x://1")).status == 200
                assert (await session.delete()).status == 204
                assert (await session.read("alpha+x://1")).status == 404
            async with house({"alpha": wire.url}) as session.it:
                assert (await session.read("alpha+x://1")).status == 404

    run(body())


# Real software

BODIES: dict[str, Any] = {"x://h/a": "text of a", "file:///b.bin": b"\x00\xff", "memo:c": "text of c"}
TEMPLATE = "data://{id}{?format}"
SHOWN = [f"docs+{uri}" for uri in BODIES]


@asynccontextmanager
async def before(shelf: Shelf) -> AsyncIterator[House]:
    with running(shelf, lowlevel) as server:
        async with house({"docs": server.url}) as it:
            yield it


@asynccontextmanager
async def sdk_legacy(url: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[clients.Reader]:
    async with clients.sdk(url, headers, mode="legacy") as reader:
        yield reader


@asynccontextmanager
async def fast_legacy(url: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[clients.Reader]:
    async with clients.fast(url, headers, mode="legacy") as reader:
        yield reader


@pytest.mark.parametrize("connect", [sdk_legacy, fast_legacy], ids=["mcp", "fastmcp"])
def test_the_sdks_list_and_read_by_their_old_way(connect: Connect) -> None:
    """Handshake, every page, every read, the error of what is not there, and the session's end."""

    async def body() -> None:
        shelf = Shelf(BODIES, templates=[TEMPLATE], page_size=2, list_hint=PUBLIC)
        async with before(shelf) as it:
            async with connect(it.url) as reader:
                assert reader.version == LEGACY[0]
                assert [item.uri for item in await clients.resources(reader)] == SHOWN
                assert [one.uri_template for one in await clients.templates(reader)] == [f"docs+{TEMPLATE}"]
                for uri in SHOWN:
                    (one,) = (await reader.read(uri)).contents
                    assert one.uri == uri
                with pytest.raises(MCPError) as caught:
                    await reader.read("docs+x://none")
                assert caught.value.code == -32002
                with pytest.raises(MCPError):
                    await reader.page("bogus")
                async with asyncio.timeout(10):
                    while await it.samples("mcp_federator_sessions") != 1:
                        pass
            async with asyncio.timeout(10):
                while await it.samples("mcp_federator_sessions"):
                    pass
            assert await it.samples("mcp_federator_requests_total", era="modern") == 0
            assert await it.samples("mcp_federator_requests_total", status="internal_error") == 0

    run(body())


def test_many_real_clients_at_once() -> None:
    """Twenty sessions side by side, all counting from the same id."""

    async def body() -> None:
        async with before(shelf_of(20)) as it:

            async def one(n: int) -> None:
                async with sdk_legacy(it.url) as reader:
                    (content,) = (await reader.read(f"docs+file:///{n}")).contents
                    assert content.uri == f"docs+file:///{n}"

            await asyncio.gather(*(one(n) for n in range(20)))

    run(body())


def test_the_sdk_of_that_time_lists_and_reads() -> None:
    """It is mcp 1.30, in an environment of its own."""

    async def body() -> None:
        async with before(Shelf(BODIES, templates=[TEMPLATE], page_size=2)) as it:
            report = await asyncio.to_thread(legacy.client_report, it.url)
            assert report["version"] == LEGACY[0]
            assert report["resources"] == SHOWN
            assert report["templates"] == [f"docs+{TEMPLATE}"]
            assert report["completions"] == {}
            assert [content[0]["uri"] for content in report["reads"].values()] == SHOWN
            assert report["missing"] == -32002

    run(body())
