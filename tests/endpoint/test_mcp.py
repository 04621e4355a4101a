import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator import config
from mcp_federator.errors import McpError, Reason, UpstreamError, UpstreamFailure
from mcp_federator.model import Answer, Caller, Query
from tests.endpoint.door import (
    CAPABILITIES,
    HIT,
    META,
    PAGE,
    VERSION,
    Door,
    HangingSource,
    Response,
    ScriptedSource,
    compact,
    message,
    once,
    read,
    read_fields,
    request,
    run,
)


def test_read_gets_its_answer() -> None:
    """A read's reply: JSON, the id, the body, the hint, and how the cache did."""

    async def body() -> None:
        async with Door() as door:
            response = await door.post(read("docs+x://1", id="a-1"))
            assert response.status == 200
            assert response.header("Cache-Status") == "mcp-federator; hit; ttl=30"
            assert response.message["id"] == "a-1"
            result = response.message["result"]
            assert result["contents"] == [{"uri": "docs+x://1", "text": "one"}]
            assert (result["resultType"], result["ttlMs"], result["cacheScope"]) == (
                "complete",
                30_000,
                "public",
            )
            assert door.source.asked == [Query(door.source.asked[0].method, uri="docs+x://1")]
            assert door.source.callers == [Caller()]

    run(body())


@pytest.mark.parametrize("cursor", [None, "", "c1"])
@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list"])
def test_list_passes_the_cursor(method: str, cursor: str | None) -> None:
    """No cursor, an empty one and any other are three different questions."""

    async def body() -> None:
        async with Door() as door:
            response = await door.post(message(method, {} if cursor is None else {"cursor": cursor}))
            assert response.status == 200
            assert [(query.method, query.cursor) for query in door.source.asked] == [(method, cursor)]

    run(body())


def test_discover_asks_nobody() -> None:
    """Discover is answered from the configuration, while everything else waits."""

    async def body() -> None:
        settings = config.Server(instructions="Ask away.")
        async with Door(HangingSource(), settings=settings, discovered=(b'{"resources":{}}', 60_000)) as door:
            waiting = await door.connect()
            await waiting.send(request(read()))
            await door.source.asked.wait()
            response = await door.post(message("server/discover"))
            assert response.status == 200
            result = response.message["result"]
            assert result["supportedVersions"] == [VERSION]
            assert result["capabilities"] == {"resources": {}}
            assert result["instructions"] == "Ask away."
            assert (result["ttlMs"], result["cacheScope"]) == (60_000, "public")
            assert response.header("Cache-Status") is None
            await waiting.close()
            await door.source.cancelled.wait()

    run(body())


