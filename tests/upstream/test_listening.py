"""How an upstream is asked to tell: what is open when, and what is made of what is heard.

Time is virtual; the upstream is a transport that does what the test says.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import pytest

from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.model import ANYONE, Caller, Change, Era, Event, Wanted
from mcp_federator.protocol.jsonrpc import Reply, encode_call
from mcp_federator.protocol.modern import Discovered, listen_call
from mcp_federator.upstream import listening
from mcp_federator.upstream.discovery import Known
from mcp_federator.upstream.listening import Listening
from mcp_federator.upstream.sessions import Session
from mcp_federator.upstream.transport import Call, Exchange
from tests.instruments import virtual_time

ID = "io.modelcontextprotocol/subscriptionId"
TELLS = Discovered(versions=("2026-07-28",), resources=True, list_changed=True, subscribe=True)
MODERN = Known(Era.MODERN, TELLS)
LISTS = Wanted(lists=True)
BROKEN = UpstreamFailure("alpha", Reason.UNREACHABLE, "it broke")


def uris(*names: str, lists: bool = False) -> Wanted:
    return Wanted(lists, frozenset(names))


class Stream:
    """One stream, as the upstream has it."""

    def __init__(self, call: Call, hear: Callable[[bytes], None], at: float) -> None:
        self.call = call
        self.at = at
        self.until: float | None = None
        self.filter = json.loads(call.body)["params"]["notifications"]
        self._hear = hear
        self.end: asyncio.Future[Exchange] = asyncio.get_running_loop().create_future()

    def say(self, method: str, id: object = None, **params: object) -> None:  # noqa: A002 - the protocol's word
        meta = {ID: self.call.id if id is None else id}
        told = {"jsonrpc": "2.0", "method": method, "params": {"_meta": meta, **params}}
        self._hear(json.dumps(told, separators=(",", ":")).encode())

    def acknowledge(self) -> None:
        self.say("notifications/subscriptions/acknowledged", notifications=self.filter)

    def update(self, uri: str = "x://1", **more: Any) -> None:
        self.say("notifications/resources/updated", uri=uri, **more)


class Tells:
    """A transport to an upstream that tells; `play` is done with each stream that is opened."""

    kind = "http"
    address = "http://alpha"
    incarnation = 1

    def __init__(self, play: Callable[[Stream], None] = Stream.acknowledge) -> None:
        self.play = play
        self.streams: list[Stream] = []
        self.ended: Callable[[], None] = lambda: None

    def on_end(self, ended: Callable[[], None]) -> None:
        self.ended = ended

    async def subscribe(self, call: Call, hear: Callable[[bytes], None]) -> Exchange:
        now = asyncio.get_running_loop().time
        stream = Stream(call, hear, now())
        self.streams.append(stream)
        await asyncio.sleep(0.01)
        self.play(stream)
        try:
            return await stream.end
        finally:
            stream.until = now()

    @property
    def open(self) -> list[Stream]:
        return [stream for stream in self.streams if stream.until is None]


class Stage:
    """A listening to alpha and all it stands on; `asked` has what was asked within sessions."""

    def __init__(self, play: Callable[[Stream], None] = Stream.acknowledge, known: Known = MODERN) -> None:
        self.transport = Tells(play)
        self.known = known
        self.heard: list[Event] = []
        self.asked: list[tuple[str, str]] = []
        self.declines: set[str] = set()
        self.sessions = 0
        self.session = self.renewed()
        self._ids = iter(range(1, 100_000))
        transport: Any = self.transport
        self.it = Listening(
            "alpha",
            transport,
            know=self._know,
            listen=self._call,
            session=self._session,
            subscribe=self._subscribe,
            partition=lambda caller: caller.headers.get("authorization", "").encode(),
            changed=self.heard.append,
        )

    def renewed(self) -> Session:
        self.sessions += 1
        self.session = Session(str(self.sessions), TELLS, 1, {})
        return self.session

    def lose(self) -> None:
        lost = self.session
        self.renewed()
        self.it.over(lost)

    async def _know(self, _: Caller) -> Known:
        return self.known

    async def _session(self, _: Caller) -> Session:
        return self.session

    async def _subscribe(self, method: str, uri: str, _: Caller, session: Session) -> bool:
        assert session is self.session
        self.asked.append((method.removeprefix("resources/"), uri))
        await asyncio.sleep(0.01)
        return uri not in self.declines

    def _call(self, _: Caller, wanted: Wanted) -> Call:
        params, headers = listen_call(wanted, b"{}")
        number = next(self._ids)
        return Call(
            number, "subscriptions/listen", encode_call(number, "subscriptions/listen", params), headers
        )

    def take(self) -> list[tuple[Change, str | None]]:
        """What was heard since it was asked last."""
        heard, self.heard[:] = [(one.change, one.uri) for one in self.heard], []
        return heard


def run(body: Callable[[Stage], Coroutine[Any, Any, None]], stage: Callable[[], Stage] = Stage) -> None:
    """Run a test's body on a stage; nothing may be left of it."""

    async def main() -> None:
        made = stage()
        try:
            await body(made)
        finally:
            await made.it.close()
        assert not made.transport.open

    virtual_time.run(main())


