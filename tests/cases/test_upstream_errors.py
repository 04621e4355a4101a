"""Error codes, and the ids under which answers come: cases H22 and H23, over the whole product.

Each row is one input.  It is judged by what reached the upstream and by what the client got for it.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.instruments import servers
from tests.instruments.fronted import (
    DISCOVER,
    INCOMPLETE,
    LIST,
    ONE,
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
    waiting,
)
from tests.instruments.house import House, Reply, body_of, headers_of, house
from tests.instruments.servers import Shelf
from tests.instruments.wire import (
    Answer,
    Received,
    Step,
    Wire,
    contents,
    error,
    page,
    reply,
    result,
    stream,
)

# H22: error codes.

CAPABLE: dict[str, Any] = {"sampling": {}}
CODES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "not-found": ({"code": -32602, "data": {"uri": "x://1"}}, {"code": -32602, "data": {"uri": URI}}),
    "not-found-of-legacy": (
        {"code": -32002, "data": {"uri": "x://1"}},
        {"code": -32602, "data": {"uri": URI}},
    ),
    "not-found-without-data": ({"code": -32602}, {"code": -32602, "data": {"uri": URI}}),
    "not-found-of-legacy-without-data": ({"code": -32002}, {"code": -32602, "data": {"uri": URI}}),
    "not-found-with-more": (
        {"code": -32602, "data": {"k": [1.10, None], "uri": "x://1", "z": "x://1"}},
        {"code": -32602, "data": {"k": [1.10, None], "uri": URI, "z": "x://1"}},
    ),
    "not-found-with-a-text": ({"code": -32602, "data": "x://1"}, {"code": -32602, "data": {"uri": URI}}),
    "reserved": ({"code": -32050, "data": {"k": 1}}, {"code": -32603, "refused": -32050}),
    "reserved-last": ({"code": -32099}, {"code": -32603, "refused": -32099}),
    "implementation-defined": ({"code": -32000, "data": {"k": 1}}, {"code": -32603, "refused": -32000}),
    "implementation-defined-last": ({"code": -32019}, {"code": -32603, "refused": -32019}),
    "json-rpc-reserved": ({"code": -32700 - 1}, {"code": -32603, "refused": -32701}),
    "json-rpc-first": ({"code": -32768}, {"code": -32603, "refused": -32768}),
    "header-mismatch": ({"code": -32020}, {"code": -32603, "refused": -32020}),
    "url-elicitation": ({"code": -32042, "data": {"elicitations": []}}, {"code": -32603, "refused": -32042}),
    "its-own": ({"code": 7001, "data": {"k": 1}}, {"code": 7001, "data": {"k": 1}}),
    "its-own-with-a-uri": (
        {"code": 7001, "data": {"uri": "x://2", "k": 1}},
        {"code": 7001, "data": {"uri": "alpha+x://2", "k": 1}},
    ),
    "its-own-list": ({"code": 7001, "data": [1, "x://1"]}, {"code": 7001, "data": [1, "x://1"]}),
    "its-own-without-data": ({"code": 7001}, {"code": 7001}),
    "its-own-with-null": ({"code": 7001, "data": None}, {"code": 7001}),
    "zero": ({"code": 0}, {"code": 0}),
    "just-above": ({"code": -31999}, {"code": -31999}),
    "just-below": ({"code": -32769}, {"code": -32769}),
    "largest": ({"code": 2**53 - 1}, {"code": 2**53 - 1}),
    "parse-error": ({"code": -32700}, {"code": -32700}),
    "invalid-request": ({"code": -32600}, {"code": -32600}),
    "no-such-method": ({"code": -32601}, {"code": -32601}),
    "internal": ({"code": -32603, "data": {"k": 1}}, {"code": -32603, "data": {"k": 1}}),
}
"""What an upstream says, and what the client is told."""


@pytest.mark.parametrize("status", [200, 400, 404])
@pytest.mark.parametrize(("said", "told"), CODES.values(), ids=CODES)
def test_H22_what_a_modern_client_is_told(said: dict[str, Any], told: dict[str, Any], status: int) -> None:
    """A code that means something to him; never kept, so that the next read finds what has appeared."""
    answer = reply(
        json.dumps({"jsonrpc": "2.0", "id": 0, "error": {"message": "m", **said}})
        .encode()
        .replace(b": 0", b": $ID", 1),
        status=status,
    )

    async def body() -> None:
        async with fronted({READ: [answer, result(ONE)], LIST: result(page())}) as (it, wire):
            first = await it.read(URI)
            if "refused" in told:
                failed(first, "refused", code=told["refused"])
                assert first.error["message"] != "m"
            else:
                assert first.error == {"message": "m", **told}
            assert first.status == 200
            second = await it.read(URI)
            assert second.cache_status == "mcp-federator; fwd=miss; stored"
            assert len(wire.calls(READ)) == 2

    run(body())


@pytest.mark.parametrize("uri", ["alpha+x://1", "ALPHA+x://1", "Alpha+x://1"])
def test_H22_the_uri_is_told_as_it_was_asked(uri: str) -> None:
    """`data.uri` is the very string of the request."""

    async def body() -> None:
        answer = error(-32602, data={"uri": "x://1"})
        async with fronted({READ: answer, LIST: result(page())}) as (it, wire):
            assert (await it.read(uri)).error["data"] == {"uri": uri}
            assert wire.calls(READ)[0].params["uri"] == "x://1"

    run(body())


def test_H22_waiters_are_told_in_their_own_spelling() -> None:
    """Also where one request of two spellings answers both."""

    async def body() -> None:
        go = asyncio.Event()
        async with fronted({READ: after(go, error(-32602)), LIST: result(page())}) as (it, wire):
            uris = ["alpha+x://1", "ALPHA+x://1"]
            asked = asyncio.gather(*map(it.read, uris))
            await waiting(it, 2)
            go.set()
            assert [told.error["data"]["uri"] for told in await asked] == uris
            assert len(wire.calls(READ)) == 1

    run(body())


@pytest.mark.parametrize(
    ("message", "told"),
    [
        pytest.param("é" * 2000, "é" * 512, id="cut"),
        pytest.param("€" * 2000, "€" * 341, id="cut-between-characters"),
        pytest.param('a"b\n\u0000', 'a"b\n\u0000', id="escapes"),
        pytest.param("", "", id="empty"),
    ],
)
def test_H22_the_message_goes_on(message: str, told: str) -> None:
    """As it is, up to 1 KiB."""

    async def body() -> None:
        async with fronted({READ: error(7001, message)}) as (it, _):
            assert (await it.read(URI)).error == {"code": 7001, "message": told}

    run(body())


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"code": -32602.0}, id="fractional-code"),
        pytest.param({"code": "-32602"}, id="text-code"),
        pytest.param({"code": 10**30}, id="huge-code"),
        pytest.param({"code": None}, id="null-code"),
        pytest.param({}, id="no-code"),
        pytest.param({"code": 1, "message": 7}, id="no-message"),
    ],
)
def test_H22_an_error_that_is_none(said: dict[str, Any]) -> None:
    """What has not the form of an error is a bad reply."""
    text = json.dumps({"message": "m", **said}).encode()

    async def body() -> None:
        answer = reply(b'{"jsonrpc":"2.0","id":$ID,"error":' + text + b"}")
        async with fronted({READ: [answer, result(ONE)]}) as (it, _):
            failed(await it.read(URI), "bad_reply")
            assert (await it.read(URI)).uris == [URI]

    run(body())


@pytest.mark.parametrize("again", [False, True])
def test_H22_unsupported_version_is_never_relayed(again: bool) -> None:
    """-32022 means that the upstream is another one by now: it is probed, and asked once more."""
    refusal = error(-32022, data={"supported": ["2099-01-01"], "requested": "2026-07-28"})

    async def body() -> None:
        async with fronted({READ: [refusal, refusal if again else result(ONE), result(ONE)]}) as (it, wire):
            told = await it.read(URI)
            assert (len(wire.calls(READ)), len(wire.calls(DISCOVER))) == (2, 2)
            if again:
                failed(told, "refused", code=-32022)
            else:
                assert told.uris == [URI]
            assert (await it.read(URI)).uris == [URI]

    run(body())


def test_H22_missing_capability_after_the_callers_own() -> None:
    """-32021 is relayed only once the caller's own capabilities were sent; and is asked anew each time."""
    refusal = error(-32021, "needs it", {"requiredCapabilities": {"elicitation": {}}})

    async def body() -> None:
        async with fronted({READ: refusal}) as (it, wire):
            for _ in range(2):
                told = await it.read(URI, capabilities=CAPABLE)
                assert (told.status, told.error["code"]) == (400, -32021)
                assert told.error["data"] == {"requiredCapabilities": {"elicitation": {}}}
            sent = [
                call.params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
                for call in wire.calls(READ)
            ]
            assert sent == [{}, CAPABLE] * 2

    run(body())