def test_capabilities_and_trace_context_go_along() -> None:
    """The caller carries the client's capabilities and its trace context, from `_meta` or else the fields."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    other = "00-" + "1" * 32 + "-" + "2" * 16 + "-00"

    async def body() -> None:
        async with Door() as door:
            meta = META | {
                "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
                "traceparent": parent,
            }
            await door.post(read(meta=meta), {"traceparent": other})
            await door.post(read(), {"traceparent": other, "tracestate": "a=b"})
            first, second = door.source.callers
            assert json.loads(first.capabilities) == {"sampling": {}}
            assert first.trace is not None
            assert first.trace.traceparent == parent
            assert second.trace is not None
            assert (second.trace.traceparent, second.trace.tracestate) == (other, "a=b")

    run(body())


@pytest.mark.parametrize(
    "method", ["foo/bar", "tools/list", "prompts/list", "tools/call", "resources/subscribe"]
)
def test_H34_method_not_offered(method: str) -> None:
    """404 and -32601, by which a client tells this from a server that has no such endpoint."""
    response = run(once(request(message(method, id="m"))))
    assert (response.status, response.code, response.message["id"]) == (404, -32601, "m")


@pytest.mark.parametrize(
    ("meta", "headers", "status", "code"),
    [
        ({**META, "io.modelcontextprotocol/protocolVersion": "1900-01-01"}, "1900-01-01", 400, -32022),
        ({"io.modelcontextprotocol/protocolVersion": VERSION}, VERSION, 400, -32602),
        (META, "2025-06-18", 400, -32020),
        (META, None, 400, -32020),
        (CAPABILITIES, "2025-06-18", 400, -32600),
        (CAPABILITIES, None, 400, -32600),
    ],
    ids=["unknown version", "no capabilities", "mismatch", "no header", "older header", "nothing"],
)
def test_H34_versions(meta: dict[str, Any], headers: str | None, status: int, code: int) -> None:
    """Each way to get the version wrong has its own error."""
    response = run(once(request(read(meta=meta), {"MCP-Protocol-Version": headers})))
    assert (response.status, response.code, response.message["id"]) == (status, code, 1)
    if code == -32022:
        assert response.message["error"]["data"]["supported"] == [VERSION]


ZALACZNIKI = "docs+file:///Załączniki/x"
ENCODED = "=?base64?ZG9jcytmaWxlOi8vL1phxYLEhWN6bmlraS94?="


@pytest.mark.parametrize(
    ("uri", "headers", "ok"),
    [
        (ZALACZNIKI, {"Mcp-Name": ENCODED}, True),
        (ZALACZNIKI, {"Mcp-Name": None, "mcp-name": ENCODED}, True),
        ("docs+x://1", {"Mcp-Method": None, "mcp-method": "resources/read"}, True),
        ("docs+x://1", {"MCP-Protocol-Version": None, "mcp-protocol-version": VERSION}, True),
        ("docs+x://1", {"Mcp-Name": "=?base64?ZG9jcyt4Oi8vMQ==?="}, True),
        (ZALACZNIKI, {"Mcp-Name": "=?base64?Z?="}, False),
        (ZALACZNIKI, {"Mcp-Name": ENCODED.replace("base64", "BASE64")}, False),
        (ZALACZNIKI, {"Mcp-Name": "=?base64?ZG9jcyt4Oi8vMQ==?="}, False),
        (ZALACZNIKI, {"Mcp-Name": None}, False),
        ("docs+x://1", {"Mcp-Name": None}, False),
        ("docs+x://1", {"Mcp-Name": "docs+x://2"}, False),
        ("docs+x://1", {"Mcp-Name": "\udcff"}, False),
        ("docs+x://1", {"Mcp-Method": None}, False),
        ("docs+x://1", {"Mcp-Method": "resources/list"}, False),
        ("docs+x://1", {"Mcp-Method": "Resources/Read"}, False),
        ("docs+x://1", {"MCP-Protocol-Version": "2025-11-25"}, False),
    ],
    ids=str,
)
def test_H33_fields_must_say_what_the_body_says(uri: str, headers: dict[str, str | None], ok: bool) -> None:
    """Mcp-Name is decoded and compared, names of fields in any case; else 400, -32020, and nothing asked."""

    async def body() -> None:
        async with Door() as door:
            response = await door.post(read(uri), headers)
            if ok:
                assert (response.status, response.code) == (200, None)
                assert [query.uri for query in door.source.asked] == [uri]
            else:
                assert (response.status, response.code) == (400, -32020)
                assert response.message["id"] == 1
                assert door.source.asked == []

    run(body())


@pytest.mark.parametrize(
    "text", ["0", '""', '"1"', "1", "-5", "9007199254740993", '"\\u0041"', "123456789012345678901"]
)
@pytest.mark.parametrize("method", ["resources/read", "foo/bar"])
def test_H23_id_comes_back_as_it_was_written(text: str, method: str) -> None:
    """Value and type of the id, on a result and on an error."""
    sent = (
        compact(read())
        .replace(b'"id":1', b'"id":' + text.encode())
        .replace(b"resources/read", method.encode())
    )
    response = run(once(request(sent, read_fields(method)), asked=1 if method == "resources/read" else 0))
    assert b'"id":' + text.encode() + b"," in response.body
    assert response.code == (None if method == "resources/read" else -32601)


@pytest.mark.parametrize("text", ["null", "1.5", "true", "{}", "[]"])
def test_H23_what_is_no_id(text: str) -> None:
    """400 and -32600, without an id and without asking."""
    sent = compact(read()).replace(b'"id":1', b'"id":' + text.encode())
    response = run(once(request(sent, read_fields())))
    assert (response.status, response.code) == (400, -32600)
    assert response.message.get("id") is None


def test_H23_everyone_uses_id_1() -> None:
    """Fifty clients at once, all with id 1: each gets the answer to his own question."""

    async def body() -> None:
        together = asyncio.Barrier(50)

        async def echo(query: Query, caller: Caller) -> Answer:  # noqa: ARG001 - a source's signature
            await together.wait()
            return Answer(f'"contents":[{{"uri":"{query.uri}"}}]'.encode(), HIT.hint, count=1)

        async with Door(ScriptedSource(echo)) as door:
            responses = await asyncio.gather(*(door.post(read(f"docs+x://{n}")) for n in range(50)))
            for n, response in enumerate(responses):
                assert response.message["id"] == 1
                assert response.message["result"]["contents"] == [{"uri": f"docs+x://{n}"}]

    run(body())


@pytest.mark.parametrize(
    "sent",
    [
        b"[]",
        compact([read(), read()]),
        b'"str"',
        b"1",
        b'{"jsonrpc":"2.0","method":"notifications/x","id":null}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}',
        b'{"id":1,"method":"resources/list"}',
    ],
    ids=["empty batch", "batch", "string", "number", "notification with id", "response", "no jsonrpc"],
)
def test_H35_body_is_no_single_message(sent: bytes) -> None:
    """400 and -32600, and nothing is asked."""
    response = run(once(request(sent, read_fields())))
    assert (response.status, response.code) == (400, -32600)


@pytest.mark.parametrize(
    "headers",
    [{}, {"MCP-Protocol-Version": VERSION}, {"MCP-Protocol-Version": VERSION, "Mcp-Session-Id": "s"}],
    ids=["bare", "modern", "stray session"],
)
@pytest.mark.parametrize(
    "method", ["notifications/x", "notifications/cancelled", "notifications/initialized"]
)
def test_H35_notification_gets_202_and_no_body(method: str, headers: dict[str, str | None]) -> None:
    """A notification is taken note of, with and without Mcp-Method, known or not."""
    sent = {"jsonrpc": "2.0", "method": method, "params": {"requestId": 1}}
    response = run(once(request(compact(sent), headers)))
    assert (response.status, response.body) == (202, b"")
    assert response.header("Content-Length") == "0"
    assert response.header("Content-Type") is None


@pytest.mark.parametrize(
    "sent",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        compact(read()).replace(b'"uri"', b'"d":' + b'{"a":' * 200 + b"1" + b"}" * 200 + b',"uri"'),
        b"\xef\xbb\xbf" + compact(read()),
        compact(read()).decode().encode("utf-16"),
        b"",
        b" ",
        b"{",
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        compact(read()).replace(b'"id":1', b'"id":1,"id":2'),
        compact(read()).replace(b'"uri"', b'"u\\u0072i":"docs+x://2","uri"'),
        compact(read()) + b"{}",
    ],
    ids=[
        "brackets",
        "braces",
        "200 levels",
        "BOM",
        "UTF-16",
        "empty",
        "blank",
        "cut",
        "not UTF-8",
        "two ids",
        "two uris",
        "two texts",
    ],
)
def test_H15_deep_or_broken_json(sent: bytes) -> None:
    """400 with a JSON-RPC error at once; the connection serves the next request."""

    async def body() -> None:
        async with Door() as door:
            client = await door.connect()
            await client.send(request(sent, read_fields()))
            response = await client.receive()
            assert response.status == 400
            assert response.code in {-32700, -32600}
            assert door.source.asked == []
            await client.send(request(read()))
            assert (await client.receive()).status == 200

    run(body())


def odd_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


UNREACHABLE = McpError(
    -32603, "Upstream docs cannot be reached.", data=b'{"upstream":"docs","reason":"unreachable"}'
)
UNREACHABLE.__cause__ = UpstreamFailure("docs", Reason.UNREACHABLE)


@pytest.mark.parametrize(
    ("error", "status", "code", "word", "upstreams"),
    [
        (McpError(-32602, "Unknown prefix.", data=b'{"uri":"x"}'), 200, -32602, "client_error", []),
        (UpstreamError("docs", -32602, "Not found.", not_found=True), 200, -32602, "client_error", ["docs"]),
        (UpstreamError("docs", 7001, "No.", data=b'{"k":1}'), 200, 7001, "upstream_error", ["docs"]),
        (UpstreamError("docs", -32021, "Needs sampling.", status=400), 400, -32021, "client_error", ["docs"]),
        (UNREACHABLE, 200, -32603, "upstream_error", ["docs"]),
    ],
    ids=["unknown prefix", "not found", "own code", "capability", "failure"],
)
def test_error_of_the_source(
    error: McpError, status: int, code: int, word: str, upstreams: list[str]
) -> None:
    """An error keeps status, code and data and gets the asker's id; log and metrics say whose fault it is."""

    async def body() -> None:
        async with Door(ScriptedSource(error)) as door:
            first, second = await door.post(read(id=1)), await door.post(read(id="two"))
            assert (first.status, first.code) == (status, code)
            assert [first.message["id"], second.message["id"]] == [1, "two"]
            assert first.message["error"].get("data") == (error.data and json.loads(error.data))
            assert first.header("Cache-Status") is None
            assert [(line["status"], line["upstreams"]) for line in door.told] == [(word, upstreams)] * 2
            assert door.counted == {f'era="modern",method="resources/read",status="{word}"': 2}

    run(body())


