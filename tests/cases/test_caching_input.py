"""Results that need the user's input: case H29, over the whole product.

Each row is one input.  It is judged by what reached the upstream, and by what each client got.
"""

import asyncio
import json
from typing import Any

import pytest
from mcp_types import InputRequiredResult, ReadResourceRequestParams, ReadResourceResult, TextResourceContents

from tests.instruments import servers
from tests.instruments.fronted import (
    LIST,
    ONE,
    PARAMS,
    READ,
    SHELF,
    TEMPLATES,
    URI,
    Clock,
    after,
    choosing,
    failed,
    fronted,
    run,
    shown,
    text,
    waiting,
)
from tests.instruments.house import body_of, headers_of, house
from tests.instruments.servers import Shelf
from tests.instruments.wire import (
    Answer,
    Received,
    Wire,
    contents,
    drop,
    error,
    reply,
    result,
    when_reused,
)

# H29: results that need the user's input.

SECRET = "x://s"
ASKED = {"uri": "alpha+x://s"}
REQUESTS = {"q1": {"method": "elicitation/create", "params": {"message": "?", "n": 1.10, "nothing": None}}}
CAN: dict[str, Any] = {"elicitation": {"form": {}}}


def interim(state: str = "opaque") -> dict[str, Any]:
    return {"resultType": "input_required", "inputRequests": REQUESTS, "requestState": state}


def asking(request: Received) -> Answer:
    """An upstream that asks back until it is told, and says how often it was asked."""
    if "inputResponses" in request.params or "requestState" in request.params:
        return result(contents(SECRET, "told"))
    return result(interim(f"state {request.message['id']}"))


def declared(wire: Wire) -> list[Any]:
    """The client capabilities that each read came with."""
    return [call.params["_meta"]["io.modelcontextprotocol/clientCapabilities"] for call in wire.calls(READ)]


def test_H29_each_asker_has_a_round_of_his_own() -> None:
    """The interim result goes through without hints; the retry's answer is for the one who gave it."""

    async def body() -> None:
        async with fronted({READ: choosing(asking)}) as (it, wire):
            told = await it.post(READ, ASKED, capabilities=CAN)
            state = told.result["requestState"]
            assert told.result.keys() == {"resultType", "inputRequests", "requestState", "_meta"}
            assert (told.result["resultType"], told.result["inputRequests"]) == ("input_required", REQUESTS)
            assert b'"n": 1.1, "nothing": null' in told.body
            assert told.cache_status == "mcp-federator; fwd=bypass"
            assert declared(wire) == [{}, CAN]

            answers = {"q1": {"action": "accept", "content": {"a": 1}}}
            final = await it.post(READ, ASKED | {"inputResponses": answers, "requestState": state}, id=2)
            assert (text(final), final.result["ttlMs"], final.result["cacheScope"]) == ("told", 0, "private")
            assert final.cache_status == "mcp-federator; fwd=bypass"
            retry = wire.calls(READ)[-1]
            assert (retry.params["inputResponses"], retry.params["requestState"]) == (answers, state)
            assert (retry.params["uri"], len(wire.calls(READ))) == (SECRET, 3)

            other = await it.post(READ, ASKED, capabilities=CAN)
            assert other.result["resultType"] == "input_required"
            assert other.result["requestState"] != state
            assert len(wire.calls(READ)) == 5
            assert await it.samples("mcp_federator_cache_entries") == 0
            assert await it.samples("mcp_federator_requests_total", status="input_required") == 2

    run(body())


@pytest.mark.parametrize(
    "state",
    [
        '"opaque"',
        '""',
        '"\\u00e9\\u0000\\/\\ud83d\\ude00"',
        '"ü €\u2028"',
        '"\\\\\\""',
        '"' + "k" * 100_000 + '"',
        '"null"',
    ],
    ids=["plain", "empty", "escapes", "beyond-ascii", "quotes", "long", "null-as-text"],
)
def test_H29_the_state_is_byte_for_byte_the_same(state: str) -> None:
    """Upstream to client and client to upstream: not even the spelling of a character changes."""

    async def body() -> None:
        there = result(f'{{"resultType":"input_required","requestState":{state}}}'.encode())
        async with fronted({READ: [there, there, result(contents(SECRET))]}) as (it, wire):
            told = await it.post(READ, ASKED, capabilities=CAN)
            assert b'"requestState":' + state.encode() in told.body
            request = json.dumps(body_of(READ, ASKED | {"requestState": 0}), separators=(",", ":"))
            back = request.replace('"requestState":0', f'"requestState":{state}').encode()
            assert (await it.send(back, headers_of(READ, ASKED))).uris == ["alpha+x://s"]
            assert b'"requestState":' + state.encode() in wire.calls(READ)[-1].body

    run(body())