@pytest.mark.parametrize("method", [LIST, TEMPLATES])
def test_H22_a_list_that_the_upstream_does_not_have(method: str) -> None:
    """-32601 to a list is an empty one, for all and as long as the probe holds; nobody is missing."""

    async def body() -> None:
        async with (
            Wire({method: error(-32601, status=404)}) as alpha,
            Wire({method: result(SHELF[method])}) as beta,
            house({"alpha": alpha.url, "beta": beta.url}, clock=Clock()) as it,
        ):
            told = await it.page(method=method)
            assert len(shown(told)) == 1
            assert INCOMPLETE not in told.result["_meta"]
            assert (told.result["ttlMs"], told.result["cacheScope"]) == (60_000, "public")

    run(body())


@pytest.mark.parametrize("kind", servers.KINDS)
def test_H22_real_servers_that_do_not_know_a_uri(kind: str) -> None:
    """Servers of both SDKs: not found is -32602 with the public URI, and found is found."""

    async def body() -> None:
        with servers.running(Shelf({"x://here": "text"}), servers.KINDS[kind]) as server:
            async with house({"alpha": server.url}) as it:
                told = await it.read("alpha+x://gone")
                assert (told.status, told.error["code"]) == (200, -32602)
                assert told.error["data"] == {"uri": "alpha+x://gone"}
                assert (await it.read("alpha+x://here")).uris == ["alpha+x://here"]

    run(body())


