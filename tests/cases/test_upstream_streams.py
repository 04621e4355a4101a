"""Replies as streams, without an end, without an answer: cases H16 and H17, and answers that are too large.

Each row is one input.  It is judged by what reached the upstream and by what the client got for it.
"""

import asyncio
import gc
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.instruments.fronted import (
    HEAD,
    INCOMPLETE,
    LIST,
    NO_CACHE,
    NOTE,
    ONE,
    PARAMS,
    PROGRESS,
    QUICK,
    READ,
    SHELF,
    URI,
    Clock,
    after,
    failed,
    fronted,
    run,
    shown,
    waiting,
)
from tests.instruments.house import house
from tests.instruments.wire import (
    PATIENCE,
    Answer,
    End,
    Received,
    Step,
    Wire,
    event,
    never,
    page,
    raw,
    reply,
    result,
    stream,
)

# H16: event streams, however they are framed.

RESPONSE = 'data: {"jsonrpc":"2.0","id":$ID,"result":$RESULT}\n\n'
WHOLE = (
    ":\n: ping\n\nid: 1\ndata:\n\nretry: 5\n" + NOTE.decode() + "event: message\n"
    'data:{"jsonrpc":"2.0",\ndata: "id":$ID,"result":$RESULT}\n\n'
)
FRAMES = {
    "no-event-name": RESPONSE,
    "event-name": "event: message\n" + RESPONSE,
    "empty-event-name": "event:\n" + RESPONSE,
    "two-data-lines": 'data:{"jsonrpc":"2.0",\ndata: "id":$ID,"result":$RESULT}\n\n',
    "data-lines-apart": 'data:{"jsonrpc":"2.0",\n: k\nid: 3\ndata: "id":$ID,"result":$RESULT}\n\n',
    "empty-data-lines": "data\n" + RESPONSE.removesuffix("\n") + "data:\n\n",
    "empty-comment": ":\n" + RESPONSE,
    "comment": ": ping\n\n" + RESPONSE,
    "long-comment": ":" + "k" * 70_000 + "\n\n" + RESPONSE,
    "comment-like-an-event": ': data: {"jsonrpc":"2.0","id":$ID,"result":{}}\n' + RESPONSE,
    "priming-event": "id: 1\ndata:\n\n" + RESPONSE,
    "retry": "retry: 5\n" + RESPONSE,
    "unknown-fields": "foo: bar\nData: x\n data: y\ndatum\n" + RESPONSE,
    "blank-lines": "\n\n\n" + RESPONSE,
    "notification": NOTE.decode() + RESPONSE,
    "request-of-the-server": 'data: {"jsonrpc":"2.0","id":$ID,"method":"ping"}\n\n' + RESPONSE,
    "event-of-another-kind": "event: endpoint\ndata: /messages?session=1\n\n" + RESPONSE,
    "event-name-that-ended": "event: other\n\n" + RESPONSE,
    "byte-order-mark": "\ufeff" + RESPONSE,
    "more-behind": RESPONSE + NOTE.decode() + "data: {",
    "as-the-case-has-it": "\ufeff" + WHOLE,
}
ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}


def framed(text: str, end: str, members: bytes, **how: Any) -> Answer:
    """A stream of this text, which carries a result; `how` as of `reply`."""

    def answer(request: Received) -> Iterator[Step]:
        told = text.replace("\n", end).encode().replace(b"$ID", b"%d" % request.message["id"])
        return iter(
            reply(told.replace(b"$RESULT", members), **{"content_type": "text/event-stream", **how})(request)
        )

    return answer


