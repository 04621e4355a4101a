import asyncio
from typing import Any

import pytest

from mcp_federator import config
from mcp_federator.model import Answer, Caller, Query
from tests.endpoint.door import (
    HIT,
    Door,
    HangingSource,
    ScriptedSource,
    compact,
    message,
    once,
    read,
    request,
    run,
)

pytestmark = pytest.mark.usefixtures("each_loop")

ALLOWED = "https://app.example"
BEYOND = config.Server(host="0.0.0.0", allowed_origins=(ALLOWED,))


# Origin


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE", "OPTIONS", "PUT", "PATCH"])
@pytest.mark.parametrize(
    "origins",
    [
        ("http://evil.test",),
        ("null",),
        ("http://localhost.evil.test",),
        ("",),
        (ALLOWED, ALLOWED),
        (ALLOWED, "http://evil.test"),
        ("http://localhost",),
    ],
    ids=lambda origins: " and ".join(origins) or "empty",
)
def test_H36_origin_not_allowed_is_refused_before_anything_else(verb: str, origins: tuple[str, ...]) -> None:
    """403 with a JSON-RPC error without id, on every method, whatever else is wrong, and nothing is asked."""

    async def body() -> None:
        async with Door(settings=BEYOND) as door:
            added = [("Origin", origin) for origin in origins]
            for sent in (
                request(read(), added, verb=verb),
                request(b"{", [*added, ("Content-Encoding", "br")], verb=verb, path="/elsewhere"),
            ):
                response = await door.ask(sent)
                assert response.status == 403
                assert response.code == -32600
                assert "id" not in response.message
                assert response.header("Access-Control-Allow-Origin") is None
            assert door.source.asked == []

    run(body())


@pytest.mark.parametrize(
    ("verb", "status"), [("POST", 200), ("GET", 405), ("DELETE", 405), ("OPTIONS", 204), ("HEAD", 405)]
)
@pytest.mark.parametrize(
    ("origin", "settings"),
    [
        (None, BEYOND),
        (ALLOWED, BEYOND),
        (f"{ALLOWED}:443", BEYOND),
        ("http://localhost:6274", config.Server()),
    ],
    ids=["absent", "allowed", "default port written out", "loopback"],
)
def test_H36_origin_absent_or_allowed(
    verb: str, status: int, origin: str | None, settings: config.Server
) -> None:
    """A request without Origin goes on; so does an allowed page's, which also learns that it may read."""

    async def body() -> None:
        async with Door(settings=settings) as door:
            response = await door.ask(
                request(read(), {"Origin": origin}, verb=verb), head_only=verb == "HEAD"
            )
            assert response.status == status
            assert response.header("Access-Control-Allow-Origin") == origin
            assert response.header("Vary") == (None if origin is None else "Origin")
            exposed = response.header("Access-Control-Expose-Headers")
            assert exposed == (None if origin is None else "Cache-Status, Mcp-Session-Id, Retry-After")

    run(body())


def test_H36_preflight_names_what_a_page_may_send() -> None:
    """OPTIONS of an allowed page: the methods, MCP's own fields, those of configuration, and for how long."""
    door = Door(settings=BEYOND, forwarded=frozenset({"x-team"}))
    asks = {
        "Origin": ALLOWED,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "mcp-name",
    }
    response = run(once(request(b"", asks, verb="OPTIONS"), door=door))
    assert response.status == 204
    assert response.header("Content-Length") is None
    assert response.header("Access-Control-Allow-Methods") == "GET, POST, DELETE"
    assert response.header("Access-Control-Max-Age") == "7200"
    allowed = {name.lower() for name in (response.header("Access-Control-Allow-Headers") or "").split(", ")}
    assert allowed >= {
        "content-type",
        "mcp-protocol-version",
        "mcp-method",
        "mcp-name",
        "authorization",
        "x-team",
    }


def test_H36_error_reaches_an_allowed_page() -> None:
    """A refusal carries the CORS fields too, or the page could not read why."""
    response = run(once(request(b"{", {"Origin": ALLOWED}), door=Door(settings=BEYOND)))
    assert (response.status, response.code) == (400, -32700)
    assert response.header("Access-Control-Allow-Origin") == ALLOWED


# Method, path, media types, fields


