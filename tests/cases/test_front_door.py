"""H33 to H38 and H40 at the whole product: what must not get past the door, and what must reach upstreams."""

import asyncio
import gzip
import io
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

import pytest
from multidict import CIMultiDict
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from mcp_federator.errors import ConfigError
from tests.instruments.fronted import after
from tests.instruments.house import House, Reply, body_of, configured, headers_of, house
from tests.instruments.wire import Wire, contents, never, page, result

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


@pytest.mark.parametrize(
    "spelling", [str.lower, str.upper, str.title], ids=["lower case", "upper case", "title case"]
)
def test_H33_header_names_have_no_case(spelling: Callable[[str], str]) -> None:
    """Their values do; the upstream gets its own name whichever way the client spelt the field."""

    async def check() -> None:
        async with Wire({READ: result(contents("x://ż"))}) as wire, house({"alpha": wire.url}) as it:
            headers = {spelling(name): value for name, value in said(ASKED).items()}
            reply = await it.send(json.dumps(body_of(READ, {"uri": ASKED})).encode(), headers)
            assert (reply.status, reply.uris) == (200, [ASKED])
            (call,) = wire.calls(READ)
            assert call.header("mcp-name") == sentinel("x://ż")

    asyncio.run(check())


def versioned(version: str) -> bytes:
    return json.dumps(body_of(READ, {"uri": "alpha+x://1"}, version=version)).encode()


def incapable() -> bytes:
    body = body_of(READ, {"uri": "alpha+x://1"})
    del body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    return json.dumps(body).encode()


X1 = "alpha+x://1"


@pytest.mark.parametrize(
    ("verb", "body", "headers", "status", "code"),
    [
        pytest.param(
            "POST",
            versioned("1900-01-01"),
            said(X1, mcp_protocol_version="1900-01-01"),
            400,
            -32022,
            id="version",
        ),
        pytest.param("POST", incapable(), said(X1), 400, -32602, id="no capabilities"),
        pytest.param(
            "POST",
            json.dumps(body_of("foo/bar")).encode(),
            headers_of("foo/bar"),
            404,
            -32601,
            id="unknown method",
        ),
        pytest.param("GET", b"", {"Accept": "text/event-stream"}, 405, -32600, id="GET without a session"),
        pytest.param("DELETE", b"", {}, 405, -32600, id="DELETE without a session"),
    ],
)
def test_H34_what_is_no_request_of_ours_reaches_nobody(
    verb: str, body: bytes, headers: Mapping[str, str], status: int, code: int
) -> None:
    """Told by status and code, as JSON, so that no client takes us for another kind of server."""

    async def check() -> None:
        async with Wire({READ: result(contents("x://1"))}) as wire, house({"alpha": wire.url}) as it:
            reply = await it.send(body, headers, verb)
            assert (reply.status, reply.error["code"]) == (status, code)
            assert reply.headers["Content-Type"].startswith("application/json")
            if code == -32022:
                assert "2026-07-28" in reply.error["data"]["supported"]
            assert wire.calls(READ) == []

    asyncio.run(check())


def test_H34_stray_fields_of_another_era_are_passed_over() -> None:
    """A modern request with a session and an event id is a modern request; neither goes up nor comes back."""
    strays = {"Mcp-Session-Id": "stray", "Last-Event-ID": "7"}

    async def check() -> None:
        async with Wire({READ: result(contents("x://1"))}) as wire, house({"alpha": wire.url}) as it:
            reply = await it.read(X1, headers=strays)
            assert reply.uris == [X1]
            assert not strays.keys() & reply.headers.keys()
            (call,) = wire.calls(READ)
            assert [call.header(name.lower()) for name in strays] == [None, None]

    asyncio.run(check())