async def same_as_json(streamed: Answer, members: bytes, method: str) -> None:
    """The stream's answer is kept, and is what the same result in a JSON body makes."""
    clock = Clock()
    async with fronted({method: [streamed, result(members)]}, clock=clock) as (it, wire):
        fetched = await it.post(method, PARAMS[method])
        kept = await it.post(method, PARAMS[method])
        assert len(wire.calls(method)) == 1
        clock.now += 2
        as_json = await it.post(method, PARAMS[method], headers=NO_CACHE)
        assert len(wire.calls(method)) == 2
    assert fetched.cache_status == "mcp-federator; fwd=miss; stored"
    assert kept.cache_status == "mcp-federator; hit; ttl=60"
    assert fetched.body == kept.body == as_json.body
    assert len(shown(fetched)) == 1


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("text", FRAMES.values(), ids=FRAMES)
def test_H16_every_framing_is_one_response(text: str, end: str) -> None:
    """Fields, comments and line ends of any kind around a response change neither it nor what is kept."""
    members = json.dumps(ONE).encode()
    run(same_as_json(framed(text, end, members), members, READ))


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("cut", [1, 2, 7])
@pytest.mark.parametrize("method", SHELF)
def test_H16_cut_anywhere(method: str, cut: int, end: str) -> None:
    """A stream with everything in it is the same in pieces of any size, whatever was asked."""
    text = {**SHELF[method], "note": "ü \u2028 \x85 \x0b €"}
    members = json.dumps(text, ensure_ascii=False).encode()
    run(same_as_json(framed(FRAMES["as-the-case-has-it"], end, members, cut=cut), members, method))


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"content_type": "text/event-stream; charset=utf-8"}, id="charset"),
        pytest.param({"content_type": "Text/Event-Stream"}, id="letter-case"),
        pytest.param({"compress": True}, id="gzip"),
        pytest.param({"compress": True, "cut": 5}, id="gzip-in-chunks"),
        pytest.param({"status": 201}, id="status-201"),
    ],
)
def test_H16_every_way_to_send_a_stream(how: dict[str, Any]) -> None:
    """How the body is labelled and packed does not matter."""
    members = json.dumps(ONE).encode()
    run(same_as_json(framed(WHOLE, "\r\n", members, **how), members, READ))


def test_H16_errors_come_in_streams_too() -> None:
    """A stream that carries a JSON-RPC error is that error, and nothing is kept of it."""
    sent = stream(NOTE, b'data: {"jsonrpc":"2.0","id":$ID,"error":{"code":7001,"message":"m"}}\n\n')

    async def body() -> None:
        async with fronted({READ: [sent, result(ONE)]}) as (it, wire):
            assert (await it.read(URI)).error == {"code": 7001, "message": "m"}
            assert (await it.read(URI)).uris == [URI]
            assert len(wire.calls(READ)) == 2

    run(body())


# H17: replies that never come to an end, or to an answer.

PLAIN = HEAD.replace(b"text/event-stream", b"application/json")
GZIP = {"Content-Encoding": "gzip"}


