import asyncio
import logging
from email.utils import parsedate_to_datetime

import pytest
from aiohttp import web

from mcp_federator.endpoint.wire import Server
from mcp_federator.model import Answer, Caller, Query
from tests.endpoint.door import (
    HIT,
    PATIENCE,
    Client,
    Door,
    HangingSource,
    ScriptedSource,
    compact,
    once,
    read,
    read_fields,
    request,
    run,
    settle,
)

pytestmark = pytest.mark.usefixtures("each_loop")


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00evil",
        b"EVIL /mcp HTTP/1.1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nevil header\r\n\r\n",
    ],
    ids=["TLS", "no method", "no colon"],
)
def test_what_is_no_http(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A JSON-RPC error that repeats nothing of it, the end of the connection, and no traceback."""

    async def body() -> None:
        async with Door() as door:
            client = await door.connect()
            await client.send(sent)
            response = await client.receive()
            assert (response.status, response.code) == (400, -32600)
            assert b"evil" not in response.body
            assert response.header("Connection") == "close"
            assert await client.at_end()

    run(body())
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_connection_serves_many_requests_at_once() -> None:
    """Requests sent without waiting are answered in order on one connection."""

    async def body() -> None:
        async with Door() as door:
            client = await door.connect()
            await client.send(b"".join(request(read(id=n)) for n in range(20)))
            assert [(await client.receive()).message["id"] for _ in range(20)] == list(range(20))

    run(body())


def test_small_and_large_replies_keep_their_order() -> None:
    """A reply that waits for the loop's turn is never overtaken by one that does not."""

    async def sized(query: Query, _: Caller) -> Answer:
        size = 100_000 if (query.uri or "").endswith("large") else 10
        return Answer(b'"contents":[{"uri":"x","text":"%b"}]' % (b"x" * size), HIT.hint)

    async def body() -> None:
        async with Door(ScriptedSource(sized)) as door:
            client = await door.connect()
            kinds = ["small", "large", "small", "small", "large", "large", "small"] * 3
            await client.send(
                b"".join(request(read(f"docs+x://{kind}", id=n)) for n, kind in enumerate(kinds))
            )
            replies = [await client.receive() for _ in kinds]
            assert [reply.message["id"] for reply in replies] == list(range(len(kinds)))
            assert [len(reply.body) > 100_000 for reply in replies] == [kind == "large" for kind in kinds]

    run(body())


@pytest.mark.parametrize(
    ("how", "when"),
    [
        *((how, when) for how in ("close", "shutdown", "pre_shutdown") for when in ("before", "in its turn")),
        # Before the reply, they give the reply up.
        ("force_close", "in its turn"),
        ("half-close", "in its turn"),
    ],
)
def test_what_ends_a_connection_lets_its_reply_go_first(how: str, when: str) -> None:
    """A reply that was made is written, whatever ends the connection before the loop's next turn."""
    doors: list[Door] = []
    endings: list[asyncio.Future[None]] = []

    def end() -> None:
        web_server = doors[0].web
        (connection,) = web_server.connections
        if how == "shutdown":
            endings.append(asyncio.ensure_future(connection.shutdown(1)))
        elif how == "half-close":
            # What loops do when the client shuts its writing side.
            connection.eof_received()
            assert connection.transport is not None
            connection.transport.close()
        else:
            getattr(web_server if how == "pre_shutdown" else connection, how)()

    async def ending(*_: object) -> Answer:
        if when == "before":
            end()
        else:
            # Scheduled before the reply is, it runs right before the reply would be written.
            asyncio.get_running_loop().call_soon(end)
        return HIT

    async def body() -> None:
        async with Door(ScriptedSource(ending)) as door:
            doors.append(door)
            client = await door.connect()
            await client.send(request(read()))
            assert (await client.receive()).status == 200
            if when == "before" or how not in {"close", "pre_shutdown"}:
                # These may find the connection idle already, and leave its end to `shutdown`.
                assert await client.at_end()
            await asyncio.gather(*endings)

    run(body())


@pytest.mark.parametrize(
    ("version", "connection", "said", "ends"),
    [
        ("HTTP/1.1", None, None, False),
        ("HTTP/1.1", "close", "close", True),
        ("HTTP/1.0", None, "close", True),
        ("HTTP/1.0", "keep-alive", "keep-alive", False),
    ],
)
def test_connection_ends_when_the_client_says_so(
    version: str, connection: str | None, said: str | None, ends: bool
) -> None:
    """Connection is kept or closed by the rules of the client's version of HTTP."""

    async def body() -> None:
        async with Door() as door:
            client = await door.connect()
            await client.send(
                request(read(), {"Connection": connection}).replace(b"HTTP/1.1", version.encode(), 1)
            )
            response = await client.receive()
            assert response.status == 200
            # HTTP/1.0 closes where nothing is said.
            assert response.header("Connection") in (
                {None, "close"} if version == "HTTP/1.0" and ends else {said}
            )
            if ends:
                assert await client.at_end()
            else:
                await client.send(request(read()))
                assert (await client.receive()).status == 200

    run(body())


UPGRADE = {"Upgrade": "h2c", "Connection": "Upgrade, HTTP2-Settings", "HTTP2-Settings": ""}
CHUNKED = {**read_fields(), "Content-Length": None, "Transfer-Encoding": "chunked"}


@pytest.mark.parametrize(
    "sent",
    [
        request(b"", CHUNKED) + b"%x\r\n%b\r\n0\r\n" % (len(compact(read())), compact(read())) + trailer
        for trailer in (b"\r\n", b"X-Team: evil\r\n\r\n", b"X-Team: evil\r\nX-More: 1\r\n\r\n")
    ]
    + [request(read(), fields) for fields in (UPGRADE, {"Upgrade": "h2c"}, {"Connection": "upgrade"})]
    + [request(read(), {"Upgrade": "websocket", "Connection": "keep-alive, Upgrade"})],
    ids=["chunked", "trailer", "trailers", "h2c", "Upgrade alone", "Connection alone", "websocket"],
)
def test_request_after_which_the_parser_is_not_trusted_is_the_last(sent: bytes) -> None:
    """A trailer cannot become a field of the next request, nor one get lost behind what asks to upgrade."""

    async def body() -> None:
        async with Door(forwarded=frozenset({"x-team"})) as door:
            client = await door.connect()
            await client.send(sent + request(read(id="smuggled")))
            response = await client.receive()
            assert (response.status, response.message["id"]) == (200, 1)
            assert response.header("Connection") == "close"
            assert await client.at_end()
            assert [caller.headers for caller in door.source.callers] == [{}]

    run(body())


def test_go_on_does_not_overtake_a_reply() -> None:
    """The 100 that a second request waits for comes after the first one's reply."""

    async def body() -> None:
        async with Door() as door:
            sent = compact(read(id=2))
            fields = {**read_fields(), "Expect": "100-continue", "Content-Length": str(len(sent))}
            client = await door.connect()
            await client.send(request(read(id=1)) + request(b"", fields))
            assert (await client.receive()).message["id"] == 1
            assert (await client.receive()).status == 100
            await client.send(sent)
            assert (await client.receive()).message["id"] == 2

    run(body())


async def half_closed(door: Door, sent: bytes) -> Client:
    """A client that has ended its side right behind what it sent."""
    client = await door.connect()
    await client.send(sent)
    client.writer.write_eof()
    return client


@pytest.mark.parametrize("size", [10, 3_000_000], ids=["small", "large"])
@pytest.mark.parametrize("count", [1, 5])
def test_client_that_ends_its_side_gets_what_is_ready(
    count: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests that came whole are answered, and with the last reply the connection ends."""
    monkeypatch.setattr("mcp_federator.endpoint.wire.HALF_CLOSED_SECONDS", PATIENCE * 2)

    async def body() -> None:
        answer = Answer(b'"contents":[{"uri":"x","text":"%b"}]' % (b"x" * size), HIT.hint)
        async with Door(ScriptedSource(answer)) as door:
            client = await half_closed(door, b"".join(request(read(id=n)) for n in range(count)))
            for n in range(count):
                response = await client.receive()
                assert (response.status, response.message["id"]) == (200, n)
            assert await client.at_end()
            assert [line["status"] for line in door.told] == ["ok"] * count

    run(body())


def test_H38_client_that_ends_its_side_does_not_keep_an_upstream_waiting() -> None:
    """What is not ready in a moment is cancelled: most who end their side have left."""

    async def body() -> None:
        async with Door(HangingSource()) as door:
            client = await half_closed(door, request(read()))
            await door.source.cancelled.wait()
            assert await client.at_end()
            assert [line["status"] for line in door.told] == ["client_error"]

    run(body())


@pytest.mark.parametrize(
    ("sent", "status"), [(request(read())[:-9], 400), (request(read())[:99], None), (b"", None)]
)
def test_client_that_ends_its_side_within_a_request(sent: bytes, status: int | None) -> None:
    """Half a body is told to be one; what has no head, or is nothing at all, gets nothing."""

    async def body() -> None:
        async with Door() as door:
            client = await half_closed(door, sent)
            if status is not None:
                assert (await client.receive()).status == status
            assert await client.at_end()
            assert door.source.asked == []

    run(body())


@pytest.mark.parametrize("then", ["asks", "idles"])
def test_idle_connection_may_bring_one_more_request_at_the_end(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the listener stops: what is on its way is answered, and told that it was the last."""
    if then == "idles":
        monkeypatch.setattr("mcp_federator.endpoint.wire.LAST_SECONDS", 0.01)

    async def body() -> None:
        async with Door() as door:
            client = await door.connect()
            await client.send(request(read()))
            assert (await client.receive()).header("Connection") is None
            door.web.pre_shutdown()
            ending = asyncio.ensure_future(door.web.shutdown(PATIENCE))
            await settle()
            if then == "asks":
                await client.send(request(read()) * 2)
                response = await client.receive()
                assert (response.status, response.header("Connection")) == (200, "close")
            assert await client.at_end()
            await ending

    run(body())


def test_request_under_way_at_the_end_is_told_that_it_is_the_last() -> None:
    """Its reply comes within the grace time, and says that the connection ends."""

    async def body() -> None:
        go, asked = asyncio.Event(), asyncio.Event()

        async def slow(*_: object) -> Answer:
            asked.set()
            await go.wait()
            return HIT

        async with Door(ScriptedSource(slow)) as door:
            client = await door.connect()
            await client.send(request(read()))
            await asked.wait()
            ending = asyncio.ensure_future(door.web.shutdown(PATIENCE))
            await settle()
            go.set()
            response = await client.receive()
            assert (response.status, response.header("Connection")) == (200, "close")
            assert await client.at_end()
            await ending

    run(body())


def test_no_time_to_end_is_no_time() -> None:
    """With a grace time of 0 a request that hangs does not keep the listener."""

    async def body() -> None:
        async with Door(HangingSource()) as door:
            client = await door.connect()
            await client.send(request(read()))
            await door.source.asked.wait()
            await door.web.shutdown(0)
            await door.source.cancelled.wait()
            assert await client.at_end()

    run(body())


def test_handler_that_fails_is_a_json_rpc_error(caplog: pytest.LogCaptureFixture) -> None:
    """What leaves a handler is a 500 that repeats none of it, one traceback, and the connection's end."""

    async def fail(request: web.BaseRequest) -> web.StreamResponse:  # noqa: ARG001 - a handler's signature
        raise RuntimeError("secret")

    async def body() -> None:
        web_server = Server(fail)
        server = await asyncio.get_running_loop().create_server(web_server, "127.0.0.1", 0)
        client = Client(*await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1]))
        await client.send(request(read()))
        response = await client.receive()
        assert (response.status, response.code) == (500, -32603)
        assert b"secret" not in response.body
        assert await client.at_end()
        await client.close()
        server.close()
        await web_server.shutdown(1)

    run(body())
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_reply_has_a_date() -> None:
    """Every reply says when it was made (RFC 9110, 6.6.1), and not by which software."""
    response = run(once(request(read()), asked=1))
    assert parsedate_to_datetime(response.header("Date") or "").tzinfo is not None
    assert response.header("Server") is None
