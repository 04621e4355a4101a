import asyncio
import json
from typing import Any

import pytest

from mcp_federator.config import Breaker, Duration, UpstreamCache
from mcp_federator.errors import Reason
from mcp_federator.model import ANYONE, Caller, Era, Hint, Method, Query, Retry, Scope, Trace
from mcp_federator.upstream.discovery import DOUBT, MIN_LIFE
from tests.instruments.wire import (
    Answer,
    Answers,
    Wire,
    accepted,
    contents,
    discovered,
    drop,
    error,
    event,
    initialized,
    never,
    page,
    reply,
    result,
    stream,
)
from tests.upstream.asking import asking, items, members, run, settled
from tests.upstream.legacy_server import (
    CANCELLED,
    INITIALIZE,
    INITIALIZED,
    NO_SESSION,
    NOT_FOUND,
    ONE,
    PAGE,
    LegacyWire,
    methods,
    one,
)

DISCOVER, READ, LIST = "server/discover", "resources/read", "resources/list"
MEETING = [DISCOVER, INITIALIZE, INITIALIZED]
PLAIN = {"contents": [{"uri": "alpha+x://1", "text": "text"}]}
A, B = (Caller(headers={"authorization": f"Bearer {token}"}) for token in "ab")
TRACE = Trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b", "k=v")


# --- the handshake and what is sent ---


def test_a_legacy_server_is_met_once() -> None:
    """Twenty first reads cause one probe, one `initialize` and one `initialized`, and all are answered."""

    async def body() -> None:
        async with LegacyWire(one()) as wire, asking(wire.url) as alpha:
            for answer in await asyncio.gather(*(alpha.read() for _ in range(20))):
                assert members(answer) == PLAIN
            assert items(await alpha.list()) == [{"uri": "alpha+x://1", "name": "one"}]
            assert methods(wire) == [*MEETING, *[READ] * 20, LIST]
            status = alpha.client.status
            assert (status.era, status.version, status.transport) == (
                Era.LEGACY,
                "2025-11-25",
                "streamable_http",
            )
            assert (status.server, status.resources, status.up, status.error) == ("wire 1.0", True, True, "")
            told = 'mcp_federator_upstream_info{era="legacy",transport="streamable_http",upstream="alpha",'
            assert told + 'version="2025-11-25"} 1' in alpha.metrics.render()[0].decode()

    run(body())


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
def test_the_fields_of_a_legacy_request(version: str) -> None:
    """The agreed version and the session go along from `initialized` on, and nothing of the modern words."""

    async def body() -> None:
        async with LegacyWire(one(), version=version) as wire, asking(wire.url, baggage=True) as alpha:
            await alpha.read(caller=Caller(trace=TRACE), retry=Retry(b"{}", b'"s"'))
            (hello,) = wire.calls(INITIALIZE)
            assert hello.params["protocolVersion"] == "2025-11-25"
            assert hello.params["clientInfo"]["name"] == "mcp-federator"
            assert (hello.header("mcp-protocol-version"), hello.header("mcp-session-id")) == (None, None)
            for request in (*wire.calls(INITIALIZED), *wire.calls(READ)):
                assert request.header("mcp-protocol-version") == version
                assert request.header("mcp-session-id") == "S1"
                assert request.header("accept") == "application/json, text/event-stream"
                assert request.header("mcp-method") is None
                assert request.header("mcp-name") is None
            (read,) = wire.calls(READ)
            assert read.params == {"uri": "x://1"}
            assert read.header("traceparent") == TRACE.traceparent
            assert (read.header("tracestate"), read.header("baggage")) == ("a=b", "k=v")

    run(body())


def test_a_promise_to_answer_is_not_declared() -> None:
    """Of the configured capabilities those go along that let the server ask for nothing."""

    async def body() -> None:
        declared = {"elicitation": {}, "sampling": {}, "roots": {}, "extensions": {"a.b/c": {"n": 1.10}}}
        async with LegacyWire(one()) as wire, asking(wire.url, client_capabilities=declared) as alpha:
            await alpha.read()
            assert wire.calls(INITIALIZE)[0].params["capabilities"] == {"extensions": {"a.b/c": {"n": 1.1}}}

    run(body())