def forever(part: bytes, head: bytes = HEAD) -> Answer:
    """The same again and again, at intervals far shorter than any time-out."""

    def answer(_: Received) -> Iterator[Step]:
        yield head
        while True:
            tick = asyncio.Event()
            asyncio.get_running_loop().call_later(0.02, tick.set)
            yield tick
            yield part

    return answer


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(stream(), "bad_reply", id="a-stream-closed-at-once"),
        pytest.param(raw(HEAD, End.CLOSE), "bad_reply", id="a-stream-and-connection-closed"),
        pytest.param(stream(b'data: {"jsonrpc":"2.0","id":$ID,'), "bad_reply", id="d-half-a-data-line"),
        pytest.param(raw(HEAD, b'data: {"jso', End.CLOSE), "bad_reply", id="d-half-a-line-closed"),
        pytest.param(stream(b'data: {"jso', End.CLOSE), "unreachable", id="d-half-a-line-chunked-closed"),
        pytest.param(stream(b'data: {"jso', End.RESET), "unreachable", id="d-half-a-line-reset"),
        pytest.param(stream(event(ONE)[:-1]), "bad_reply", id="event-without-its-blank-line"),
        pytest.param(stream(NOTE), "bad_reply", id="notification-then-end"),
        pytest.param(stream(b"id: 1\ndata:\n\n"), "bad_reply", id="priming-event-then-end"),
        pytest.param(stream(PROGRESS, b": bye\n\n"), "bad_reply", id="progress-then-end"),
        pytest.param(stream(b"data: [DONE]\n\n"), "bad_reply", id="no-json-rpc"),
        pytest.param(reply(b"", status=202, content_type=None), "bad_reply", id="accepted-and-no-more"),
        pytest.param(reply(b"", content_type="text/event-stream"), "bad_reply", id="empty-stream"),
        pytest.param(reply(b"[]"), "bad_reply", id="batch-of-nothing"),
        pytest.param(
            reply(b'{"jsonrpc":"2.0","id":$ID,"result":{}} {'), "bad_reply", id="more-than-an-answer"
        ),
        pytest.param(reply(b'{"jsonrpc":"2.0","id":$ID}'), "bad_reply", id="neither-result-nor-error"),
        pytest.param(
            reply(b'{"jsonrpc":"2.0","id":$ID,"result":{},"error":{"code":1,"message":""}}'),
            "bad_reply",
            id="result-and-error",
        ),
        pytest.param(reply(b"\x1f\x8bno", headers={"Content-Encoding": "gzip"}), "bad_reply", id="no-gzip"),
        pytest.param(
            reply(gzip.compress(bytes(99))[:-12], headers={"Content-Encoding": "gzip"}),
            "bad_reply",
            id="half-a-gzip",
        ),
        pytest.param(
            reply(b"{}", headers={"Content-Encoding": "br"}), "bad_reply", id="an-encoding-not-asked-for"
        ),
        pytest.param(
            raw(b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), "bad_reply", id="101"
        ),
        pytest.param(raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"), "bad_reply", id="304"),
        pytest.param(raw(PLAIN[:-2] + b"Content-Length: -1\r\n\r\n{}"), "bad_reply", id="no-length"),
        pytest.param(
            raw(PLAIN[:-2] + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"), "bad_reply", id="no-chunk"
        ),
        pytest.param(reply(b""), "bad_reply", id="empty-json"),
    ],
)
def test_H17_a_reply_that_ends_without_an_answer(answer: Answer, reason: str) -> None:
    """All who wait get one error, nothing is kept, and the next request is a fresh try."""

    async def body() -> None:
        go = asyncio.Event()
        async with fronted({READ: [after(go, answer), result(ONE)]}) as (it, wire):
            asked = asyncio.gather(*(it.read(URI) for _ in range(5)))
            await waiting(it, 5)
            go.set()
            for told in await asked:
                failed(told, reason)
            assert len(wire.calls(READ)) == 1
            assert (await it.read(URI)).cache_status == "mcp-federator; fwd=miss; stored"
            assert len(wire.calls(READ)) == 2
            assert await it.samples("mcp_federator_upstream_requests_total", outcome=reason) == 1

    run(body())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(forever(b": k\n\n"), id="b-comments"),
        pytest.param(forever(PROGRESS), id="c-progress"),
        pytest.param(forever(b"id: 1\ndata:\n\n"), id="priming-events"),
        pytest.param(
            forever(b'data: {"jsonrpc":"2.0","id":$ID,"method":"ping"}\n\n'), id="requests-of-the-server"
        ),
        pytest.param(forever(b"\n"), id="blank-lines"),
        pytest.param(forever(b"k", HEAD + b":"), id="a-line-without-end"),
        pytest.param(
            forever(
                b" ", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n{"
            ),
            id="a-json-body-by-drops",
        ),
        pytest.param(forever(b"X-Later: 1\r\n", b"HTTP/1.1 200 OK\r\n"), id="a-head-without-end"),
        pytest.param(forever(b"HTTP/1.1 103 Early Hints\r\n\r\n", b""), id="informational-responses"),
        pytest.param(raw(HEAD, End.HOLD), id="a-head-and-silence"),
        pytest.param(never(), id="silence"),
    ],
)
def test_H17_a_reply_that_never_ends(answer: Answer) -> None:
    """Whatever keeps coming, the time-out passes for all who wait, and the connection is closed."""

    async def body() -> None:
        async with fronted({READ: [answer, result(ONE)]}, QUICK) as (it, wire):
            for told in await asyncio.gather(*(it.read(URI) for _ in range(3))):
                failed(told, "timeout")
            (call,) = wire.calls(READ)
            await call.gone.wait()
            assert (await it.read(URI)).uris == [URI]
            assert len(wire.calls(READ)) == 2

    run(body())


