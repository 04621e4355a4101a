import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.model import Change, Event
from mcp_federator.protocol import sse
from mcp_federator.protocol.modern import Discovered
from mcp_federator.upstream.restarts import CALM, FIRST, LONGEST
from mcp_federator.upstream.sessions import Session
from mcp_federator.upstream.streams import MAX_RETRY, MAX_STREAMS, Streams
from tests.instruments import virtual_time

GAP = Event("alpha", Change.GAP)
BROKEN = UpstreamFailure("alpha", Reason.UNREACHABLE, "broken")
ELSEWHERE = UpstreamFailure("alpha", Reason.REFUSED, "a redirect to elsewhere")


def session(number: str | None = "S1", *, resources: bool = True) -> Session:
    return Session(number, Discovered(("2025-11-25",), resources=resources), 0, {"a": "b"})


class Open(NamedTuple):
    """A stream: what comes on it, for how long it is open, and how it ends."""

    lasts: float = 1e6
    text: bytes = b""
    ends: Exception | None = None


class Stage:
    """Streams over a scripted transport: each connection is a status, a failure, or an `Open`."""

    def __init__(self, *plays: int | Exception | Open) -> None:
        self._plays = plays
        self.opened: list[float] = []
        self.places: list[str] = []
        self.events: list[Event] = []
        self.losses = 0
        transport: Any = self
        self.streams = Streams("alpha", transport, self.events.append, jitter=lambda: 0.0)

    async def listen(
        self, headers: Any, decoder: sse.Decoder, begins: Callable[[], None], context: object = None
    ) -> int:
        assert context is None
        assert headers == {"a": "b"}
        play = self._plays[min(len(self.opened), len(self._plays) - 1)]
        self.opened.append(asyncio.get_running_loop().time())
        self.places.append(decoder.id)
        match play:
            case int():
                return play
            case Exception():
                raise play
        begins()
        decoder.feed(play.text)
        await asyncio.sleep(play.lasts)
        if play.ends is not None:
            raise play.ends
        return 200

    def want(self, wanted: Session) -> None:
        self.streams.want(wanted, self._lose)

    def _lose(self) -> None:
        self.losses += 1


def play(stage: Stage, seconds: float, first: Session | None = None) -> None:
    """Want the stream of one session, and look on for so long."""

    async def body() -> None:
        stage.want(first or session())
        await asyncio.sleep(seconds)
        await stage.streams.close()
        assert len(stage.streams) == 0

    virtual_time.run(body())


# --- when it is opened ---


def test_a_session_has_one_stream() -> None:
    """However often it is wanted."""
    stage = Stage(Open())

    async def body() -> None:
        only = session()
        for _ in range(3):
            stage.want(only)
            await asyncio.sleep(1)
        assert (len(stage.opened), stage.events) == (1, [])
        await stage.streams.close()

    virtual_time.run(body())


@pytest.mark.parametrize("without", [session(None), session(resources=False)])
def test_some_sessions_have_none(without: Session) -> None:
    """A server that gives no ids has nobody to speak to, and one without resources nothing to tell."""
    stage = Stage(Open())
    play(stage, 100, without)
    assert stage.opened == []


def test_streams_are_bounded() -> None:
    """Beyond the limit a session has none, until one is free and it is used again."""
    stage = Stage(Open())

    async def body() -> None:
        sessions = [session(f"S{n}") for n in range(MAX_STREAMS + 1)]
        for one_more in sessions:
            stage.want(one_more)
        await asyncio.sleep(1)
        assert len(stage.opened) == len(stage.streams) == MAX_STREAMS
        stage.streams.end(sessions[0])
        await asyncio.sleep(1)
        stage.want(sessions[-1])
        await asyncio.sleep(1)
        assert (len(stage.opened), len(stage.streams)) == (MAX_STREAMS + 1, MAX_STREAMS)
        await stage.streams.close()

    virtual_time.run(body())


@pytest.mark.parametrize("answer", [400, 401, 403, 404, 405, 204, 302, ELSEWHERE], ids=str)
def test_a_stream_that_is_not_offered_is_not_asked_for_again(answer: int | Exception) -> None:
    """Not within the session, which goes on: a 404 to its first GET does not say that it is lost."""
    stage = Stage(answer)

    async def body() -> None:
        first, second = session("S1"), session("S2")
        for _ in range(3):
            stage.want(first)
            await asyncio.sleep(1000)
        assert (len(stage.opened), stage.losses, stage.events) == (1, 0, [])
        stage.streams.end(first)
        stage.want(second)
        await asyncio.sleep(1)
        assert len(stage.opened) == 2
        await stage.streams.close()

    virtual_time.run(body())


