"""H22, H26, H34, H35 and H38 for clients of the 2025 revisions: what of a request reaches upstreams.

Each row is one input, over the whole product.  It is judged by what reached the upstream, and by the reply.
"""

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from mcp_types.methods import validate_server_result

from mcp_federator.protocol.vocabulary import LEGACY
from tests.instruments.fronted import LIST, PARAMS, READ, SHELF, URI, Clock, fronted, run, shown
from tests.instruments.house import House, Reply, house
from tests.instruments.wire import Wire, contents, error, never, result
from tests.upstream.legacy_server import CANCELLED, ONE, LegacyWire, one

JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
versions = pytest.mark.parametrize("version", LEGACY)


async def opened(it: House, version: str) -> dict[str, str]:
    """The header fields of a session of this version."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    reply = await say(it, {"id": 0, "method": "initialize", "params": params}, {})
    assert (reply.status, reply.result["protocolVersion"]) == (200, version)
    return {"Mcp-Session-Id": reply.headers["Mcp-Session-Id"], "MCP-Protocol-Version": version}


async def say(it: House, body: Any, session: dict[str, str]) -> Reply:
    whole = {"jsonrpc": "2.0", **body} if isinstance(body, dict) else body
    return await it.send(json.dumps(whole).encode(), JSON | session)


def asking(uri: str = URI, number: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": READ, "params": {"uri": uri}}


@versions
def test_H34_a_session_begins_without_one_and_without_an_upstream(version: str) -> None:
    """`initialize` asks nobody; what is read within the session goes upstream in the upstream's own era."""

    async def body() -> None:
        async with fronted({READ: result(contents("x://1"))}) as (it, wire):
            probes = len(wire.received)
            session = await opened(it, version)
            assert len(wire.received) == probes
            assert (await say(it, asking(), session)).uris == [URI]
            (call,) = wire.calls(READ)
            assert call.header("mcp-session-id") is None
            assert call.header("mcp-protocol-version") == "2026-07-28"

    run(body())


@versions
@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param([], 400, id="empty batch"),
        pytest.param("str", 400, id="text"),
        pytest.param({"method": "notifications/x"}, 202, id="notification"),
        pytest.param({"id": None, "method": "notifications/x"}, 400, id="null id"),
    ],
)
def test_H35_what_asks_for_nothing_reaches_nobody(body: Any, status: int, version: str) -> None:
    """A notification is accepted without a body, all else is -32600, whatever the revision."""

    async def check() -> None:
        async with fronted({READ: result(contents("x://1"))}) as (it, wire):
            session = await opened(it, version)
            probes = len(wire.received)
            reply = await say(it, body, session)
            assert reply.status == status
            if status == 400:
                assert reply.error["code"] == -32600
            else:
                assert reply.body == b""
            assert len(wire.received) == probes

    run(check())


def test_H22_not_found_from_one_legacy_side_to_the_other() -> None:
    """-32002 stays -32002, with the public URI; nothing of it is kept, and once it is there it is read."""

    async def body() -> None:
        missing = error(-32002, data={"uri": "x://1"}, status=200)
        answers = one() | {READ: [missing, missing, result(ONE)]}
        async with LegacyWire(answers) as wire, house({"alpha": wire.url}, clock=Clock()) as it:
            session = await opened(it, LEGACY[0])
            for _ in range(2):
                failed = (await say(it, asking(), session)).error
                assert (failed["code"], failed["data"]) == (-32002, {"uri": URI})
            assert (await say(it, asking(), session)).uris == [URI]
            assert len(wire.calls(READ)) == 3

    run(body())


def test_H38_a_legacy_cancel_is_told_to_a_legacy_upstream_with_our_number() -> None:
    """The client's id is his alone: the upstream hears of the number that it was asked under."""

    async def body() -> None:
        async with LegacyWire(one() | {READ: never()}) as wire, house({"alpha": wire.url}) as it:
            session = await opened(it, LEGACY[0])
            await say(it, {"id": 2, "method": LIST, "params": {}}, session)
            reading = asyncio.create_task(say(it, asking(number=1), session))
            (call,) = await wire.arrived(READ)
            told = {"method": "notifications/cancelled", "params": {"requestId": 1}}
            assert (await say(it, told, session)).status == 202
            (cancel,) = await wire.arrived(CANCELLED)
            assert cancel.params["requestId"] == call.message["id"] != 1
            await call.gone.wait()
            assert (await reading).body == b""

    run(body())


BARE = {
    method: {key: value for key, value in members.items() if key not in {"resultType", "ttlMs", "cacheScope"}}
    for method, members in SHELF.items()
}


@pytest.mark.parametrize("asker", ["modern", *LEGACY])
@pytest.mark.parametrize("method", SHELF)
@pytest.mark.parametrize(
    ("hints", "told"),
    [
        pytest.param(None, (0, "private"), id="legacy, none at all"),
        pytest.param({"ttlMs": 60_000}, (60_000, "private"), id="no scope"),
        pytest.param({"ttlMs": 60_000, "cacheScope": "PUBLIC"}, (60_000, "private"), id="capitals"),
    ],
)
def test_H26_hints_that_lack_or_are_odd_to_each_era(
    hints: dict[str, Any] | None, told: tuple[int, str], method: str, asker: str
) -> None:
    """Modern clients are told both whatever came, legacy ones none; kept is what had a life."""
    answer = result({**BARE[method], **(hints or {})})
    upstream = LegacyWire({method: answer}) if hints is None else Wire({method: answer})

    async def body() -> None:
        async with upstream as wire, house({"alpha": wire.url}, clock=Clock()) as it:
            ask = partial(it.post, method, PARAMS[method])
            if asker != "modern":
                session = await opened(it, asker)
                ask = partial(say, it, {"id": 1, "method": method, "params": PARAMS[method]}, session)
            for _ in range(2):
                reply = await ask()
                assert len(shown(reply)) == 1
                members = reply.result
                hinted = {key: members.pop(key, None) for key in ("resultType", "ttlMs", "cacheScope")}
                if asker == "modern":
                    assert tuple(hinted.values()) == ("complete", *told)
                else:
                    assert set(hinted.values()) == {None}
                    validate_server_result(method, asker, members)
            assert len(wire.calls(method)) == (1 if told[0] else 2)

    run(body())
