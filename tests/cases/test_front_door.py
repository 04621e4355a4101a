"""H33 to H38 and H40 at the whole product: what must not get past the door, and what must reach upstreams."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from mcp_federator.errors import ConfigError
from tests.instruments.house import House, Reply, body_of, configured, headers_of, house
from tests.instruments.wire import Wire, contents, never, result

READ = "resources/read"
LIST = "resources/list"


def sentinel(text: str) -> str:
    return f"=?base64?{b64encode(text.encode()).decode()}?="


@pytest.mark.parametrize(
    ("native", "named"),
    [
        pytest.param("file:///a.md", "file:///a.md", id="plain"),
        pytest.param("file:///Załączniki/x", sentinel("file:///Załączniki/x"), id="letters"),
        pytest.param("x://a\tb", sentinel("x://a\tb"), id="tab"),
        pytest.param("x://a ", sentinel("x://a "), id="space at the end"),
        pytest.param("=?base64?eA==?=", sentinel("=?base64?eA==?="), id="looks encoded"),
    ],
)
def test_H33_the_upstream_gets_its_own_name(native: str, named: str) -> None:
    """`Mcp-Name` toward an upstream is computed from the native URI, and encoded anew."""

    async def check() -> None:
        async with Wire({READ: result(contents(native))}) as wire, house({"alpha": wire.url}) as it:
            assert (await it.read(f"alpha+{native}")).status == 200
            (call,) = wire.calls(READ)
            assert call.header("mcp-name") == named
            assert call.params["uri"] == native
            assert call.header("mcp-method") == READ
            assert call.header("mcp-protocol-version") == "2026-07-28"

    asyncio.run(check())


def said(uri: str, **changes: str | None) -> dict[str, str]:
    """The header fields of a read, some replaced or left out."""
    headers = headers_of(READ, {"uri": uri})
    for name, value in changes.items():
        field = name.replace("_", "-")
        headers = {key: it for key, it in headers.items() if key.lower() != field}
        if value is not None:
            headers[field] = value
    return headers


ASKED = "alpha+x://ż"
DEEP = json.loads('{"a":' * 200 + "1" + "}" * 200)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        pytest.param(said(ASKED, mcp_name="=?base64?!!!?="), -32020, id="H33 no base64"),
        pytest.param(
            said(ASKED, mcp_name=sentinel(ASKED).replace("base64", "BASE64")), -32020, id="H33 upper case"
        ),
        pytest.param(said(ASKED, mcp_name=sentinel("alpha+x://y")), -32020, id="H33 another URI"),
        pytest.param(said(ASKED, mcp_name=None), -32020, id="H33 no Mcp-Name"),
        pytest.param(said(ASKED, mcp_method=LIST), -32020, id="H33 another method"),
        pytest.param(said(ASKED, mcp_method=None), -32020, id="H33 no Mcp-Method"),
        pytest.param(said(ASKED, mcp_protocol_version="2026-07-29"), -32020, id="H33 another version"),
        pytest.param(said(ASKED, origin="http://evil.test"), -32600, id="H36 foreign Origin"),
        pytest.param(said(ASKED, origin="null"), -32600, id="H36 null"),
        pytest.param(said(ASKED, origin="http://localhost.evil.test"), -32600, id="H36 lookalike"),
    ],
)
def test_H33_H36_what_is_refused_reaches_nobody(headers: Mapping[str, str], code: int) -> None:
    """A refused request costs no upstream call and no cache look-up."""

    async def check() -> None:
        async with Wire({READ: result(contents("x://ż"))}) as wire, house({"alpha": wire.url}) as it:
            body = json.dumps(body_of(READ, {"uri": ASKED})).encode()
            reply = await it.send(body, headers)
            assert reply.status in {400, 403}
            assert reply.error["code"] == code
            assert wire.calls(READ) == []
            assert await it.samples("mcp_federator_cache_requests_total") == 0

    asyncio.run(check())


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([], id="H35 empty batch"),
        pytest.param([body_of(READ, {"uri": "alpha+x://1"})] * 2, id="H35 batch"),
        pytest.param("str", id="H35 string"),
        pytest.param({"jsonrpc": "2.0", "id": None, "method": "notifications/x"}, id="H35 null id"),
        pytest.param(body_of(READ, {"uri": "alpha+x://1"}, id=1.5), id="H23 fraction"),
        pytest.param(body_of(READ, {"uri": "alpha+x://1"}, id=True), id="H23 true"),
        pytest.param(body_of(READ, {"uri": "alpha+x://1", "d": DEEP}, id=1), id="H15 deep"),
    ],
)
def test_H15_H23_H35_what_is_no_request_reaches_nobody(body: Any) -> None:
    """What is not one JSON-RPC request is 400 at once, and costs no upstream call."""

    async def check() -> None:
        async with Wire({READ: result(contents("x://1"))}) as wire, house({"alpha": wire.url}) as it:
            reply = await it.send(json.dumps(body).encode(), headers_of(READ, {"uri": "alpha+x://1"}))
            assert reply.status == 400
            assert reply.error["code"] in {-32600, -32700}
            assert wire.calls(READ) == []
            assert (await it.read("alpha+x://1")).status == 200

    asyncio.run(check())


def test_H38_a_client_that_leaves_closes_the_upstream_request() -> None:
    """When the only asker disconnects, the request to the upstream is closed, and nothing is left behind."""

    async def check() -> None:
        async with Wire({READ: never()}) as wire, house({"alpha": wire.url}) as it:
            reading = asyncio.create_task(it.read("alpha+x://1"))
            async with asyncio.timeout(10):
                while not wire.calls(READ):  # noqa: ASYNC110 - turns of the loop, not a wait
                    await asyncio.sleep(0)
                reading.cancel()
                await wire.calls(READ)[0].gone.wait()
                while (await it.status())["in_flight"]:
                    pass
            assert (await it.status())["upstreams"][0]["in_flight"] == 0

    asyncio.run(check())


def test_H38_a_client_that_leaves_a_list_closes_its_parts() -> None:
    """The same holds for every part of a list."""

    async def check() -> None:
        async with (
            Wire({LIST: never()}) as one,
            Wire({LIST: never()}) as two,
            house({"alpha": one.url, "beta": two.url}) as it,
        ):
            listing = asyncio.create_task(it.page())
            async with asyncio.timeout(10):
                while not (one.calls(LIST) and two.calls(LIST)):  # noqa: ASYNC110 - likewise
                    await asyncio.sleep(0)
                listing.cancel()
                await one.calls(LIST)[0].gone.wait()
                await two.calls(LIST)[0].gone.wait()

    asyncio.run(check())


async def series(it: House) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """The series of `/metrics`, which must parse."""
    text = (await it.get("/metrics")).body.decode()
    families = text_string_to_metric_families(text)
    return {
        (sample.name, frozenset(sample.labels.items())) for family in families for sample in family.samples
    }


ENDLESS: dict[str, Callable[[House, int], Coroutine[Any, Any, Reply]]] = {
    "URIs": lambda it, n: it.read(f"alpha+x://{n}"),
    "prefixes": lambda it, n: it.read(f"nobody{n}+x://1"),
    "tokens": lambda it, n: it.read("alpha+x://1", headers={"Authorization": f"Bearer token-{n}"}),
    "ids": lambda it, n: it.read("alpha+x://1", id=f"id-{n}"),
    "methods": lambda it, n: it.post(f"method/{n}"),
    "versions": lambda it, n: it.read(
        "alpha+x://1", version=f"1999-{n}", headers={"MCP-Protocol-Version": f"1999-{n}"}
    ),
    "clients": lambda it, n: it.read(
        "alpha+x://1", meta={"io.modelcontextprotocol/clientInfo": {"name": f"client-{n}", "version": "1"}}
    ),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_H40_series_do_not_grow_with_what_is_asked(what: str) -> None:
    """A thousand requests that differ in it have the very series of the first one, each counted there."""

    async def check() -> None:
        upstream = {READ: result(contents("x://1"))}
        async with (
            Wire(upstream) as wire,
            house({"alpha": {"url": wire.url, "forward": ["authorization"]}}) as it,
        ):
            await ENDLESS["URIs"](it, 1)
            await ENDLESS[what](it, 0)
            await ENDLESS[what](it, 0)
            before = await series(it)
            asked = await it.samples("mcp_federator_requests_total")
            for first in range(1, 1001, 50):
                await asyncio.gather(*(ENDLESS[what](it, n) for n in range(first, first + 50)))
            assert await series(it) == before
            assert await it.samples("mcp_federator_requests_total") == asked + 1000

    asyncio.run(check())


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", 'a"} 1\nb{c="'])
def test_H40_an_upstream_name_that_no_label_should_hold_is_refused(name: str) -> None:
    """What would have to be escaped in a label is no name."""
    with pytest.raises(ConfigError, match="1 to 31 lower-case letters"):
        configured({name: "http://127.0.0.1:9/mcp"})