@pytest.mark.parametrize("method", [READ, LIST])
def test_H17_a_request_as_a_whole_has_an_end(method: str) -> None:
    """`server.request_timeout` holds, however long the upstream's own time-out is."""

    async def body() -> None:
        server = {"request_timeout": 0.3}
        async with fronted({method: never()}, {"timeout": 20}, server=server) as (it, wire):
            failed(await it.post(method, PARAMS[method]), "timeout")
            (call,) = wire.calls(method)
            await call.gone.wait()

    run(body())


# Answers that are too large.

LIMIT = 65_536


def sized(size: int) -> bytes:
    """A whole JSON-RPC response of so many bytes, to the first call after the probe."""
    frame = b'{"jsonrpc":"2.0","id":2,"result":{"contents":[{"uri":"x://1","text":"%b"}],"ttlMs":60000}}'
    return frame % (b"k" * (size - len(frame) + len(b"%b")))


WAYS: dict[str, Callable[[bytes], Answer]] = {
    "plain": reply,
    "chunked": lambda text: reply(text, cut=4096),
    "gzip": lambda text: reply(text, compress=True),
    "gzip-chunked": lambda text: reply(text, compress=True, cut=7),
    "deflate": lambda text: reply(zlib.compress(text), headers={"Content-Encoding": "deflate"}),
    "until-the-end": lambda text: raw(PLAIN, text, End.CLOSE),
}
BOMB = gzip.compress(bytes(32 << 20))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_an_answer_of_the_largest_size(way: Callable[[bytes], Answer]) -> None:
    """Just as many bytes as allowed are an answer, however they are packed."""

    async def body() -> None:
        async with fronted({READ: way(sized(LIMIT))}, {"max_response_bytes": LIMIT}) as (it, _):
            assert (await it.read(URI)).cache_status == "mcp-federator; fwd=miss; stored"

    run(body())