def test_interim_answer_is_counted_as_such() -> None:
    """`input_required` is passed on with status 200."""

    async def body() -> None:
        interim = Answer(b'"inputRequests":{},"requestState":"s"', HIT.hint, interim=True)
        async with Door(ScriptedSource(interim)) as door:
            response = await door.post(read())
            assert response.message["result"]["resultType"] == "input_required"
            assert door.told[0]["status"] == "input_required"

    run(body())


def test_a_reload_swaps_the_source() -> None:
    """A request asks the source that its holder has at that time."""

    async def body() -> None:
        async with Door() as door:
            other = ScriptedSource()
            await door.post(read())
            door.federator = other
            await door.post(read())
            assert (len(door.source.asked), len(other.asked)) == (1, 1)

    run(body())


@given(
    body=st.binary(max_size=200)
    | st.text(alphabet='{}[]",:0123456789\\\\abcdu \ud800é', max_size=60).map(odd_bytes)
)
def test_H15_whatever_comes_is_answered(body: bytes) -> None:
    """No bytes in the place of a body make a 5xx, or anything but JSON-RPC."""

    async def ask() -> Response:
        return await once(request(body, read_fields()))

    response = run(ask())
    assert response.status in {202, 400}
    if response.status == 400:
        assert response.code in {-32700, -32600, -32602}


@pytest.mark.parametrize(
    ("sent", "answer", "told"),
    [
        pytest.param(read(), HIT, "mcp-federator; hit; ttl=30", id="read"),
        pytest.param(message("resources/list"), PAGE, "mcp-federator; fwd=miss", id="list"),
        pytest.param(
            read(), Answer(b'"a":1', HIT.hint, interim=True), "mcp-federator; fwd=miss", id="interim"
        ),
        pytest.param(message("server/discover"), HIT, None, id="discover"),
        pytest.param(read(), UpstreamError("docs", -32602, "No."), None, id="an upstream's error"),
        pytest.param(read(), McpError(-32602, "No."), None, id="an error of ours"),
        pytest.param(message("made/up"), HIT, None, id="a method nobody knows"),
    ],
)
def test_cache_status_is_on_what_a_cache_could_have_given(
    sent: Any, answer: Answer | Exception, told: str | None
) -> None:
    """Results of reads and lists bear one member; errors and discover, which no copy can answer, none."""

    async def body() -> None:
        async with Door(ScriptedSource(answer)) as door:
            assert (await door.post(sent)).header("Cache-Status") == told

    run(body())