@pytest.mark.parametrize(
    "members",
    [
        pytest.param({"inputResponses": {}}, id="no-responses"),
        pytest.param({"inputResponses": {"q": {"n": [1, None]}}}, id="responses-alone"),
        pytest.param({"requestState": "s"}, id="state-alone"),
        pytest.param({"inputResponses": {"q": {}}, "requestState": ""}, id="both"),
    ],
)
def test_H29_a_retry_is_neither_looked_up_nor_kept_nor_shared(members: dict[str, Any]) -> None:
    """Even beside a fresh copy, and two at once: each goes upstream, with the caller's own capabilities."""

    async def body() -> None:
        go = asyncio.Event()
        other = after(go, result(contents("x://1", "other")))
        async with fronted({READ: [result(ONE), other]}) as (it, wire):
            await it.read(URI)
            retries = [
                asyncio.create_task(it.post(READ, {"uri": URI, **members}, capabilities=CAN))
                for _ in range(2)
            ]
            await wire.arrived(READ, 3)
            go.set()
            for retry in retries:
                assert text(await retry) == "other"
            assert declared(wire) == [{}, CAN, CAN]
            for call in wire.calls(READ)[1:]:
                assert {name: call.params.get(name) for name in members} == members
            assert text(await it.read(URI)) == "text"
            assert len(wire.calls(READ)) == 3

    run(body())


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ({"inputResponses": []}, "inputResponses"),
        ({"inputResponses": "x"}, "inputResponses"),
        ({"requestState": 1}, "requestState"),
        ({"requestState": {}}, "requestState"),
    ],
)
def test_H29_a_retry_of_another_form(members: dict[str, Any], fault: str) -> None:
    """Is refused with -32602, and goes nowhere."""

    async def body() -> None:
        async with fronted({READ: result(ONE)}) as (it, wire):
            told = await it.post(READ, {"uri": URI, **members})
            assert (told.status, told.error["code"]) == (400, -32602)
            assert fault in told.error["message"]
            assert wire.calls(READ) == []

    run(body())


def test_H29_several_who_wait_are_each_asked() -> None:
    """One request for all shows that input is needed; then each has his own, with his own capabilities."""

    async def body() -> None:
        go = asyncio.Event()
        async with fronted({READ: after(go, choosing(asking))}) as (it, wire):
            able = [{"elicitation": {}, "experimental": {"n": {"v": n}}} for n in range(5)]
            asked = [asyncio.create_task(it.post(READ, ASKED, capabilities=can)) for can in able]
            await waiting(it, 5)
            assert len(await wire.arrived(READ)) == 1
            go.set()
            states = {(await one).result["requestState"] for one in asked}
            assert len(states) == 5
            assert declared(wire)[0] == {}
            assert sorted(map(str, declared(wire)[1:])) == sorted(map(str, able))

    run(body())


def test_H29_a_capability_is_missing_for_some() -> None:
    """After -32021 each is asked for alone: who has the capability is answered, who has not is told so."""

    def choose(request: Received) -> Answer:
        if request.params["_meta"]["io.modelcontextprotocol/clientCapabilities"] == CAN:
            return result(contents(SECRET, "for the able"))
        return error(-32021, "needs elicitation", {"requiredCapabilities": {"elicitation": {}}})

    async def body() -> None:
        go = asyncio.Event()
        async with fronted({READ: after(go, choosing(choose))}) as (it, wire):
            able = [asyncio.create_task(it.post(READ, ASKED, capabilities=CAN)) for _ in range(2)]
            unable = asyncio.create_task(it.post(READ, ASKED))
            await waiting(it, 3)
            go.set()
            for one in able:
                told = await one
                assert (text(told), told.cache_status) == ("for the able", "mcp-federator; fwd=bypass")
                assert told.result["cacheScope"] == "private"
            refusal = await unable
            assert (refusal.status, refusal.error["code"]) == (400, -32021)
            assert refusal.error["data"] == {"requiredCapabilities": {"elicitation": {}}}
            assert len(wire.calls(READ)) == 4
            assert await it.samples("mcp_federator_cache_entries") == 0

    run(body())