def test_a_first_wish_is_told_at_once() -> None:
    """The filter is the wish, and what is heard is a change of that upstream."""

    async def body(stage: Stage) -> None:
        stage.it.want(ANYONE, uris("x://2", "x://1", lists=True))
        await asyncio.sleep(0.1)
        (stream,) = stage.transport.open
        assert stream.filter == {"resourcesListChanged": True, "resourceSubscriptions": ["x://1", "x://2"]}
        assert len(stage.it) == 1
        assert stage.take() == []
        stream.update("x://1")
        stream.say("notifications/resources/list_changed")
        stream.say("notifications/tools/list_changed")
        assert stage.take() == [(Change.RESOURCE, "x://1"), (Change.LIST, None)]

    run(body)


def test_a_stream_is_made_before_the_old_one_breaks() -> None:
    """Wishes are gathered for a moment; at no time is nothing open, and nothing was missed."""

    async def body(stage: Stage) -> None:
        stage.it.want(ANYONE, uris("x://1"))
        await asyncio.sleep(2)
        for name in ("x://2", "x://3", "x://4"):
            stage.it.want(ANYONE, uris("x://1", name))
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
        first, second = stage.transport.streams
        assert second.filter == {"resourceSubscriptions": ["x://1", "x://4"]}
        assert first.until is not None
        assert first.until > second.at + 0.01
        assert second.until is None
        assert stage.take() == []

    run(body)


def test_there_is_one_swap_a_second() -> None:
    """However often wishes change; the last one is told."""

    async def body(stage: Stage) -> None:
        for number in range(100):
            stage.it.want(ANYONE, uris(f"x://{number}"))
            await asyncio.sleep(0.05)
        await asyncio.sleep(3)
        begun = [stream.at for stream in stage.transport.streams]
        assert 4 <= len(begun) <= 7
        assert all(after - before >= 1 for before, after in pairwise(begun))
        (stream,) = stage.transport.open
        assert stream.filter == {"resourceSubscriptions": ["x://99"]}

    run(body)


@pytest.mark.parametrize("id", ["1", 2, 1.0, True, "", [1]], ids=repr)
def test_what_belongs_to_another_stream_is_not_heard(id: object) -> None:  # noqa: A002 - the protocol's word
    """The id comes back with value and type, or it is none of ours."""

    async def body(stage: Stage) -> None:
        stage.it.want(ANYONE, uris("x://1"))
        await asyncio.sleep(0.1)
        stage.transport.open[0].update(id=id)
        assert stage.take() == []

    run(body)


@pytest.mark.parametrize(
    "message", [b"", b"[]", b"5", b"{}", b'{"method":5}', b"{" * 5000, b"\xff"], ids=repr
)
def test_whatever_comes_harms_nothing(message: bytes) -> None:
    """The stream goes on."""

    async def body(stage: Stage) -> None:
        stage.it.want(ANYONE, uris("x://1"))
        await asyncio.sleep(0.1)
        stage.transport.open[0]._hear(message)
        stage.transport.open[0].update()
        assert stage.take() == [(Change.RESOURCE, "x://1")]

    run(body)


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(Exchange(200, None), id="ended"),
        pytest.param(Exchange(200, Reply(result=b"{}")), id="in-order"),  # type: ignore[arg-type] # raw is bytes
        pytest.param(Exchange(503, None), id="503"),
        pytest.param(Exchange(429, None), id="429"),
        pytest.param(BROKEN, id="broken"),
    ],
)
def test_a_stream_that_ends_is_replaced_and_a_gap_told(end: Exchange | UpstreamFailure) -> None:
    """Once, when the next one is open; those that do not come are waited for longer and longer."""

    async def body(stage: Stage) -> None:
        stage.it.want(ANYONE, uris("x://1"))
        await asyncio.sleep(60)
        stage.transport.play = lambda stream: stream.end.set_exception(BROKEN)
        last = stage.transport.open[0].end
        last.set_exception(end) if isinstance(end, Exception) else last.set_result(end)
        await asyncio.sleep(60)
        assert stage.take() == []
        assert 4 <= len(stage.transport.streams) <= 8
        assert len(stage.it) == 0
        stage.transport.play = Stream.acknowledge
        await asyncio.sleep(60)
        assert stage.take() == [(Change.GAP, None)]
        stage.transport.open[0].update()
        assert stage.take() == [(Change.RESOURCE, "x://1")]

    run(body)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 406])