@pytest.mark.parametrize("verb", ["GET", "DELETE", "PUT", "PATCH", "HEAD", "TRACE"])
def test_H34_other_methods_are_not_allowed(verb: str) -> None:
    """405 naming what is allowed: without a legacy session no stream to get, and none to delete."""

    async def body() -> None:
        async with Door() as door:
            headers = {"Last-Event-ID": "7", "Accept": "text/event-stream"}
            response = await door.ask(request(b"", headers, verb=verb), head_only=verb == "HEAD")
            assert response.status == 405
            stray = {**headers, "Mcp-Session-Id": "s1", "MCP-Protocol-Version": "2026-07-28"}
            response = await door.ask(request(b"", stray, verb=verb), head_only=verb == "HEAD")
            assert response.status == 405
            assert response.header("Allow") == "GET, POST, DELETE, OPTIONS"
            assert response.header("Mcp-Session-Id") is None

    run(body())


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/mcp", 200),
        ("/mcp?x=1", 200),
        ("http://127.0.0.1/mcp", 200),
        ("/", 404),
        ("/mcp/", 404),
        ("/mcpx", 404),
        ("/.well-known/oauth-protected-resource/mcp", 404),
    ],
)
def test_path(path: str, status: int) -> None:
    """The endpoint has one path; elsewhere a JSON-RPC error says which."""
    response = run(once(request(read(), path=path), asked=1 if status == 200 else 0))
    assert response.status == status
    if status == 404:
        assert response.code == -32600
        assert "/mcp" in response.message["error"]["message"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": None}, 415),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/json; charset=utf-16"}, 415),
        ({"Content-Type": "application/json; charset=utf-8"}, 200),
        ({"Accept": None}, 200),
        ({"Accept": "*/*"}, 200),
        ({"Accept": "application/json"}, 200),
        ({"Accept": "text/event-stream"}, 200),
        ({"Accept": "text/html"}, 406),
        ({"Content-Encoding": "br"}, 415),
        ({"Content-Encoding": "identity"}, 200),
        ({"Last-Event-ID": "7", "Mcp-Session-Id": "s1"}, 200),
    ],
    ids=str,
)
def test_media_types_and_stray_fields(headers: dict[str, str | None], status: int) -> None:
    """415 and 406 come before the body; fields of older revisions are passed over, and none echoed."""
    response = run(once(request(read(), headers), asked=1 if status == 200 else 0))
    assert response.status == status
    assert response.code == (None if status == 200 else -32600)
    assert response.header("Mcp-Session-Id") is None


def test_accept_in_several_fields_is_one_list() -> None:
    """What one Accept does not allow, another may."""
    twice = request(read(), {"Accept": None}).replace(b"\r\n", b"\r\nAccept: text/html\r\nAccept: */*\r\n", 1)
    assert run(once(twice, asked=1)).status == 200


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "Cookie",
        "X-Api-Key",
        "Proxy-Authorization",
        "X-Tenant-Key",
        "MCP-Protocol-Version",
        "Mcp-Method",
        "Mcp-Name",
        "Mcp-Session-Id",
        "Content-Type",
    ],
)
@pytest.mark.parametrize("spelling", [str, str.lower], ids=["same", "lower"])
def test_repeated_field_is_refused(name: str, spelling: Any) -> None:
    """Two values of a credential or of an MCP field are two truths: 400, nothing asked, nothing echoed."""
    door = Door(credentials=frozenset({"x-tenant-key"}))
    sent = request(read(), {name: "first"}).replace(b"\r\n", f"\r\n{spelling(name)}: second\r\n".encode(), 1)
    response = run(once(sent, door=door))
    assert response.status == 400
    assert response.code == -32600
    assert b"second" not in response.body


def test_only_forwarded_fields_go_along() -> None:
    """The caller brings what some upstream's `forward` names, in lower case, several values as one list."""

    async def body() -> None:
        async with Door(forwarded=frozenset({"authorization", "x-team"})) as door:
            headers = [("AUTHORIZATION", "Bearer t"), ("X-Team", "a"), ("x-team", "b"), ("Cookie", "c=1")]
            await door.post(read(), headers)
            await door.post(read())
            assert [caller.headers for caller in door.source.callers] == [
                {"authorization": "Bearer t", "x-team": "a, b"},
                {},
            ]

    run(body())


def test_forwarded_fields_follow_a_reload() -> None:
    """After `forward` other fields go along, other credentials stand once, and a page may send the new."""

    async def body() -> None:
        async with Door(settings=BEYOND, forwarded=frozenset({"x-old"})) as door:
            headers = [("X-Old", "o"), ("X-New", "n"), ("X-Key", "1"), ("X-Key", "2")]
            await door.post(read(), headers)
            door.endpoint.forward(frozenset({"x-new"}), frozenset())
            await door.post(read(), headers)
            assert [caller.headers for caller in door.source.callers] == [{"x-old": "o"}, {"x-new": "n"}]
            door.endpoint.forward(frozenset({"x-new"}), frozenset({"x-key"}))
            assert (await door.post(read(), headers)).status == 400
            preflight = await door.ask(request(b"", {"Origin": ALLOWED}, verb="OPTIONS"))
            assert (preflight.header("Access-Control-Allow-Headers") or "").endswith(", x-new")

    run(body())


def test_forwarded_field_must_be_text() -> None:
    """Bytes that are no text could not go upstream as they came."""
    response = run(once(request(read(), {"X-Team": "\udcff"}), door=Door(forwarded=frozenset({"x-team"}))))
    assert response.status == 400


# Disconnects


def test_H38_client_that_leaves_cancels_its_request(caplog: pytest.LogCaptureFixture) -> None:
    """The source's work is cancelled promptly; no traceback, no task left, and its line in the log."""

    async def body() -> None:
        async with Door(HangingSource()) as door:
            client = await door.connect()
            await client.send(request(read()))
            await door.source.asked.wait()
            await client.close()
            await door.source.cancelled.wait()
            door.federator = ScriptedSource()
            assert (await door.post(read(id=2))).status == 200
            assert [(line["id"], line["status"]) for line in door.told] == [(1, "client_error"), (2, "ok")]

    run(body())
    assert caplog.records == []