def test_H29_capabilities_that_are_configured() -> None:
    """What is shared declares `client_capabilities`; a server content with them answers for all."""

    async def body() -> None:
        async with fronted({READ: result(ONE)}, {"client_capabilities": {"roots": {}}}) as (it, wire):
            for _ in range(2):
                await it.read(URI, capabilities=CAN)
            assert declared(wire) == [{"roots": {}}]

    run(body())


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        pytest.param(result(interim("again")), None, id="asks-again"),
        pytest.param(error(7001, "gone"), None, id="an-error"),
        pytest.param(reply(b"", status=500), "bad_reply", id="500"),
        pytest.param(drop(), "unreachable", id="closed"),
        pytest.param(when_reused(drop(), result(ONE)), "unreachable", id="dead-connection"),
    ],
)
def test_H29_what_a_retry_may_meet(second: Answer, reason: str | None) -> None:
    """It goes upstream once and no more, and nothing stands in for its answer, not even a fresh copy."""

    async def body() -> None:
        async with fronted({READ: [result(ONE), second, result(ONE)]}) as (it, wire):
            await it.read(URI)
            told = await it.post(READ, {"uri": URI, "requestState": "s"})
            if reason is not None:
                failed(told, reason)
            elif "error" in told.message:
                assert told.error == {"code": 7001, "message": "gone"}
            else:
                assert told.result["requestState"] == "again"
            assert len(wire.calls(READ)) == 2
            assert "hit" in (await it.read(URI)).cache_status

    run(body())


def test_H29_input_drops_the_copy() -> None:
    """A resource that needs input now is not served from before, also when the upstream fails after that."""

    async def body() -> None:
        clock = Clock()
        answers = [
            result(contents("x://1", ttl=1000)),
            result(interim()),
            result(interim()),
            reply(b"", status=500),
        ]
        async with fronted({READ: answers}, clock=clock) as (it, _):
            await it.read(URI)
            clock.now += 2
            assert (await it.read(URI)).result["resultType"] == "input_required"
            failed(await it.read(URI), "bad_reply")

    run(body())


@pytest.mark.parametrize("method", SHELF)
@pytest.mark.parametrize("kind", ['"other"', '"Complete"', '""', "7", "true", "{}", '"input-required"'])
def test_H29_a_result_of_an_unknown_type(kind: str, method: str) -> None:
    """Is no answer, and is not kept."""
    unknown = json.dumps(SHELF[method]).replace('"complete"', kind).encode()

    async def body() -> None:
        async with fronted({method: [result(unknown), result(SHELF[method])]}) as (it, wire):
            failed(await it.post(method, PARAMS[method]), "bad_reply")
            assert len(shown(await it.post(method, PARAMS[method]))) == 1
            assert len(wire.calls(method)) == 2

    run(body())


@pytest.mark.parametrize("kind", ["absent", "null", '"complete"'])
def test_H29_a_result_without_a_type_is_complete(kind: str) -> None:
    """As servers of earlier revisions send it; the client is always told `complete`."""
    said = json.dumps({**ONE, "resultType": 0}).replace('"resultType": 0', f'"resultType": {kind}')
    members = said.replace('"resultType": absent, ', "").encode()

    async def body() -> None:
        async with fronted({READ: result(members)}) as (it, wire):
            for _ in range(2):
                assert (await it.read(URI)).result["resultType"] == "complete"
            assert len(wire.calls(READ)) == 1

    run(body())


@pytest.mark.parametrize(
    ("method", "members"),
    [
        pytest.param(READ, {"resultType": "input_required"}, id="asks-for-nothing"),
        pytest.param(READ, {"resultType": "input_required", "inputRequests": None}, id="asks-for-null"),
        pytest.param(LIST, interim(), id="list"),
        pytest.param(TEMPLATES, interim(), id="templates"),
    ],
)
def test_H29_an_interim_result_that_is_none(method: str, members: dict[str, Any]) -> None:
    """Input is for reads, and must be asked for."""

    async def body() -> None:
        async with fronted({method: [result(members), result(SHELF[method])]}) as (it, _):
            failed(await it.post(method, PARAMS[method]), "bad_reply")
            assert len(shown(await it.post(method, PARAMS[method]))) == 1

    run(body())


def test_H29_a_real_server_that_asks_back() -> None:
    """The low-level server of the SDK: asked, told, and answered, for one caller."""

    def act(params: ReadResourceRequestParams, _: Any) -> ReadResourceResult | InputRequiredResult:
        if params.input_responses is None:
            form = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
            requests = {"q1": {"method": "elicitation/create", "params": form}}
            return InputRequiredResult.model_validate(interim("round 1") | {"inputRequests": requests})
        return ReadResourceResult(
            contents=[TextResourceContents(uri=SECRET, text=params.request_state or "")],
            ttl_ms=60_000,
            cache_scope="public",
        )

    async def body() -> None:
        with servers.running(Shelf({SECRET: act})) as server:
            async with house({"alpha": server.url}) as it:
                told = await it.post(READ, ASKED, capabilities=CAN)
                assert InputRequiredResult.model_validate(told.result).request_state == "round 1"
                retry = ASKED | {"inputResponses": {"q1": {"action": "decline"}}, "requestState": "round 1"}
                assert text(await it.post(READ, retry, capabilities=CAN)) == "round 1"
                again = await it.post(READ, ASKED, capabilities=CAN)
                assert again.result["resultType"] == "input_required"

    run(body())
