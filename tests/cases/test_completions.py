"""Completions through the whole product: the design's section 3, rule 9, and who declares what."""

import json
from typing import Any

import pytest
from mcp_types.methods import validate_server_result

from mcp_federator.client import Client
from mcp_federator.protocol.vocabulary import LEGACY, MODERN
from tests.cases.test_legacy_clients import began
from tests.instruments import clients, servers
from tests.instruments.fronted import DISCOVER, READ, Clock, failed, fronted, run
from tests.instruments.house import house
from tests.instruments.servers import Make, Shelf, running
from tests.instruments.wire import Answers, Wire, by_uri, contents, discovered, drop, error, reply, result
from tests.upstream.legacy_server import LegacyWire

COMPLETE = "completion/complete"
DECLARED = result(discovered({"resources": {}, "completions": {}}))
SUGGESTED = result({"resultType": "complete", "completion": {"values": ["v1"], "total": 1, "hasMore": False}})
LEGACY_CAPABILITIES: dict[str, Any] = {"resources": {}, "completions": {}}


def about(uri: str, **more: Any) -> dict[str, Any]:
    """The params of a completion."""
    return {
        "ref": {"type": "ref/resource", "uri": uri},
        "argument": {"name": "a", "value": "v"},
        **more,
    }


@pytest.mark.parametrize(
    ("public", "native"),
    [
        ("alpha+file:///{+path}{?q*}", "file:///{+path}{?q*}"),
        ("ALPHA+file:///a%20b/ż", "file:///a%20b/ż"),
        ("alpha+{+any}", "{+any}"),
        ("ui://alpha/{x}", "ui://{x}"),
        ("alpha+ui://{x}", "ui://{x}"),
    ],
)
def test_a_completion_reaches_its_upstream_in_native_form(public: str, native: str) -> None:
    """Template or URI; argument and context byte for byte, and nothing else of the client's."""

    async def body() -> None:
        async with fronted({DISCOVER: DECLARED, COMPLETE: SUGGESTED}) as (it, wire):
            context = {"arguments": {"b": "ü"}, "x": 1}
            answer = await it.post(COMPLETE, about(public, context=context, more=5))
            validate_server_result(COMPLETE, MODERN, answer.result)
            assert answer.result["completion"] == {"values": ["v1"], "total": 1, "hasMore": False}
            (call,) = wire.calls(COMPLETE)
            assert {**call.params, "_meta": None} == {**about(native, context=context), "_meta": None}
            assert (call.header("mcp-method"), call.header("mcp-name")) == (COMPLETE, None)

    run(body())


def test_a_prefix_of_ones_own_is_taken_off() -> None:
    """`prefix` and `native_prefix` are as for reads."""

    async def body() -> None:
        settings = {"prefix": "docs://", "native_prefix": "file:///srv/"}
        async with fronted({DISCOVER: DECLARED, COMPLETE: SUGGESTED}, settings) as (it, wire):
            await it.post(COMPLETE, about("docs://{path}"))
            assert wire.calls(COMPLETE)[0].params["ref"]["uri"] == "file:///srv/{path}"

    run(body())


def test_each_completion_is_asked_for_and_counted_as_passed_by() -> None:
    """None is kept or shared, whatever hints came with it."""

    async def body() -> None:
        hinted = result({"resultType": "complete", "completion": {"values": []}, "ttlMs": 60_000})
        async with fronted({DISCOVER: DECLARED, COMPLETE: hinted}) as (it, wire):
            for _ in range(3):
                answer = await it.post(COMPLETE, about("alpha+x://{a}"))
                assert answer.cache_status == "mcp-federator; fwd=bypass"
                assert answer.result.keys() == {"resultType", "_meta", "completion"}
            assert len(wire.calls(COMPLETE)) == 3
            labels = {"upstream": "alpha", "method": COMPLETE}
            assert await it.samples("mcp_federator_cache_requests_total", **labels, outcome="bypass") == 3
            assert await it.samples("mcp_federator_cache_requests_total", **labels) == 3
            assert await it.samples("mcp_federator_upstream_requests_total", **labels, outcome="ok") == 3
            assert await it.samples("mcp_federator_requests_total", method=COMPLETE, status="ok") == 3

    run(body())