@pytest.mark.parametrize("answer", [500, 503, 429, 408, BROKEN], ids=str)
def test_passing_trouble_is_waited_out(answer: int | Exception) -> None:
    """Each wait is twice the one before, up to a limit."""
    stage = Stage(answer)
    play(stage, 200)
    waits = [later - earlier for earlier, later in zip(stage.opened, stage.opened[1:], strict=False)]
    assert waits[:3] == [FIRST, 2 * FIRST, 4 * FIRST]
    assert waits[-1] == LONGEST
    assert (stage.losses, stage.events) == (0, [])


# --- how it ends ---


@pytest.mark.parametrize("ends", [None, BROKEN, ValueError("too large")], ids=["in order", "broken", "bad"])
def test_a_stream_that_ended_is_opened_again(ends: Exception | None) -> None:
    """Changes may have passed unheard: once it is open again, and not before, that is told."""
    stage = Stage(Open(5.0, ends=ends), BROKEN, Open())

    async def body() -> None:
        stage.want(session())
        await asyncio.sleep(6)
        assert stage.events == []
        await asyncio.sleep(10)
        assert (len(stage.opened), stage.events) == (3, [GAP])
        await stage.streams.close()

    virtual_time.run(body())


def test_a_stream_that_is_taken_up_where_it_broke_off_has_no_gap() -> None:
    """The server gets the id of the last event that came whole, and sends what came since."""
    text = b"id: 7\ndata: {}\n\nid: 8\ndata: {}"
    stage = Stage(Open(5.0, text), BROKEN, Open(50.0), Open())
    play(stage, 100)
    assert (stage.places, stage.events) == (["", "7", "7", "7"], [])


@pytest.mark.parametrize("number", ["id: \xe9", "id: a\x7f"])
def test_an_id_that_fits_in_no_field_is_not_sent(number: str) -> None:
    """Then the stream cannot be taken up, and there is a gap."""
    stage = Stage(Open(5.0, number.encode() + b"\ndata: {}\n\n"), Open())
    play(stage, 100)
    assert (stage.places, stage.events) == (["", ""], [GAP])


@pytest.mark.parametrize(("status", "losses"), [(404, 1), (400, 1), (401, 0), (405, 0)])
@pytest.mark.parametrize("text", [b"", b"id: 7\ndata: {}\n\n"], ids=["without id", "with id"])
def test_a_stream_that_is_refused_later_leaves_a_gap(status: int, losses: int, text: bytes) -> None:
    """404 says now that the session is lost, and 400 with some servers."""
    stage = Stage(Open(50.0, text), status)
    play(stage, 1000)
    assert (stage.losses, stage.events, len(stage.opened)) == (losses, [GAP], 2)


def test_a_session_that_ends_leaves_a_gap_to_the_next() -> None:
    """What changed while nobody listened is told of when somebody does again, or cannot."""
    stage = Stage(Open(), Open(), 405)

    async def body() -> None:
        for number in range(3):
            current = session(f"S{number}")
            stage.want(current)
            await asyncio.sleep(1000)
            assert stage.events == [GAP] * number
            stage.streams.end(current)
            await asyncio.sleep(1000)
            assert stage.events == [GAP] * number
        await stage.streams.close()

    virtual_time.run(body())


def test_a_stream_that_ends_at_once_is_none() -> None:
    """Three in a row without a word: no further try, and no gap."""
    stage = Stage(Open(0.0, b": hello\n\n"))
    play(stage, 1000)
    assert (len(stage.opened), stage.events, stage.losses) == (3, [], 0)


def test_a_stream_that_is_polled() -> None:
    """Closed after each id, with a time to wait for: it is taken up each time, without a gap."""
    stage = Stage(*(Open(0.0, b"id: %d\nretry: 20000\ndata:\n\n" % n) for n in range(20)))
    play(stage, 210)
    waits = [later - earlier for earlier, later in zip(stage.opened, stage.opened[1:], strict=False)]
    assert waits[0] == 20
    assert stage.places[:3] == ["", "0", "1"]
    assert (len(stage.opened) > 5, stage.events) == (True, [])


@pytest.mark.parametrize("retry", ["99999999", "9" * 15])
def test_a_server_cannot_ask_for_a_long_wait(retry: str) -> None:
    """Nor for one that is no number."""
    stage = Stage(Open(CALM, b"retry: %b\n\n" % retry.encode()), Open())
    play(stage, 100)
    assert stage.opened == [0.0, CALM + MAX_RETRY]


def test_an_end_is_heard_while_it_waits() -> None:
    """Whatever a stream waits for, its session's end is its own."""
    for first in (Open(5.0), BROKEN):
        stage = Stage(first, 503)

        async def body(stage: Stage = stage) -> None:
            only = session()
            stage.want(only)
            await asyncio.sleep(100)
            stage.streams.end(only)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(stage.streams) == 0

        virtual_time.run(body())
