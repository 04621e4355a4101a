import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_federator.config import Duration
from mcp_federator.model import Caller, Change, Event
from mcp_federator.upstream import restarts
from mcp_federator.upstream.sessions import MAX_REST
from mcp_federator.upstream.transport import MAX_EVENT
from tests.instruments.fronted import choosing
from tests.instruments.wire import (
    PATIENCE,
    Answer,
    Answers,
    End,
    Received,
    Wire,
    drop,
    event,
    never,
    reply,
    reset,
    result,
    stream,
)
from tests.upstream.asking import Asker, asking, members, run
from tests.upstream.legacy_server import INITIALIZE, NOT_FOUND, ONE, LegacyWire, one

GAP = Event("alpha", Change.GAP)
LISTS = Event("alpha", Change.LIST)
READ = "resources/read"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again is so at once."""
    monkeypatch.setattr(restarts, "FIRST", 0.001)


def note(method: str, params: Any = None) -> bytes:
    message = {"jsonrpc": "2.0", "method": f"notifications/resources/{method}", "params": params}
    return b"data: %b\n\n" % json.dumps(message).encode()


def ask(number: int, method: str) -> bytes:
    return b'data: {"jsonrpc":"2.0","id":%d,"method":"%b"}\n\n' % (number, method.encode())


def by_verb(answer: Answer, answers: list[dict[str, Any]] | None = None) -> Answer:
    """To GET this; DELETE and our own answers are accepted."""

    def choose(request: Received) -> Any:
        if request.verb == "GET":
            return answer(request)
        if request.body and answers is not None:
            answers.append(request.message)
        return reply(status=202, content_type=None)(request)

    return choose


def in_turn(*answers: Answer) -> Answer:
    """Each once; the last one stays."""
    left = list(answers)
    return choosing(lambda _: left.pop(0) if len(left) > 1 else left[0])


def gets(wire: LegacyWire) -> list[Received]:
    return [request for request in wire.received if request.verb == "GET"]


class Heard(list[Event]):
    """The events that came; `until` waits for so many."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def __call__(self, event: Event) -> None:
        self.append(event)
        self._news.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def listening(
    answer: Answer, answers: dict[str, Answers] | None = None, ours: list[dict[str, Any]] | None = None
) -> AsyncIterator[tuple[LegacyWire, Asker, Heard]]:
    """A legacy server that gives this answer to GET, met, and what is heard of it."""
    heard = Heard()
    wire = LegacyWire(one() | {"None": by_verb(answer, ours)} | (answers or {}))
    async with wire, asking(wire.url, changed=heard) as alpha:
        await alpha.read()
        yield wire, alpha, heard


async def open_again(wire: LegacyWire, count: int) -> None:
    """Until so many streams were asked for."""
    await wire.arrived("None", 1)
    async with asyncio.timeout(PATIENCE):
        while len(gets(wire)) < count:  # noqa: ASYNC110 - a round trip is no event
            await asyncio.sleep(0.001)


LIST_CHANGED = note("list_changed")


def updated(uri: str) -> bytes:
    return note("updated", {"uri": uri})


def test_a_stream_is_opened_with_its_session() -> None:
    """With session, version and credentials, asking for events alone; nothing waits for it."""

    async def body() -> None:
        async with (
            LegacyWire(one() | {"None": by_verb(stream(End.HOLD))}, version="2025-06-18") as wire,
            asking(wire.url, forward=("authorization",)) as alpha,
        ):
            for token in "ab":
                await alpha.read(caller=Caller(headers={"authorization": token}))
            await open_again(wire, 2)
            for get in gets(wire):
                assert get.header("accept") == "text/event-stream"
                assert get.header("mcp-protocol-version") == "2025-06-18"
                assert (get.header("content-type"), get.header("last-event-id")) == (None, None)
            opened = {call.header("authorization") for call in wire.calls(INITIALIZE)}
            assert {get.header("authorization") for get in gets(wire)} == opened
            assert {get.header("mcp-session-id") for get in gets(wire)} <= wire.alive

    run(body())