def test_an_upstream_that_refuses_is_not_asked_again_while_it_is_the_same(status: int) -> None:
    """It is asked as soon as something else is known of it."""

    async def body(stage: Stage) -> None:
        stage.it.want(ANYONE, uris("x://1"))
        await asyncio.sleep(3600)
        assert len(stage.transport.streams) == 1
        stage.known = Known(Era.MODERN, TELLS)
        stage.transport.play = Stream.acknowledge
        await asyncio.sleep(120)
        assert len(stage.transport.open) == 1
        assert stage.take() == []

    run(body, lambda: Stage(lambda stream: stream.end.set_result(Exchange(status, None))))


def test_an_upstream_that_never_acknowledges_is_left_and_asked_again() -> None:
    """What it says meanwhile is heard: it is no less true."""

    async def body(stage: Stage) -> None:
        stage.it.want(ANYONE, uris("x://1"))
        await asyncio.sleep(1)
        stage.transport.open[0].update()
        assert stage.take() == [(Change.RESOURCE, "x://1")]
        await asyncio.sleep(listening.ACKNOWLEDGE)
        assert stage.transport.streams[0].until == pytest.approx(listening.ACKNOWLEDGE, abs=0.1)
        assert len(stage.it) == 0
        stage.transport.play = Stream.acknowledge
        await asyncio.sleep(20)
        assert len(stage.it) == 1

    run(body, lambda: Stage(lambda _: None))


@pytest.mark.parametrize(
    ("offers", "wanted", "told"),
    [
        (TELLS, LISTS, {"resourcesListChanged": True}),
        (Discovered(("2026-07-28",), resources=True, list_changed=True), uris("x://1"), None),
        (
            Discovered(("2026-07-28",), resources=True, list_changed=True),
            uris("x://1", lists=True),
            {"resourcesListChanged": True},
        ),
        (
            Discovered(("2026-07-28",), resources=True, subscribe=True),
            uris("x://1", lists=True),
            {"resourceSubscriptions": ["x://1"]},
        ),
        (Discovered(("2026-07-28",), list_changed=True, subscribe=True), LISTS, None),
        (Discovered(("2026-07-28",), resources=True), uris("x://1", lists=True), None),
    ],
)
def test_only_what_an_upstream_tells_of_is_asked_for(
    offers: Discovered, wanted: Wanted, told: dict[str, Any] | None
) -> None:
    """As it declares; where nothing is left of a wish, no stream is opened."""

    async def body(stage: Stage) -> None:
        stage.it.want(ANYONE, wanted)
        await asyncio.sleep(1)
        assert [stream.filter for stream in stage.transport.open] == ([] if told is None else [told])

    run(body, lambda: Stage(known=Known(Era.MODERN, offers)))


def test_what_nobody_wants_is_left() -> None:
    """The stream ends; a wish that comes back in time finds it as it was."""

    async def body(stage: Stage) -> None:
        stage.it.want(ANYONE, LISTS)
        await asyncio.sleep(2)
        stage.it.want(ANYONE, Wanted())
        await asyncio.sleep(0.1)
        stage.it.want(ANYONE, LISTS)
        await asyncio.sleep(2)
        assert len(stage.transport.streams) == 1
        stage.it.want(ANYONE, Wanted())
        await asyncio.sleep(2)
        assert (stage.transport.open, len(stage.it), len(asyncio.all_tasks())) == ([], 0, 1)

    run(body)


def test_a_thousand_wishes_leave_nothing() -> None:
    """No task, no stream, no context."""

    async def body(stage: Stage) -> None:
        for number in range(1000):
            caller = Caller(headers={"authorization": str(number % 50)})
            stage.it.want(caller, uris(f"x://{number}"))
            if number % 3:
                await asyncio.sleep(0.03)
            stage.it.want(caller, Wanted())
        await asyncio.sleep(5)
        assert (stage.transport.open, stage.it._contexts, stage.it._tasks) == ([], {}, {})
        assert len(asyncio.all_tasks()) == 1

    run(body)