@pytest.mark.parametrize("version", LEGACY)
def test_both_eras_on_both_sides(version: str) -> None:
    """Clients of each revision before a modern upstream and a legacy one of that revision."""

    async def body() -> None:
        old = LegacyWire({COMPLETE: SUGGESTED}, version=version, capabilities=LEGACY_CAPABILITIES)
        async with (
            Wire({DISCOVER: DECLARED, COMPLETE: SUGGESTED}) as new,
            old,
            house({"new": new.url, "old": old.url}) as it,
        ):
            session = await began(it, version)
            for uri in ("new+x://{a}", "old+x://{a}"):
                modern = (await it.post(COMPLETE, about(uri))).result
                legacy = (await session.ask(COMPLETE, about(uri))).result
                validate_server_result(COMPLETE, version, legacy)
                assert legacy == {"completion": {"values": ["v1"], "total": 1, "hasMore": False}}
                assert modern["completion"] == legacy["completion"]
            for wire in (new, old):
                assert [call.params["ref"]["uri"] for call in wire.calls(COMPLETE)] == ["x://{a}"] * 2
            assert {call.header("mcp-session-id") for call in old.calls(COMPLETE)} == {"S1"}

    run(body())


@pytest.mark.parametrize(
    ("answer", "code", "data"),
    [
        pytest.param(
            error(-32602, "no such argument", {"uri": "x://{a}", "k": 1}),
            -32602,
            {"uri": "alpha+x://{a}", "k": 1},
            id="invalid",
        ),
        pytest.param(error(-32602, "no"), -32602, None, id="invalid without data"),
        pytest.param(error(-32601, "no", status=404), -32601, None, id="not there after all"),
        pytest.param(error(-32002, "no"), -32602, {"uri": "alpha+x://{a}"}, id="not found, legacy"),
        pytest.param(error(7001, "no"), 7001, None, id="its own"),
    ],
)
def test_H22_an_error_of_the_upstream_is_told(answer: Any, code: int, data: Any) -> None:
    """By the error table, with public URIs, to clients of both eras alike."""

    async def body() -> None:
        async with fronted({DISCOVER: DECLARED, COMPLETE: answer}) as (it, _):
            for ask in (it.post, (await began(it)).ask):
                told = await ask(COMPLETE, about("alpha+x://{a}"))
                assert (told.status, told.error["code"], told.error.get("data")) == (200, code, data)

    run(body())


@pytest.mark.parametrize(
    ("answer", "reason", "more"),
    [
        (error(-32050, "secret"), "refused", {"code": -32050}),
        (result({"resultType": "complete", "completion": {"values": [1]}}), "bad_reply", {}),
        (result({"resultType": "complete"}), "bad_reply", {}),
        (result({"resultType": "input_required", "requestState": "s"}), "bad_reply", {}),
        (reply(status=500), "bad_reply", {}),
        (drop(), "unreachable", {}),
    ],
)
def test_H19_an_upstream_that_fails_is_named(answer: Any, reason: str, more: dict[str, Any]) -> None:
    """-32603 with upstream and reason."""

    async def body() -> None:
        async with fronted({DISCOVER: DECLARED, COMPLETE: answer}) as (it, _):
            told = await it.post(COMPLETE, about("alpha+x://{a}"))
            failed(told, reason, "alpha", **more)

    run(body())


# Who declares what.


async def capabilities(it: Any) -> Any:
    """What a modern and a legacy client are told, which is the same."""
    discovered = (await it.post(DISCOVER)).result
    begin = {"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    initialize = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": begin}
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    initialized = (await it.send(json.dumps(initialize).encode(), headers)).result
    assert initialized["capabilities"] == discovered["capabilities"]
    return discovered["capabilities"]


def test_one_upstream_that_declares_completions_is_enough() -> None:
    """The endpoint has them; an upstream without, a repository too, is not asked and suggests nothing."""

    async def body() -> None:
        async with (
            Wire({DISCOVER: DECLARED, COMPLETE: SUGGESTED}) as alpha,
            Wire({}) as beta,
            LegacyWire({}) as gamma,
            house(
                {
                    "alpha": alpha.url,
                    "beta": beta.url,
                    "gamma": gamma.url,
                    "people": {"directory": "examples"},
                }
            ) as it,
        ):
            assert await capabilities(it) == {
                "resources": {"subscribe": True, "listChanged": True},
                "completions": {},
            }
            for name in ("beta", "gamma", "people"):
                found = (await it.post(COMPLETE, about(f"{name}+x://{{a}}"))).result
                assert found["completion"] == {"values": [], "hasMore": False}
            assert [wire.calls(COMPLETE) for wire in (alpha, beta, gamma)] == [[], [], []]
            told = {one["name"]: one["completions"] for one in (await it.status())["upstreams"]}
            assert told == {"alpha": True, "beta": False, "gamma": False, "people": False}

    run(body())