def test_a_server_without_sessions_gets_no_session() -> None:
    """Where `initialize` gives no id, none is sent, and nothing is ended."""

    async def body() -> None:
        async with LegacyWire(one(), sessions=False) as wire:
            async with asking(wire.url) as alpha:
                await alpha.read()
                assert wire.calls(READ)[0].header("mcp-session-id") is None
            assert methods(wire) == [*MEETING, READ]

    run(body())


def test_sessions_are_ended_when_the_upstream_is_closed() -> None:
    """A DELETE with the session, its version and the caller's credentials."""

    async def body() -> None:
        async with LegacyWire(one()) as wire:
            async with asking(wire.url, forward=("authorization",)) as alpha:
                await asyncio.gather(alpha.read(caller=A), alpha.read(caller=B))
            ends = [request for request in wire.received if request.verb == "DELETE"]
            assert len(ends) == wire.opened
            assert not wire.alive
            for end in ends:
                assert end.header("mcp-protocol-version") == "2025-11-25"
            opened = {request.header("authorization") for request in wire.calls(INITIALIZE)}
            assert {end.header("authorization") for end in ends} == opened

    run(body())


@pytest.mark.parametrize("answer", [never(), drop(), reply(status=405)], ids=["silent", "drop", "405"])
def test_an_end_that_is_not_heard_holds_nobody_up(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a server says to DELETE, closing has an end."""
    monkeypatch.setattr("mcp_federator.upstream.introduction._END_PATIENCE", 0.1)

    async def body() -> None:
        async with LegacyWire(one() | {"None": answer}) as wire, asking(wire.url) as alpha:
            await alpha.read()

    run(body())


def test_each_authorization_context_has_its_session() -> None:
    """Two callers with forwarded credentials never share one; the same caller keeps his."""

    async def body() -> None:
        async with LegacyWire(one()) as wire, asking(wire.url, forward=("authorization",)) as alpha:
            for caller in (A, B, A, B):
                await alpha.read(caller=caller)
            seen = {
                (read.header("authorization"), read.header("mcp-session-id")) for read in wire.calls(READ)
            }
            assert len(seen) == 2
            assert len({session for _, session in seen}) == 2

    run(body())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(reply(status=500), Reason.BAD_REPLY, id="500"),
        pytest.param(reply(status=401), Reason.REFUSED, id="401"),
        pytest.param(drop(), Reason.UNREACHABLE, id="broken"),
        pytest.param(result({}), Reason.BAD_REPLY, id="no-version"),
        pytest.param(initialized(session="a b"), Reason.BAD_REPLY, id="session-with-a-blank"),
        pytest.param(initialized(session="a" * 5000), Reason.BAD_REPLY, id="session-without-end"),
    ],
)
def test_a_handshake_that_fails_is_not_remembered(answer: Answer, reason: Reason) -> None:
    """The asker learns why; the next query tries again and is answered."""

    async def body() -> None:
        # A connection that breaks is tried once more.
        tries = [answer, answer, initialized()] if reason is Reason.UNREACHABLE else [answer, initialized()]
        async with (
            LegacyWire(one() | {INITIALIZE: tries}, sessions=False) as wire,
            asking(wire.url, breaker=Breaker(failures=99)) as alpha,
        ):
            assert (await alpha.fails()).reason is reason
            assert alpha.client.status.era is None
            assert members(await alpha.read()) == PLAIN

    run(body())


def test_a_silent_handshake_has_an_end() -> None:
    """Nobody waits longer than the timeout for `initialize`."""

    async def body() -> None:
        async with (
            LegacyWire({INITIALIZE: never()}) as wire,
            asking(wire.url, timeout=Duration(0.1)) as alpha,
        ):
            assert (await alpha.fails()).reason is Reason.TIMEOUT
            assert CANCELLED not in methods(wire)

    run(body())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        pytest.param(error(-32602, status=200), "error -32602 to initialize", id="error"),
        pytest.param(initialized("1900-01-01"), "it speaks 1900-01-01, which we do not", id="version"),
        pytest.param(reply(status=404), "HTTP 404 to initialize", id="404"),
    ],
)
def test_a_server_that_takes_no_part_in_the_handshake_is_named(answer: Answer, why: str) -> None:
    """Every query says why, and `status` too; it is not asked again with each."""

    async def body() -> None:
        async with LegacyWire({INITIALIZE: answer}) as wire, asking(wire.url) as alpha:
            for _ in range(3):
                assert (await alpha.fails()).detail.startswith(why)
            assert len(wire.calls(INITIALIZE)) == 1
            assert alpha.client.status.version == ""
            assert why in alpha.client.status.error

    run(body())


@pytest.mark.parametrize(
    ("opening", "older"),
    [
        pytest.param(stream(b"event: endpoint\ndata: /messages?s=1\n\n"), True, id="http+sse"),
        pytest.param(stream(b": hi\n\nevent: endpo", b"int\ndata: /m\n\n"), True, id="in-pieces"),
        pytest.param(stream(b'data: {"jsonrpc":"2.0","method":"x"}\n\n'), False, id="another-event"),
        pytest.param(stream(), False, id="empty"),
        pytest.param(reply(b"<html>", content_type="text/html"), False, id="html"),
        pytest.param(reply(status=405), False, id="405"),
        pytest.param(drop(), False, id="drop"),
        pytest.param(never(), False, id="silent"),
    ],
)
def test_the_transport_of_2024_is_recognised(
    opening: Answer, older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP+SSE is named as not supported; what only looks a little like it is not."""
    monkeypatch.setattr("mcp_federator.upstream.streamable_http._PATIENCE", 0.1)

    async def body() -> None:
        refuses = reply(status=405)
        answers = {DISCOVER: refuses, INITIALIZE: refuses, "None": opening}
        async with Wire(answers) as wire, asking(wire.url) as alpha:
            failure = await alpha.fails()
            assert ("HTTP+SSE (2024-11-05), which is not supported" in failure.detail) is older
            assert failure.reason is Reason.REFUSED
            assert [request.verb for request in wire.received][:3] == ["POST", "POST", "GET"]
            assert wire.received[2].header("accept") == "text/event-stream"

    run(body())


# --- hints, errors, results ---


@pytest.mark.parametrize(
    ("cache", "hint"),
    [
        pytest.param(UpstreamCache(), Hint(0, Scope.PRIVATE), id="none"),
        pytest.param(
            UpstreamCache(default_ttl=Duration(30), default_scope=Scope.PUBLIC),
            Hint(30_000, Scope.PUBLIC),
            id="configured",
        ),
    ],
)
def test_absent_hints_are_the_configured_ones(cache: UpstreamCache, hint: Hint) -> None:
    """A legacy answer has none, neither to a read nor to a list."""

    async def body() -> None:
        async with LegacyWire(one()) as wire, asking(wire.url, cache=cache) as alpha:
            assert (await alpha.read()).hint == hint
            assert (await alpha.list()).hint == hint

    run(body())


@pytest.mark.parametrize(
    "capabilities", [{"tools": {}}, {"resources": {}}], ids=["no-resources", "no-such-list"]
)
def test_what_a_legacy_server_has_not_is_true_for_all(capabilities: dict[str, Any]) -> None:
    """As long as what it said of itself; only where callers are told apart it is true for nobody else."""

    async def body() -> None:
        answers = one() | {"resources/templates/list": error(-32601, status=200)}
        async with LegacyWire(answers, capabilities=capabilities) as wire:
            async with asking(wire.url) as alpha:
                for passed in (0.0, 20.0):
                    alpha.clock.now += passed
                    found = await alpha.client.fetch(Query(Method.TEMPLATES), ANYONE)
                    assert (found.count, found.hint) == (0, Hint(60_000 - int(passed * 1000), Scope.PUBLIC))
            async with asking(wire.url, forward=("authorization",)) as alpha:
                found = await alpha.client.fetch(Query(Method.TEMPLATES), ANYONE)
                assert (found.count, found.hint) == (0, Hint(0, Scope.PRIVATE))
            async with asking(wire.url, cache=UpstreamCache(trust_public=False)) as alpha:
                found = await alpha.client.fetch(Query(Method.TEMPLATES), ANYONE)
                assert found.hint == Hint(60_000, Scope.PRIVATE)

    run(body())


def test_a_legacy_server_without_resources_is_not_asked() -> None:
    """What `initialize` does not declare is empty, and a read finds nothing."""

    async def body() -> None:
        async with LegacyWire({}, capabilities={"tools": {}}) as wire, asking(wire.url) as alpha:
            assert (await alpha.list()).count == 0
            assert (await alpha.errs()).not_found
            assert methods(wire) == MEETING

    run(body())


@pytest.mark.parametrize(
    ("answer", "code", "data"),
    [
        pytest.param(
            error(-32002, data={"uri": "x://1"}, status=200),
            -32602,
            {"uri": "alpha+x://1"},
            id="not-found",
        ),
        pytest.param(error(-32602, status=200), -32602, None, id="invalid-params"),
        pytest.param(error(-32002, status=404), -32602, None, id="not-found-with-404"),
        pytest.param(error(7001, data={"k": 1}, status=200), 7001, {"k": 1}, id="own-code"),
        pytest.param(error(0, status=200), 0, None, id="code-0"),
    ],
)
def test_H22_errors_of_legacy_servers(answer: Answer, code: int, data: Any) -> None:
    """Not found comes in the modern code, whatever its status; it ends no session, and nothing is kept."""

    async def body() -> None:
        async with LegacyWire(one() | {READ: [answer, result(ONE)]}) as wire, asking(wire.url) as alpha:
            wrong = await alpha.errs(alone=True) if code != -32602 else await alpha.errs()
            assert (wrong.code, wrong.not_found) == (code, code == -32602)
            assert (json.loads(wrong.data) if wrong.data else None) == data
            assert members(await alpha.read()) == PLAIN
            assert wire.opened == 1

    run(body())


def test_H22_a_reserved_code_is_refused() -> None:
    """-32042 of 2025-11-25 means nothing to modern clients."""

    async def body() -> None:
        async with LegacyWire({READ: error(-32042, status=200)}) as wire, asking(wire.url) as alpha:
            failure = await alpha.fails()
            assert (failure.reason, failure.code) == (Reason.REFUSED, -32042)

    run(body())


# --- what comes on the way ---

REQUESTS = [
    pytest.param(b'{"jsonrpc":"2.0","id":7,"method":"ping"}', {"id": 7, "result": {}}, id="ping"),
    pytest.param(b'{"jsonrpc":"2.0","id":"a","method":"ping"}', {"id": "a", "result": {}}, id="ping-text-id"),
    pytest.param(b'{"jsonrpc":"2.0","id":0,"method":"roots/list"}', {"id": 0, "code": -32601}, id="roots"),
    pytest.param(
        b'{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}',
        {"id": 1, "code": -32601},
        id="sampling",
    ),
]


@pytest.mark.parametrize(("request_", "expected"), REQUESTS)
def test_a_request_of_the_server_is_answered(request_: bytes, expected: dict[str, Any]) -> None:
    """The answer is a POST within the session, made before the reply to our own call has come."""

    async def body() -> None:
        answered = asyncio.Event()
        streaming = stream(b"data: " + request_ + b"\n\n", answered, event(ONE))

        def hear(request: Any) -> Any:
            answered.set()
            return accepted()(request)

        async with (
            LegacyWire({READ: streaming, "None": hear}) as wire,
            asking(wire.url, forward=("authorization",)) as alpha,
        ):
            assert members(await alpha.read(caller=A)) == PLAIN
            told = [request for request in wire.received if request.body and request.method == "None"]
            assert len(told) == 1
            message = told[0].message
            assert message["id"] == expected["id"]
            assert message.get("result") == expected.get("result")
            assert message.get("error", {}).get("code") == expected.get("code")
            (read,) = wire.calls(READ)
            for name in ("mcp-session-id", "mcp-protocol-version", "authorization"):
                assert told[0].header(name) == read.header(name)
            await settled(alpha)

    run(body())


def test_an_answer_that_is_not_taken_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that hangs or fails when we answer its ping still gets its reply read."""
    monkeypatch.setattr("mcp_federator.upstream.streamable_http._PATIENCE", 0.05)
    ping = b'data: {"jsonrpc":"2.0","id":1,"method":"ping"}\n\n'

    async def body() -> None:
        for answer in (never(), drop(), reply(status=500)):
            answers = {READ: stream(ping, ping, event(ONE)), "None": answer}
            async with LegacyWire(answers, sessions=False) as wire, asking(wire.url) as alpha:
                assert members(await alpha.read()) == PLAIN
                await settled(alpha)

    run(body())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(result(ONE), id="json"),
        pytest.param(stream(b": k\n\n", event(ONE)), id="stream"),
        pytest.param(
            stream(b'data: {"jsonrpc":"2.0","method":"notifications/message"}\n\n', event(ONE)), id="noise"
        ),
        pytest.param(
            reply(
                b'[{"jsonrpc":"2.0","method":"notifications/progress"},'
                b'{"jsonrpc":"2.0","id":$ID,"result":{"contents":[{"uri":"x://1","text":"text"}]}}]'
            ),
            id="batch",
        ),
        pytest.param(
            stream(
                b'data: [{"jsonrpc":"2.0","id":$ID,"result":{"contents":[{"uri":"x://1","text":"text"}]}}]\n\n'
            ),
            id="batch-in-a-stream",
        ),
        pytest.param(result({"resultType": "input_required", **ONE}), id="a-word-of-another-era"),
    ],
)
def test_H35_replies_in_all_forms(answer: Answer) -> None:
    """JSON, a stream, either as a batch of 2025-03-26: one answer."""

    async def body() -> None:
        async with LegacyWire({READ: answer}) as wire, asking(wire.url) as alpha:
            assert members(await alpha.read()) == PLAIN
            await settled(alpha)

    run(body())


@pytest.mark.parametrize(
    "body_",
    [b"[]", b"[", b"[1]", b'[{"jsonrpc":"2.0","method":"x"}]', b"[[" + b"[" * 200],
    ids=["empty", "broken", "number", "no-response", "deep"],
)
def test_a_batch_that_holds_no_answer_is_a_bad_reply(body_: bytes) -> None:
    """The read fails; nothing else does."""

    async def body() -> None:
        async with LegacyWire({READ: [reply(body_), result(ONE)]}) as wire, asking(wire.url) as alpha:
            assert (await alpha.fails()).reason is Reason.BAD_REPLY
            assert members(await alpha.read()) == PLAIN

    run(body())


# --- leaving early ---


def test_H38_a_call_that_is_cancelled_is_told_with_our_id() -> None:
    """A disconnect says nothing to a legacy server: it gets `notifications/cancelled` within the session."""

    async def body() -> None:
        async with LegacyWire(one() | {READ: never()}) as wire, asking(wire.url) as alpha:
            reading = asyncio.create_task(alpha.read())
            (read,) = await wire.arrived(READ)
            reading.cancel()
            (told,) = await wire.arrived(CANCELLED)
            assert told.params == {"requestId": read.message["id"]}
            assert told.header("mcp-session-id") == read.header("mcp-session-id") == "S1"
            await asyncio.wait([reading])
            await asyncio.gather(*alpha.transport._telling)

    run(body())


@pytest.mark.parametrize("head", [never(), stream(asyncio.Event())], ids=["before-head", "in-stream"])
def test_H38_a_call_that_took_too_long_is_told(head: Answer) -> None:
    """So is one whose time is over; the failure does not wait for that."""

    async def body() -> None:
        async with (
            LegacyWire(one() | {READ: head, CANCELLED: never()}) as wire,
            asking(wire.url, timeout=Duration(0.1)) as alpha,
        ):
            assert (await alpha.fails()).reason is Reason.TIMEOUT
            (told,) = await wire.arrived(CANCELLED)
            assert told.params == {"requestId": wire.calls(READ)[0].message["id"]}

    run(body())


def test_a_modern_call_is_cancelled_by_its_disconnect_alone() -> None:
    """No message is sent where the closed connection says it."""

    async def body() -> None:
        async with Wire({READ: never()}) as wire, asking(wire.url, timeout=Duration(0.1)) as alpha:
            await alpha.fails()
            await wire.calls(READ)[0].gone.wait()
            assert CANCELLED not in methods(wire)

    run(body())


# --- H18: sessions that are lost ---

both_ways = pytest.mark.parametrize("lost", [NOT_FOUND, NO_SESSION], ids=["404", "400"])


@both_ways
def test_H18_a_lost_session_is_renewed_once(lost: Answer) -> None:
    """Ten reads find their session gone: one handshake without a session, and each is asked once more."""

    async def body() -> None:
        async with LegacyWire(one(), lost=lost) as wire, asking(wire.url) as alpha:
            await alpha.list()
            wire.alive.clear()
            del wire.received[:]
            for answer in await asyncio.gather(*(alpha.read() for _ in range(10))):
                assert members(answer) == PLAIN
            assert len(wire.calls(INITIALIZE)) == len(wire.calls(INITIALIZED)) == 1
            assert wire.calls(INITIALIZE)[0].header("mcp-session-id") is None
            assert sorted(read.header("mcp-session-id") or "" for read in wire.calls(READ)) == [
                *["S1"] * 10,
                *["S2"] * 10,
            ]
            assert DISCOVER not in methods(wire)

    run(body())


@both_ways
def test_H18_the_second_loss_is_an_error(lost: Answer) -> None:
    """No loop: ten reads cost two tries each and one handshake, and say no status of the upstream's."""

    async def body() -> None:
        async with LegacyWire({READ: lost}, lost=lost) as wire, asking(wire.url) as alpha:
            await alpha.client.probe()
            del wire.received[:]
            failures = await asyncio.gather(*(alpha.fails() for _ in range(10)))
            assert {failure.reason for failure in failures} == {Reason.REFUSED}
            assert (len(wire.calls(READ)), len(wire.calls(INITIALIZE))) == (20, 1)
            assert alpha.client.status.breaker == "closed"
            wire.answers[READ] = result(ONE)
            assert members(await alpha.read()) == PLAIN
            assert len(wire.calls(INITIALIZE)) == 2

    run(body())


def test_H18_anothers_session_is_left_alone() -> None:
    """Only the authorization context whose session is gone shakes hands again."""

    async def body() -> None:
        async with LegacyWire(one()) as wire, asking(wire.url, forward=("authorization",)) as alpha:
            await alpha.read(caller=A)
            await alpha.read(caller=B)
            of_a = wire.calls(READ)[0].header("mcp-session-id")
            wire.alive.discard(of_a or "")
            opened = wire.opened
            await asyncio.gather(alpha.read(caller=A), alpha.read(caller=B))
            assert wire.opened == opened + 1
            assert wire.calls(INITIALIZE)[-1].header("authorization") == "Bearer a"

    run(body())


def test_H18_a_handshake_that_fails_then_is_the_failure() -> None:
    """The session is gone and the server does not give another: the read says so, and later all is well."""

    async def body() -> None:
        async with LegacyWire(one()) as wire, asking(wire.url, breaker=Breaker(failures=99)) as alpha:
            await alpha.read()
            wire.alive.clear()
            wire.answers[INITIALIZE] = reply(status=503)
            assert (await alpha.fails()).reason is Reason.BAD_REPLY
            wire.answers[INITIALIZE] = wire._initialize
            assert members(await alpha.read()) == PLAIN

    run(body())


# --- upstreams that change ---


def test_a_server_that_became_legacy_loses_no_request() -> None:
    """A modern upstream is legacy from now on: the read that meets it is answered."""

    async def body() -> None:
        wire = LegacyWire(one() | {DISCOVER: [result(discovered()), NO_SESSION]})
        async with wire, asking(wire.url) as alpha:
            await alpha.client.probe()
            alpha.clock.now += DOUBT
            assert members(await alpha.read()) == PLAIN
            assert methods(wire) == [DISCOVER, READ, *MEETING, READ]
            assert alpha.client.status.era is Era.LEGACY

    run(body())


STRICT = {
    "no-such-version": error(-32022, data={"supported": ["2026-07-28"], "requested": "2025-11-25"}),
    "header-mismatch": error(-32020),
    "params": error(-32602),
    "no-endpoint": reply(status=404),
    "no-initialize": error(-32601, status=404),
}


@pytest.mark.parametrize("answer", STRICT.values(), ids=STRICT)
def test_a_server_that_became_modern_loses_no_request(answer: Answer) -> None:
    """A legacy upstream is modern from now on, and refuses what legacy clients say: the read is answered."""

    async def body() -> None:
        async with LegacyWire(one()) as wire, asking(wire.url) as alpha:
            await alpha.list()
            alpha.clock.now += DOUBT
            modern = result(contents("x://1"))

            def strict(request: Any) -> Any:
                return (answer if request.header("mcp-method") is None else modern)(request)

            wire.answers |= {DISCOVER: result(discovered()), INITIALIZE: answer, READ: strict}
            wire._sessions = False
            answers = await asyncio.gather(*(alpha.read() for _ in range(5)))
            assert all(members(found) == PLAIN for found in answers)
            assert answers[0].hint == Hint(60_000, Scope.PUBLIC)
            assert alpha.client.status.era is Era.MODERN
            assert len(wire.calls(DISCOVER)) == 2

    run(body())


def test_a_server_that_speaks_both_eras_by_now_is_noticed() -> None:
    """A legacy upstream is probed again every minute while it serves."""

    async def body() -> None:
        async with LegacyWire(one()) as wire, asking(wire.url) as alpha:
            await alpha.list()
            wire.answers |= {DISCOVER: result(discovered()), LIST: result(page("x://1"))}
            alpha.clock.now += MIN_LIFE
            await alpha.list()
            await settled(alpha)
            assert alpha.client.status.era is Era.MODERN
            wire._sessions = False
            await alpha.list()
            assert [bool(call.header("mcp-method")) for call in wire.calls(LIST)] == [False, False, True]

    run(body())


def test_a_probe_that_finds_the_same_opens_no_second_session() -> None:
    """What is old is probed again; the handshake is not repeated."""

    async def body() -> None:
        async with LegacyWire(one()) as wire, asking(wire.url) as alpha:
            await alpha.list()
            alpha.clock.now += MIN_LIFE
            await alpha.list()
            await settled(alpha)
            assert (len(wire.calls(DISCOVER)), wire.opened) == (2, 1)

    run(body())


def test_two_servers_behind_one_address_make_no_loop() -> None:
    """Whatever is tried, the other one answers: a read ends after two tries."""

    async def body() -> None:
        answers: dict[str, Answers] = {
            DISCOVER: [result(discovered()), NO_SESSION],
            READ: [NO_SESSION, error(-32020)],
        }
        wire = LegacyWire(answers, sessions=False)
        async with wire, asking(wire.url) as alpha:
            await alpha.client.probe()
            alpha.clock.now += DOUBT
            assert (await alpha.fails()).reason is Reason.REFUSED
            assert len(wire.calls(READ)) == 2

    run(body())


def test_a_page_is_walked() -> None:
    """Cursors go back as they came, the empty one too."""

    async def body() -> None:
        pages = [result(PAGE | {"nextCursor": ""}), result(PAGE)]
        async with LegacyWire({LIST: pages}) as wire, asking(wire.url) as alpha:
            assert (await alpha.list()).next_cursor == ""
            assert (await alpha.list("")).next_cursor is None
            assert [request.params for request in wire.calls(LIST)] == [{}, {"cursor": ""}]

    run(body())