# H23: request ids.

SPELT = {
    "zero": "0",
    "empty": '""',
    "text": '"1"',
    "negative": "-5",
    "above-2-53": "9007199254740993",
    "above-2-63": "9223372036854775808",
    "letters": '"ü€"',
    "escapes": '"\\u00fc\\n\\""',
    "one": "1",
}


async def read_raw(it: House, id: str, uri: str = URI) -> Reply:  # noqa: A002 - the protocol's word
    body = json.dumps(body_of(READ, {"uri": uri}, id=0)).replace('"id": 0', f'"id": {id}')
    return await it.send(body.encode(), headers_of(READ, {"uri": uri}))


@pytest.mark.parametrize("spelling", SPELT.values(), ids=SPELT)
def test_H23_the_id_comes_back_as_it_was(spelling: str) -> None:
    """Value and type, on a miss, on a hit and with an error; upstream goes a number of our own."""

    async def body() -> None:
        async with fronted({READ: [error(7001), result(ONE)]}) as (it, wire):
            for _ in range(3):
                told = await read_raw(it, spelling)
                assert told.body.startswith(b'{"jsonrpc":"2.0","id":' + spelling.encode() + b",")
            sent = [call.message["id"] for call in wire.received]
            assert len(set(sent)) == len(sent) == 3
            assert all(type(number) is int for number in sent)

    run(body())


@pytest.mark.parametrize("spelling", ["null", "1.5", "true", "false", "{}", "[]", "[1]", "1e400", "-1.5e0"])
def test_H23_what_is_no_id(spelling: str) -> None:
    """400 and -32600, and the upstream hears nothing."""

    async def body() -> None:
        async with fronted({READ: result(ONE)}) as (it, wire):
            told = await read_raw(it, spelling)
            assert told.status == 400
            assert (
                told.error["code"] in {-32600, -32700} if "e400" in spelling else told.error["code"] == -32600
            )
            assert wire.calls(READ) == []

    run(body())


def test_H23_fifty_clients_with_id_1() -> None:
    """Each gets what he asked for, half of it kept before and half of it fetched meanwhile."""

    async def body() -> None:
        text = choosing(lambda request: result(contents(request.params["uri"], request.params["uri"])))
        async with fronted({READ: text}) as (it, wire):
            for n in range(0, 50, 2):
                await it.read(f"alpha+x://{n}")
            asked = [f"x://{n}" for n in range(50)]
            for uri, told in zip(
                asked, await asyncio.gather(*(it.read("alpha+" + uri) for uri in asked)), strict=True
            ):
                assert told.message["id"] == 1
                assert told.result["contents"] == [{"uri": "alpha+" + uri, "text": uri}]
            assert sorted(call.params["uri"] for call in wire.calls(READ)) == sorted(asked)
            sent = [call.message["id"] for call in wire.received]
            assert len(set(sent)) == len(sent)

    run(body())


def with_id(id: str, *, streamed: bool = False) -> Answer:  # noqa: A002 - the protocol's word
    """A result under this id, `$ID` being the right one."""
    text = b'{"jsonrpc":"2.0",%b"result":%b}' % (
        f'"id":{id},'.encode() if id else b"",
        json.dumps(ONE).encode(),
    )
    return stream(b"data: " + text + b"\n\n") if streamed else reply(text)


@pytest.mark.parametrize("streamed", [False, True], ids=["json", "stream"])
@pytest.mark.parametrize("id", ["999", '"$ID"', "$ID.0", "$ID.5", "-$ID", "null", "true", "[$ID]", ""])
def test_H23_an_answer_to_another_id(id: str, streamed: bool) -> None:  # noqa: A002 - the protocol's word
    """It is an error for that call, and is not kept."""

    async def body() -> None:
        async with fronted({READ: [with_id(id, streamed=streamed), result(ONE)]}) as (it, wire):
            failed(await it.read(URI), "bad_reply")
            assert (await it.read(URI)).cache_status == "mcp-federator; fwd=miss; stored"
            assert len(wire.calls(READ)) == 2

    run(body())


def test_H23_answers_that_were_swapped() -> None:
    """Of two calls at once each gets the answer with the other's id: neither is taken."""

    def swapped(request: Received) -> Iterator[Step]:
        yield both
        ids = [call.message["id"] for call in wires[0].calls(READ)]
        other = next(number for number in ids if number != request.message["id"])
        yield from with_id(str(other))(request)

    both = asyncio.Event()
    wires: list[Wire] = []

    async def body() -> None:
        async with fronted({READ: swapped}) as (it, wire):
            wires.append(wire)
            asked = asyncio.gather(it.read(URI), it.read("alpha+x://2"))
            await wire.arrived(READ, 2)
            both.set()
            for told in await asked:
                failed(told, "bad_reply")

    run(body())