def test_where_nobody_declares_completions_the_method_is_not_there() -> None:
    """404 and -32601 as any other unknown method."""

    async def body() -> None:
        async with fronted({READ: by_uri({"x": contents("x")})}) as (it, _):
            assert await capabilities(it) == {"resources": {}}
            told = await it.post(COMPLETE, about("alpha+x"))
            assert (told.status, told.error["code"]) == (404, -32601)
            old = await (await began(it)).ask(COMPLETE, about("alpha+x"))
            assert (old.status, old.error["code"]) == (200, -32601)

    run(body())


def test_completions_are_declared_once_the_upstream_was_reached() -> None:
    """Until then discover's answer has no life; a completion itself finds out."""

    async def body() -> None:
        answers: dict[str, Answers] = {DISCOVER: [reply(status=503), DECLARED], COMPLETE: SUGGESTED}
        async with fronted(answers, clock=Clock()) as (it, wire):
            early = (await it.post(DISCOVER)).result
            assert (early["capabilities"], early["ttlMs"]) == ({"resources": {}}, 0)
            found = (await it.post(COMPLETE, about("alpha+x://{a}"))).result
            assert found["completion"]["values"] == ["v1"]
            later = (await it.post(DISCOVER)).result
            assert (later["capabilities"], later["ttlMs"]) == ({"resources": {}, "completions": {}}, 60_000)
            await wire.stop()
            failed(await it.post(COMPLETE, about("alpha+x://{a}")), "unreachable")
            assert await capabilities(it) == {"resources": {}, "completions": {}}

    run(body())


@pytest.mark.parametrize(
    ("ref", "data"),
    [
        ({"type": "ref/prompt", "name": "p"}, None),
        ({"type": "ref/resource", "uri": "nope+x://{a}"}, {"uri": "nope+x://{a}"}),
    ],
)
def test_what_is_nobodys_cannot_be_completed(ref: dict[str, str], data: Any) -> None:
    """A prompt, an unknown prefix: -32602, to clients of both eras."""

    async def body() -> None:
        async with fronted({DISCOVER: DECLARED, COMPLETE: SUGGESTED}) as (it, wire):
            for ask in (it.post, (await began(it)).ask):
                told = await ask(COMPLETE, about("") | {"ref": ref})
                assert (told.status, told.error["code"], told.error.get("data")) == (200, -32602, data)
            assert wire.calls(COMPLETE) == []

    run(body())


# Real software.

SHELF = Shelf(
    {"file:///1": "one"},
    templates=["repo://{owner}/{name}"],
    completions={"repo://{owner}/{name}": {"name": ["mcp", "mcp-types", "uv"], "owner": ["octocat"]}},
)
ECHO = "alpha+repo://{owner}/{name}"


@pytest.mark.parametrize("make", servers.KINDS.values(), ids=servers.KINDS)
def test_real_clients_complete_at_real_servers(make: Make) -> None:
    """Each client of either era finds the same suggestions, and its context reaches the server."""

    async def body() -> None:
        with running(SHELF, make) as server:
            async with house({"alpha": server.url}) as it:
                for connect in (clients.sdk, clients.fast):
                    for mode in ("auto", "legacy"):
                        async with connect(it.url, mode=mode) as client:
                            assert client.capabilities.completions is not None
                            found = await client.complete(ECHO, "name", "mcp", {"owner": "octocat"})
                            assert found.values == ["mcp", "mcp-types"]
                            assert (found.total, found.has_more) == (2, False)
                            assert server.calls[-1].params["context"] == {"arguments": {"owner": "octocat"}}
                async with Client(it.url) as own:
                    mine = await own.complete(ECHO, "owner", "", context={"name": "uv"})
                    assert (mine.values, mine.total, mine.has_more) == (("octocat",), 1, False)
                async with Client(server.url) as own:
                    mine = await own.complete("repo://{owner}/{name}", "name", "u")
                    assert mine.values == ("uv",)

    run(body())


def test_the_python_client_asks_no_server_that_declares_nothing() -> None:
    """It has no suggestions then."""

    async def body() -> None:
        async with Wire({}) as wire, Client(wire.url) as own:
            found = await own.complete("x://{a}", "a", "")
            assert (found.values, found.total, found.has_more) == ((), None, False)
            assert (own.status.completions, wire.calls(COMPLETE)) == (False, [])

    run(body())