TOO_LARGE: dict[str, Answer] = {
    **{name: way(sized(LIMIT + 1)) for name, way in WAYS.items()},
    "one-long-event": stream(b"data: " + sized(LIMIT) + b"\n\n"),
    "one-long-line": stream(b":" + b"k" * LIMIT, event(ONE)),
    "many-notifications": stream(*([NOTE] * (LIMIT // len(NOTE) + 1)), event(ONE)),
    "endless": forever(b"k" * 16_384, PLAIN),
    "endless-notifications": forever(NOTE * 100),
    "bomb": reply(BOMB, headers=GZIP),
    "bomb-as-a-stream": reply(BOMB, headers=GZIP, content_type="text/event-stream", cut=100),
}


@pytest.mark.parametrize("kind", TOO_LARGE)
def test_an_answer_that_is_too_large(kind: str) -> None:
    """It is cut off at the limit, counted after inflating; nothing is kept, and the upstream stays open."""
    settings = {"max_response_bytes": LIMIT, "breaker": {"failures": 1}}

    async def body() -> None:
        async with fronted({READ: [TOO_LARGE[kind], result(ONE)]}, settings) as (it, wire):
            failed(await it.read(URI), "bad_reply")
            if kind.startswith("endless"):
                await wire.calls(READ)[0].gone.wait()
            assert it.app._federation._budget.taken == 0
            assert await it.samples("mcp_federator_cache_entries") == 0
            assert (await it.read(URI)).uris == [URI]

    run(body())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(reply(BOMB, headers=GZIP), "bad_reply", id="of-an-answer"),
        pytest.param(reply(BOMB, status=400, headers=GZIP), "refused", id="of-an-error"),
        pytest.param(reply(BOMB, status=502, headers=GZIP), "bad_reply", id="of-an-error-page"),
        pytest.param(
            reply(BOMB, status=307, headers={"Location": "/elsewhere", **GZIP}), "refused", id="of-redirects"
        ),
    ],
)
def test_a_bomb_does_not_go_off(answer: Answer, reason: str) -> None:
    """32 KiB that inflate to 32 MiB never take that much memory."""

    async def body() -> None:
        async with fronted({READ: answer}, {"max_response_bytes": LIMIT}) as (it, _):
            tracemalloc.start()
            try:
                failed(await it.read(URI), reason)
                assert tracemalloc.get_traced_memory()[1] < 8 << 20
            finally:
                tracemalloc.stop()

    run(body())


MANY = b"x" * (1 << 20)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(reply(MANY), "bad_reply", id="no-json"),
        pytest.param(reply(b'{"jsonrpc":"2.0","id":7,"result":"%b"}' % MANY), "bad_reply", id="another-id"),
        pytest.param(result(b'{"contents":5,"x":"%b"}' % MANY), "bad_reply", id="unfit"),
        pytest.param(result(b'{"contents":[],"x":"%b\\ud800"}' % MANY), "bad_reply", id="half-a-character"),
        pytest.param(stream(b"data: " + MANY + b"\n\n"), "bad_reply", id="stream"),
        pytest.param(stream(b"data: " + MANY + b"\n\n", End.RESET), "unreachable", id="broken-stream"),
        pytest.param(reply(MANY, status=500), "bad_reply", id="error-page"),
    ],
)
def test_a_failure_keeps_no_answer_alive(answer: Answer, reason: str) -> None:
    """What came is gone with the reply, also where nobody collects cycles."""

    async def body() -> None:
        async with fronted({READ: answer}) as (it, _):
            await it.read(URI)
            gc.collect()
            gc.disable()
            tracemalloc.start()
            try:
                failed(await it.read(URI), reason)
                async with asyncio.timeout(PATIENCE):  # the thread that looked at it may end a bit later
                    while tracemalloc.get_traced_memory()[0] >= len(MANY) // 2:  # noqa: ASYNC110 - no event says so
                        await asyncio.sleep(0)
            finally:
                tracemalloc.stop()
                gc.enable()

    run(body())


def test_one_large_item_costs_the_others_nothing() -> None:
    """A list that is too large is missing by name; the lists of the others come."""

    async def body() -> None:
        async with (
            Wire({LIST: result(page("x://" + "k" * LIMIT))}) as alpha,
            Wire({LIST: result(page("b://1"))}) as beta,
            house({"alpha": {"url": alpha.url, "max_response_bytes": LIMIT}, "beta": beta.url}) as it,
        ):
            told = await it.page()
            assert told.uris == ["beta+b://1"]
            assert told.result["_meta"][INCOMPLETE] == [{"upstream": "alpha", "reason": "bad_reply"}]

    run(body())


def test_all_answers_together_have_a_budget() -> None:
    """What is under way beyond it is refused as our own overload; then there is room again."""
    go = asyncio.Event()
    large = sized(60_000)
    slow = raw(PLAIN + large[:50_000], go, large[50_000:], End.CLOSE)

    async def body() -> None:
        async with fronted({READ: [slow, reply(large), result(ONE)]}) as (it, wire):
            budget = it.app._federation._budget
            budget.limit = 100_000
            first = asyncio.create_task(it.read(URI))
            while budget.taken < 50_000:
                await it.status()
            second = await it.read("alpha+x://2")
            failed(second, "overloaded")
            assert budget.taken == 50_000
            go.set()
            assert (await first).uris == [URI]
            assert budget.taken == 0
            assert (await it.read("alpha+x://2")).uris == [URI]
            assert len(wire.calls(READ)) == 3
            assert (await it.status())["upstreams"][0]["breaker"] == "closed"

    run(body())