def test_contexts_are_heard_apart() -> None:
    """Each has its stream, and an event says whose it was heard on."""
    ann, bob = (Caller(headers={"authorization": name}) for name in ("ann", "bob"))

    async def body(stage: Stage) -> None:
        stage.it.want(ann, uris("x://1"))
        stage.it.want(bob, uris("x://2"))
        await asyncio.sleep(0.1)
        for stream in stage.transport.open:
            stream.update(stream.filter["resourceSubscriptions"][0])
        told = {(event.context, event.uri) for event in stage.heard}
        assert told == {(b"ann", "x://1"), (b"bob", "x://2")}

    run(body)


def test_contexts_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose wish is the oldest is left, and what he will not hear is told as a gap."""
    monkeypatch.setattr(listening, "MAX_CONTEXTS", 3)
    callers = [Caller(headers={"authorization": str(number)}) for number in range(4)]

    async def body(stage: Stage) -> None:
        for caller in callers[:3]:
            stage.it.want(caller, LISTS)
        await asyncio.sleep(2)
        stage.it.want(callers[0], uris("x://1"))
        stage.it.want(callers[3], LISTS)
        await asyncio.sleep(2)
        assert len(stage.transport.open) == 3
        assert [(event.change, event.context) for event in stage.heard] == [(Change.GAP, b"1")]

    run(body)


def test_uris_have_a_bound(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The rest is not heard of, and the log says so."""
    monkeypatch.setattr(listening, "MAX_URIS", 2)

    async def body(stage: Stage) -> None:
        stage.it.want(ANYONE, uris("x://3", "x://2", "x://1"))
        await asyncio.sleep(1)
        (stream,) = stage.transport.open
        assert stream.filter == {"resourceSubscriptions": ["x://1", "x://2"]}

    run(body)
    assert "of 3 resources only 2 are listened to" in caplog.text


# --- legacy upstreams ---


def legacy() -> Stage:
    return Stage(known=Known(Era.LEGACY, TELLS))


def test_a_legacy_upstream_is_asked_uri_by_uri() -> None:
    """Once for each, and once no more; wishes are gathered."""

    async def body(stage: Stage) -> None:
        stage.it.want(ANYONE, uris("x://1", "x://2"))
        await asyncio.sleep(1)
        assert sorted(stage.asked) == [("subscribe", "x://1"), ("subscribe", "x://2")]
        stage.asked.clear()
        for name in ("x://3", "x://4"):
            stage.it.want(ANYONE, uris("x://2", name))
        await asyncio.sleep(1)
        assert sorted(stage.asked) == [("subscribe", "x://4"), ("unsubscribe", "x://1")]
        stage.asked.clear()
        stage.it.want(ANYONE, Wanted())
        await asyncio.sleep(1)
        assert sorted(stage.asked) == [("unsubscribe", "x://2"), ("unsubscribe", "x://4")]
        assert not stage.it._contexts

    run(body, legacy)


def test_H18_a_new_session_is_asked_anew() -> None:
    """All that is wanted, as soon as the old one is over."""

    async def body(stage: Stage) -> None:
        stage.it.want(ANYONE, uris("x://1", "x://2"))
        await asyncio.sleep(1)
        stage.asked.clear()
        stage.lose()
        await asyncio.sleep(1)
        assert sorted(stage.asked) == [("subscribe", "x://1"), ("subscribe", "x://2")]
        assert stage.take() == []

    run(body, legacy)


def test_what_a_legacy_upstream_will_not_have_is_asked_once_a_session() -> None:
    """The others are told of all the same."""

    async def body(stage: Stage) -> None:
        stage.declines = {"x://1"}
        stage.it.want(ANYONE, uris("x://1", "x://2"))
        await asyncio.sleep(1000)
        assert sorted(stage.asked) == [("subscribe", "x://1"), ("subscribe", "x://2")]
        stage.lose()
        await asyncio.sleep(1)
        assert len(stage.asked) == 4

    run(body, legacy)


def test_a_process_that_is_another_one_has_told_nothing_meanwhile() -> None:
    """Over stdio a session has no stream that could tell the gap."""

    async def body(stage: Stage) -> None:
        stage.session = Session(None, TELLS, 1, {})
        stage.it.want(ANYONE, uris("x://1"))
        await asyncio.sleep(1)
        assert stage.take() == []
        stage.session = Session(None, TELLS, 2, {})
        stage.transport.incarnation = 2
        stage.transport.ended()
        await asyncio.sleep(1)
        assert stage.take() == [(Change.GAP, None)]
        assert stage.asked == [("subscribe", "x://1")] * 2

    run(body, legacy)