def test_H35_a_notification_is_accepted_and_reaches_nobody() -> None:
    """202 and no body."""

    async def check() -> None:
        async with Wire({READ: result(contents("x://1"))}) as wire, house({"alpha": wire.url}) as it:
            before = len(wire.received)
            body = {"jsonrpc": "2.0", "method": "notifications/x"}
            reply = await it.send(json.dumps(body).encode(), headers_of("notifications/x"))
            assert (reply.status, reply.body) == (202, b"")
            assert len(wire.received) == before

    asyncio.run(check())


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    ("origins", "allowed"),
    [
        (["http://evil.test"], False),
        (["null"], False),
        (["http://localhost.evil.test"], False),
        (["https://app.test", "http://evil.test"], False),
        (["https://app.test", "https://app.test"], False),
        ([], True),
        (["https://app.test"], True),
        (["https://app.test:443"], True),
    ],
    ids=["foreign", "null", "lookalike", "two", "twice", "none", "allowed", "default port"],
)
def test_H36_an_origin_is_allowed_or_reaches_nobody(verb: str, origins: list[str], allowed: bool) -> None:
    """On every method; 403 before any look-up, and without it the request goes its way."""

    async def check() -> None:
        async with (
            Wire({READ: result(contents("x://1"))}) as wire,
            house({"alpha": wire.url}, server={"allowed_origins": ["https://app.test"]}) as it,
        ):
            headers = CIMultiDict(headers_of(READ, {"uri": X1}))
            headers.extend([("Origin", origin) for origin in origins])
            body = json.dumps(body_of(READ, {"uri": X1})).encode() if verb == "POST" else b""
            reply = await it.send(body, headers, verb)
            assert (reply.status != 403) is allowed
            assert len(wire.calls(READ)) == (1 if allowed and verb == "POST" else 0)
            looked_up = await it.samples("mcp_federator_cache_requests_total")
            assert looked_up == len(wire.calls(READ))

    asyncio.run(check())


BIG = json.dumps(body_of(READ, {"uri": X1, "x": "k" * 1_100_000})).encode()


async def in_pieces(body: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(body), 65_536):
        yield body[at : at + 65_536]


@pytest.mark.parametrize("how", ["length", "chunked", "gzip"])
def test_H37_a_body_that_is_too_large_reaches_nobody(how: str) -> None:
    """413 with a JSON-RPC error, however it is sent, and the next request is served."""

    async def check() -> None:
        headers = headers_of(READ, {"uri": X1}) | ({"Content-Encoding": "gzip"} if how == "gzip" else {})
        async with Wire({READ: result(contents("x://1"))}) as wire, house({"alpha": wire.url}) as it:
            data = {
                "length": io.BytesIO(BIG),
                "chunked": in_pieces(BIG),
                "gzip": gzip.compress(bytes(5_000_000)),
            }[how]
            async with it.session.post(it.url, data=data, headers=headers) as response:
                assert response.status == 413
                assert (await response.json())["error"]["code"] == -32600
            assert wire.calls(READ) == []
            assert (await it.read(X1)).uris == [X1]

    asyncio.run(check())


@pytest.mark.parametrize("how", ["length", "chunked", "gzip"])
def test_H37_a_body_of_exactly_the_limit_reaches_the_upstream(how: str) -> None:
    """The byte that is one too many is the next one."""
    short = json.dumps(body_of(READ, {"uri": X1, "x": ""})).encode()
    body = short.replace(b'"x": ""', b'"x": "%b"' % (b"k" * ((1 << 20) - len(short))))
    assert len(body) == 1 << 20
    data = {"length": io.BytesIO(body), "chunked": in_pieces(body), "gzip": gzip.compress(body)}[how]

    async def check() -> None:
        headers = headers_of(READ, {"uri": X1}) | ({"Content-Encoding": "gzip"} if how == "gzip" else {})
        async with Wire({READ: result(contents("x://1"))}) as wire, house({"alpha": wire.url}) as it:
            async with it.session.post(it.url, data=data, headers=headers) as response:
                assert (await response.json())["result"]["contents"][0]["uri"] == X1
            assert len(wire.calls(READ)) == 1

    asyncio.run(check())