def test_H38_others_are_not_touched() -> None:
    """One client's leaving ends his own request alone."""

    async def body() -> None:
        release = asyncio.Event()
        asked = asyncio.Barrier(3)
        ended: list[str] = []

        async def hold(query: Query, caller: Caller) -> Answer:  # noqa: ARG001 - a source's signature
            await asked.wait()
            try:
                await release.wait()
            except asyncio.CancelledError:
                ended.append(str(query.uri))
                release.set()
                raise
            return HIT

        async with Door(ScriptedSource(hold)) as door:
            leaver, stayer = await door.connect(), await door.connect()
            await leaver.send(request(read("docs+x://leaver")))
            await stayer.send(request(read("docs+x://stayer")))
            await asked.wait()
            await leaver.close()
            assert (await stayer.receive()).status == 200
            assert ended == ["docs+x://leaver"]

    run(body())


def test_H38_source_that_is_cancelled_is_no_client_that_left(caplog: pytest.LogCaptureFixture) -> None:
    """Work that others cancelled fails this request as any fault does; the client is answered."""

    async def body() -> None:
        async def fall(query: Query, caller: Caller) -> Answer:  # noqa: ARG001 - a source's signature
            raise asyncio.CancelledError

        async with Door(ScriptedSource(fall)) as door:
            client = await door.connect()
            await client.send(request(read()))
            response = await client.receive()
            assert (response.status, response.code) == (500, -32603)
            door.federator = ScriptedSource()
            await client.send(request(read()))
            assert (await client.receive()).status == 200

    run(body())
    assert len(caplog.records) == 1


# Errors, limits, refresh


@pytest.mark.parametrize(
    "fault", [RuntimeError("secret"), TimeoutError(), ConnectionResetError(), KeyError("x")], ids=repr
)
def test_exception_inside_is_one_error_and_the_process_goes_on(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """500 with -32603 and nothing of the exception's text; one traceback; the connection serves on."""

    async def body() -> None:
        async with Door(ScriptedSource(fault)) as door:
            client = await door.connect()
            await client.send(request(read(id="x")))
            response = await client.receive()
            assert (response.status, response.code, response.message["id"]) == (500, -32603, "x")
            assert b"secret" not in response.body
            door.federator = ScriptedSource()
            await client.send(request(read()))
            assert (await client.receive()).status == 200
            assert [line["status"] for line in door.told] == ["internal_error", "ok"]

    run(body())
    assert [record.exc_info is not None for record in caplog.records] == [True]


@pytest.mark.parametrize(
    ("policy", "headers", "refresh"),
    [
        ("loopback", {"Cache-Control": "no-cache"}, True),
        ("always", {"Cache-Control": "max-age=0, no-cache"}, True),
        ("always", {"Cache-Control": "no-cache", "X-Forwarded-For": "192.0.2.1"}, True),
        ("never", {"Cache-Control": "no-cache"}, False),
        ("loopback", {"Cache-Control": "no-cache", "X-Forwarded-For": "192.0.2.1"}, False),
        ("always", {"Cache-Control": "no-store"}, False),
        ("always", {}, False),
    ],
    ids=str,
)
def test_refresh_where_the_configuration_lets(
    policy: Any, headers: dict[str, str | None], refresh: bool
) -> None:
    """`Cache-Control: no-cache` asks upstream; `loopback` lets clients of this machine alone."""

    async def body() -> None:
        async with Door(cache=config.Cache(client_refresh=policy)) as door:
            await door.post(read(), headers)
            assert [query.refresh for query in door.source.asked] == [refresh]

    run(body())


# The connection, the log, the metrics


def test_log_tells_each_request() -> None:
    """One line per request: id, method, era, upstreams, outcome, status, size, and at debug level the URI."""

    async def body() -> None:
        async with Door() as door:
            response = await door.post(read("docs+x://1", id="a"))
            await door.ask(request(b"", verb="GET"))
            await door.ask(
                request(compact({"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": {}}))
            )
            hit, got, legacy = door.told
            assert hit == hit | {
                "id": "a",
                "method": "resources/read",
                "era": "modern",
                "upstreams": ["docs"],
                "outcome": "hit",
                "status": "ok",
                "bytes": len(response.body),
                "uri": "docs+x://1",
            }
            assert (got["id"], got["method"], got["status"]) == (None, "GET", "client_error")
            assert (legacy["id"], legacy["era"]) == (2, "legacy")

    run(body())


def test_H40_unknown_methods_make_no_series() -> None:
    """A thousand methods nobody knows, and other verbs, are counted as one."""

    async def body() -> None:
        async with Door() as door:
            client = await door.connect()
            for n in range(1000):
                await client.send(request(message(f"made/up{n}")))
                assert (await client.receive()).status == 404
            await door.ask(request(b"", verb="GET"))
            await door.ask(request(b"{"))
            assert door.counted == {'era="modern",method="other",status="client_error"': 1002}

    run(body())