DEEP = (b"", b'{"a":', b'{"method":"notifications/resources/updated","params":')
CHANGES = {
    "list": ([LIST_CHANGED], [LISTS]),
    "resource": ([updated("x://1")], [Event("alpha", Change.RESOURCE, "x://1")]),
    "resource without URI": ([note("updated")], [Event("alpha", Change.RESOURCE)]),
    "no string": ([note("updated", {"uri": 7})], [Event("alpha", Change.RESOURCE)]),
    "params of another type": ([note("updated", [1])], [Event("alpha", Change.RESOURCE)]),
    "no change": ([note("other"), b'data: {"method":"notifications/message","params":{}}\n\n'], []),
    "named events": ([b"event: message\n" + LIST_CHANGED, b"event: other\n" + LIST_CHANGED], [LISTS]),
    "a batch": ([b"data: [%b,{}]\n\n" % LIST_CHANGED[6:-2]], [LISTS]),
    "in pieces": ([LIST_CHANGED[:20], LIST_CHANGED[20:-1], LIST_CHANGED[-1:]], [LISTS]),
    "garbage": ([b"data: {\n\n", b"data: [{]\n\n", b"data: \xff\n\n", b"\0\0\n\n", b"data: []\n\n"], []),
    "deep": ([b"data: %b" % head + b"[" * 100_000 + b"\n\n" for head in DEEP], []),
    "an answer to nothing": ([b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'], []),
    "comments": ([b": " + b"x" * 1000 + b"\n\n"] * 1000, []),
    "a flood": ([LIST_CHANGED * 50] * 10, [LISTS] * 500),
}


@pytest.mark.parametrize(("parts", "events"), CHANGES.values(), ids=CHANGES)
def test_what_a_stream_says_of_changes(parts: list[bytes], events: list[Event]) -> None:
    """All else is passed over, and what comes behind it is heard."""
    last = Event("alpha", Change.RESOURCE, "x://last")

    async def body() -> None:
        async with listening(stream(*parts, updated("x://last"), End.HOLD)) as (wire, alpha, heard):
            await heard.until(lambda: last in heard)
            assert heard == [*events, last]
            assert members(await alpha.read())
            assert len(gets(wire)) == 1

    run(body())


def test_requests_on_a_stream_are_answered() -> None:
    """A ping gets its result, anything else -32601, by POST within the session."""
    ours: list[dict[str, Any]] = []

    async def body() -> None:
        asked = stream(ask(1, "ping"), ask(2, "roots/list"), LIST_CHANGED, End.HOLD)
        async with listening(asked, ours=ours) as (wire, _, heard):
            await heard.until(lambda: len(heard) == 1)
            assert [message["id"] for message in ours] == [1, 2]
            assert ours[0]["result"] == {}
            assert ours[1]["error"]["code"] == -32601
            answers = [request for request in wire.calls("None") if request.body]
            assert {answer.header("mcp-session-id") for answer in answers} == wire.alive
            assert {answer.header("content-type") for answer in answers} == {"application/json"}

    run(body())


BREAKS = {
    "in order": stream(LIST_CHANGED),
    "in the middle": stream(LIST_CHANGED, b"data: {", End.CLOSE),
    "torn down": stream(LIST_CHANGED, End.RESET),
    "2 MiB": stream(LIST_CHANGED, *[b"data: " + b"x" * (1 << 16) + b"\n"] * 32),
    "a line without end": stream(LIST_CHANGED, *[b"x" * (1 << 16)] * 32),
}


@pytest.mark.parametrize("breaks", BREAKS.values(), ids=BREAKS)
def test_a_stream_that_breaks_is_opened_again(breaks: Answer) -> None:
    """However it does: what passed unheard is a gap, and calls go on meanwhile."""
    assert MAX_EVENT < 2 << 20

    async def body() -> None:
        plays: list[Answer] = [breaks, drop(), reset(), reply(status=503)]
        again = stream(updated("x://1"), End.HOLD)
        async with listening(in_turn(*plays, again)) as (wire, alpha, heard):
            await heard.until(lambda: len(heard) == 3)
            assert heard == [LISTS, GAP, Event("alpha", Change.RESOURCE, "x://1")]
            assert members(await alpha.read())
            assert wire.opened == 1

    run(body())


def test_a_stream_is_taken_up_behind_its_last_event() -> None:
    """`Last-Event-ID` goes along, and there is no gap."""

    async def body() -> None:
        plays: list[Answer] = [stream(b"id: e/1\n" + LIST_CHANGED)]
        again = stream(LIST_CHANGED, End.HOLD)
        async with listening(in_turn(*plays, again)) as (wire, _, heard):
            await heard.until(lambda: len(heard) == 2)
            assert heard == [LISTS, LISTS]
            assert [get.header("last-event-id") for get in gets(wire)] == [None, "e/1"]

    run(body())


def test_H18_a_stream_learns_that_its_session_is_lost() -> None:
    """A 404 where there was a stream: that is a gap, and the next read opens a session and a stream."""

    async def body() -> None:
        plays: list[Answer] = [stream(LIST_CHANGED), NOT_FOUND]
        again = stream(updated("x://1"), End.HOLD)
        async with listening(in_turn(*plays, again)) as (wire, alpha, heard):
            await heard.until(lambda: len(heard) == 2)
            assert (heard, len(alpha.client._sessions)) == ([LISTS, GAP], 0)
            await alpha.read()
            await heard.until(lambda: len(heard) == 3)
            assert [get.header("mcp-session-id") for get in gets(wire)] == ["S1", "S1", "S2"]
            assert wire.calls(READ)[-1].header("mcp-session-id") == "S2"

    run(body())


@pytest.mark.parametrize(
    "answer",
    [
        reply(status=405),
        reply(status=404),
        reply(b"<html>", content_type="text/html"),
        reply(status=307, headers={"Location": "http://elsewhere.example/"}),
    ],
    ids=["405", "404", "html", "redirect"],
)
def test_a_server_without_stream_is_asked_once(answer: Answer) -> None:
    """Its session goes on, and reads are answered in it."""

    async def body() -> None:
        async with listening(answer) as (wire, alpha, heard):
            await open_again(wire, 1)
            for _ in range(5):
                await alpha.read()
            assert (len(gets(wire)), wire.opened, heard) == (1, 1, [])

    run(body())


def test_streams_are_no_connections_of_calls() -> None:
    """With one connection for calls and a stream that is open, calls are answered."""

    async def body() -> None:
        heard = Heard()
        async with (
            LegacyWire(one() | {"None": by_verb(stream(LIST_CHANGED, End.HOLD))}) as wire,
            asking(wire.url, changed=heard, max_connections=1) as alpha,
        ):
            await alpha.read()
            await heard.until(lambda: len(heard) == 1)
            await asyncio.gather(*(alpha.read() for _ in range(5)))

    run(body())


@pytest.mark.parametrize(
    "answer", [stream(LIST_CHANGED, End.HOLD), never(), drop(), stream(*[b": x\n\n"] * 5)], ids=str
)
def test_closing_ends_a_stream(answer: Answer) -> None:
    """In whatever state; the server sees its connection close."""

    async def body() -> None:
        async with LegacyWire(one() | {"None": by_verb(answer)}) as wire:
            async with asking(wire.url) as alpha:
                await alpha.read()
                await open_again(wire, 1)
            async with asyncio.timeout(PATIENCE):
                await gets(wire)[0].gone.wait()

    run(body())


def test_a_server_that_never_begins_its_stream() -> None:
    """It is waited for as long as for an answer, and tried again."""

    async def body() -> None:
        heard = Heard()
        plays: list[Answer] = [never()]
        again = stream(LIST_CHANGED, End.HOLD)
        answer = by_verb(in_turn(*plays, again))
        async with (
            LegacyWire(one() | {"None": answer}) as wire,
            asking(wire.url, changed=heard, timeout=Duration(0.2)) as alpha,
        ):
            await alpha.read()
            await heard.until(lambda: len(heard) == 1)
            assert (heard, wire.opened) == ([LISTS], 1)

    run(body())


def test_a_stream_keeps_no_session_from_ending() -> None:
    """What comes on it is no use of the session: after its rest it is ended, and its stream with it."""

    async def body() -> None:
        async with listening(stream(LIST_CHANGED, End.HOLD)) as (wire, alpha, heard):
            await heard.until(lambda: len(heard) == 1)
            alpha.clock.now += MAX_REST
            alpha.client._sessions.end_idle()
            async with asyncio.timeout(PATIENCE):
                await gets(wire)[0].gone.wait()
            await wire.arrived("None", 2)
            assert [request.verb for request in wire.calls("None")] == ["GET", "DELETE"]
            assert wire.calls("None")[1].header("mcp-session-id") == "S1"
            await alpha.read()
            await heard.until(lambda: len(heard) == 3)
            assert (heard, wire.opened) == ([LISTS, GAP, LISTS], 2)

    run(body())


def test_changes_are_heard_beside_an_answer() -> None:
    """What comes on the stream of a POST, before the answer, says the same; so does a batch's."""

    async def body() -> None:
        parts = stream(LIST_CHANGED, b"data: [%b]\n\n" % updated("x://1")[6:-2], event(ONE))
        async with listening(reply(status=405), {READ: parts}) as (_, _, heard):
            assert heard == [LISTS, Event("alpha", Change.RESOURCE, "x://1")]

    run(body())


def test_a_modern_upstream_has_no_such_stream() -> None:
    """It is asked in another way."""

    async def body() -> None:
        modern = {"resultType": "complete", "contents": [{"uri": "x://1", "text": "one"}]}
        async with Wire({READ: result(modern)}) as wire, asking(wire.url) as alpha:
            await alpha.read()
            await alpha.read()
            assert {request.verb for request in wire.received} == {"POST"}

    run(body())