def test_what_is_no_http_request_is_counted_too() -> None:
    """A reply that no handler gave stands in the metrics as a client's error, and reaches nobody."""

    async def check() -> None:
        async with Wire({READ: result(contents("x://1"))}) as wire, house({"alpha": wire.url}) as it:
            url = URL(it.url)
            for number, sent in enumerate((b"evil\r\n\r\n", b"POST /mcp HTTP/1.1\r\n\r\n"), 1):
                reader, writer = await asyncio.open_connection(url.host, url.port)
                writer.write(sent)
                assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
                writer.close()
                counted = await it.samples("mcp_federator_requests_total", status="client_error")
                assert counted == number == await it.samples("mcp_federator_requests_total")
            assert wire.calls(READ) == []

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


TEMPLATES = "resources/templates/list"


def test_only_those_who_wait_take_a_place() -> None:
    """With all of `server.max_in_flight` taken, copies are served, lists made of copies too; the rest is 503.

    A refused request is told when to come again, and there is room again once the others are done.
    """

    async def check() -> None:
        go = asyncio.Event()
        held = after(go, result(contents("x://2")))
        reads = [result(contents("x://1")), held, held, result(contents("x://4"))]
        lists = {LIST: result(page("x://1"))}
        async with (
            Wire({READ: reads, **lists}) as one,
            Wire(lists) as two,
            house({"alpha": one.url, "beta": two.url}, server={"max_in_flight": 2}) as it,
        ):
            await it.read("alpha+x://1")
            await it.page()
            waits = [asyncio.create_task(it.read(f"alpha+x://{n}")) for n in (2, 3)]
            await one.arrived(READ, 3)
            assert (await it.status())["in_flight"] == 2
            for _ in range(3):
                assert (await it.read("alpha+x://1")).status == 200
                assert (await it.page()).uris == ["alpha+x://1", "beta+x://1"]
            for refused in (await it.read("alpha+x://4"), await it.page(method=TEMPLATES)):
                assert (refused.status, refused.error["code"]) == (503, -32603)
                assert refused.error["data"] == {"reason": "overloaded"}
                assert refused.headers["Retry-After"] == "1"
            assert (await it.read("nobody+x://3")).error["code"] == -32602
            assert (await it.post("server/discover")).status == 200
            go.set()
            assert [reply.status for reply in await asyncio.gather(*waits)] == [200, 200]
            assert (await it.status())["in_flight"] == 0
            assert await it.samples("mcp_federator_cache_requests_total", outcome="hit", method=READ) == 3
            assert await it.samples("mcp_federator_cache_requests_total", outcome="hit", method=LIST) == 6
            assert await it.samples("mcp_federator_cache_requests_total", outcome="miss") == 5
            assert (await it.read("alpha+x://4")).status == 200

    asyncio.run(check())


def test_bodies_on_their_way_take_no_place() -> None:
    """Who has sent half a request keeps nobody from asking, and is answered once the rest is there."""

    async def check() -> None:
        async with (
            Wire({READ: result(contents("x://1"))}) as wire,
            house({"alpha": wire.url}, server={"max_in_flight": 1}) as it,
        ):
            url = URL(it.url)
            body = json.dumps(body_of(READ, {"uri": X1})).encode()
            fields = {**headers_of(READ, {"uri": X1}), "Host": "h", "Content-Length": str(len(body))}
            head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            half = f"POST /mcp HTTP/1.1\r\n{head}Expect: 100-continue\r\n\r\n".encode() + body[:9]
            begun = [await asyncio.open_connection(url.host, url.port) for _ in range(5)]
            for reader, writer in begun:
                writer.write(half)
                # Its body is being read: it was told to send on.
                assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
            assert (await it.status())["in_flight"] == 0
            assert (await it.read(X1)).uris == [X1]
            for reader, writer in begun:
                writer.write(body[9:])
                assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
                writer.close()

    asyncio.run(check())
