"""When a copy stands in for an answer, and when it must not (design, section 6).

Each row is one input.  It is judged by what reached the upstream, and by what the client got.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from mcp_federator.model import Change, Event
from tests.instruments.fronted import (
    FORWARD,
    LIST,
    ONE,
    READ,
    URI,
    Clock,
    after,
    bearer,
    failed,
    fronted,
    run,
    text,
    waiting,
)
from tests.instruments.wire import (
    Answer,
    Answers,
    End,
    contents,
    drop,
    error,
    never,
    page,
    raw,
    reply,
    reset,
    result,
)

STALE = "mcp-federator; fwd=stale; detail=stale-if-error"
BRIEF = result(contents("x://1", ttl=1000))
NEW = result(contents("x://1", "new"))


# stale_if_error.

FIVE_HUNDREDS = [500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511, 520, 529, 598, 599]
NO_ANSWERS: dict[str, Sequence[Answer]] = {
    **{str(status): [reply(b"", status=status)] for status in FIVE_HUNDREDS},
    "500-with-a-result": [result(ONE, status=500)],
    "500-with-an-error": [error(-32603, status=500)],
    "503-retry-after": [reply(b"", status=503, headers={"Retry-After": "9"})],
    "429": [reply(b"", status=429)],
    "429-retry-after": [reply(b"", status=429, headers={"Retry-After": "9"})],
    "429-with-an-error": [error(7001, status=429)],
    "closed": [drop(), drop()],
    "reset": [reset(), reset()],
    "broken-off": [
        raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{", End.CLOSE)
    ],
    "silence": [never()],
    "no-http": [raw(b"SSH-2.0-x\r\n\r\n", End.CLOSE)],
    "garbage": [reply(b"}")],
    "html": [reply(b"<html>", content_type="text/html")],
    "nothing": [reply(b"", status=204, content_type=None)],
    "another-id": [reply(b'{"jsonrpc":"2.0","id":0,"result":{}}')],
    "no-contents": [result({"resultType": "complete"})],
}
"""What is no answer, each as often as it is asked for once."""


@pytest.mark.parametrize("kind", NO_ANSWERS)
def test_a_stale_copy_stands_in_for_no_answer(kind: str) -> None:
    """The copy comes, with no life and told as stale; when the upstream recovers its new answer comes."""
    silence = {"timeout": 0.2} if kind == "silence" else {}

    async def body() -> None:
        clock = Clock()
        async with fronted({READ: [BRIEF, *NO_ANSWERS[kind], NEW]}, silence, clock=clock) as (it, wire):
            fresh = await it.read(URI)
            clock.now += 2
            stale = await it.read(URI)
            assert (text(stale), stale.result["ttlMs"], stale.cache_status) == ("text", 0, STALE)
            assert stale.result["cacheScope"] == fresh.result["cacheScope"] == "public"
            assert len(wire.calls(READ)) == 1 + len(NO_ANSWERS[kind])
            assert await it.samples("mcp_federator_cache_requests_total", outcome="stale", tier="memory") == 1
            clock.now += 9
            again = await it.read(URI)
            assert (text(again), again.cache_status) == ("new", "mcp-federator; fwd=stale; stored")

    run(body())


ANSWERS: dict[str, Sequence[Answer]] = {
    **{str(status): [reply(b"", status=status)] for status in (400, 401, 403, 404, 405, 406, 410, 415, 418)},
    "302": [reply(b"", status=302, headers={"Location": "/"})],
    "307-elsewhere": [reply(b"", status=307, headers={"Location": "http://elsewhere.test/"})],
    "not-found": [error(-32602)],
    "not-found-of-legacy": [error(-32002)],
    "its-own-error": [error(7001, status=200)],
    "internal-error": [error(-32603)],
    "no-such-method": [error(-32601)],
    "a-reserved-error": [error(-32050)],
    "unsupported-version": [error(-32022), error(-32022)],
    "missing-capability": [error(-32021), error(-32021)],
    "input": [result({"resultType": "input_required", "requestState": "s"})] * 2,
}
"""What is an answer, although none to be kept, each as often as it is asked for once."""


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_that_is_an_error_drops_the_copy(kind: str) -> None:
    """It is told, and what was kept is not served from then on, not even when the upstream fails."""

    async def body() -> None:
        clock = Clock()
        answers: dict[str, Answers] = {
            READ: [BRIEF, *ANSWERS[kind], reply(b"", status=500), NEW],
            LIST: result(page()),
        }
        async with fronted(answers, clock=clock) as (it, wire):
            await it.read(URI)
            clock.now += 2
            told = await it.read(URI)
            assert "contents" not in told.message.get("result", {})
            assert len(wire.calls(READ)) == 1 + len(ANSWERS[kind])
            failed(await it.read(URI), "bad_reply")
            assert text(await it.read(URI)) == "new"

    run(body())


def test_the_breaker_opens_and_the_copy_stands_in() -> None:
    """While it is open the upstream is not asked; the status says so."""

    async def body() -> None:
        clock = Clock()
        settings = {"breaker": {"failures": 1, "open_for": 10}}
        async with fronted({READ: [BRIEF, reply(b"", status=500), NEW]}, settings, clock=clock) as (it, wire):
            await it.read(URI)
            clock.now += 2
            assert (await it.read(URI)).cache_status == STALE
            clock.now += 2
            told = await it.read(URI)
            assert (text(told), told.result["ttlMs"]) == ("text", 0)
            assert told.cache_status == "mcp-federator; hit; ttl=-3; detail=breaker"
            assert len(wire.calls(READ)) == 2
            failed(await it.read("alpha+x://2"), "unreachable")
            assert (await it.status())["upstreams"][0]["breaker"] == "open"
            clock.now += 12
            assert text(await it.read(URI)) == "new"
            assert (await it.status())["upstreams"][0]["breaker"] == "closed"

    run(body())


def test_who_is_told_to_wait_gets_the_copy() -> None:
    """After 429 the upstream is left alone, and the copy comes meanwhile."""

    async def body() -> None:
        clock = Clock()
        busy = reply(b"", status=429, headers={"Retry-After": "9"})
        async with fronted({READ: [BRIEF, busy, NEW]}, clock=clock) as (it, wire):
            await it.read(URI)
            clock.now += 2
            assert (await it.read(URI)).cache_status == STALE
            for _ in range(2):
                told = await it.read(URI)
                assert (text(told), told.cache_status) == ("text", "mcp-federator; hit; ttl=-1; detail=held")
            assert len(wire.calls(READ)) == 2
            clock.now += 9
            assert text(await it.read(URI)) == "new"

    run(body())


def test_our_own_limit_is_no_answer_either() -> None:
    """With all places at the upstream taken, the copy comes."""

    async def body() -> None:
        go, clock = asyncio.Event(), Clock()
        async with fronted({READ: [BRIEF, after(go, NEW)]}, {"max_in_flight": 1}, clock=clock) as (it, wire):
            await it.read(URI)
            clock.now += 2
            other = asyncio.create_task(it.read("alpha+x://2"))
            await wire.arrived(READ, 2)
            assert (text(await it.read(URI)), len(wire.calls(READ))) == ("text", 2)
            failed(await it.read("alpha+x://3"), "overloaded")
            go.set()
            await other

    run(body())


@pytest.mark.parametrize(
    ("window", "age", "served"),
    [
        pytest.param("5m", 300, True, id="within"),
        pytest.param("5m", 301, False, id="past"),
        pytest.param("10s", 10, True, id="shorter"),
        pytest.param("10s", 11.5, False, id="past-a-shorter-one"),
        pytest.param(0, 1, False, id="none"),
    ],
)
def test_the_stale_window(window: Any, age: float, served: bool) -> None:
    """`cache.stale_if_error` seconds past its life a copy is gone."""

    async def body() -> None:
        clock = Clock()
        cache = {"stale_if_error": window}
        async with fronted({READ: [BRIEF, reply(b"", status=500)]}, clock=clock, cache=cache) as (it, _):
            await it.read(URI)
            clock.now += age
            told = await it.read(URI)
            if served:
                assert (text(told), told.cache_status) == ("text", STALE)
            else:
                failed(told, "bad_reply")

    run(body())


@pytest.mark.parametrize(("what", "served"), [(Change.RESOURCE, False), (Change.GAP, True)])
def test_after_a_change_nothing_stands_in(what: Change, served: bool) -> None:
    """What is known to be wrong is not served; what may be wrong is, until the upstream says more."""

    async def body() -> None:
        clock = Clock()
        async with fronted({READ: [BRIEF, reply(b"", status=500)]}, clock=clock) as (it, _):
            await it.read(URI)
            uri = "x://1" if what is Change.RESOURCE else None
            it.app._federation._stacks["alpha"].cached.invalidate(Event("alpha", what, uri))
            clock.now += 2
            told = await it.read(URI)
            if served:
                assert text(told) == "text"
            else:
                failed(told, "bad_reply")

    run(body())


def test_a_private_copy_stands_in_for_its_own_caller() -> None:
    """Nobody else is given it, whatever fails."""

    async def body() -> None:
        clock = Clock()
        private = result(contents("x://1", "of A", ttl=1000, scope="private"))
        async with fronted({READ: [private, drop()]}, FORWARD, clock=clock) as (it, _):
            await it.read(URI, headers=bearer("A"))
            clock.now += 2
            assert text(await it.read(URI, headers=bearer("A"))) == "of A"
            failed(await it.read(URI, headers=bearer("B")), "unreachable")
            failed(await it.read(URI), "unreachable")

    run(body())


def test_a_crowd_gets_the_stale_copy() -> None:
    """Of many who wait for one request that fails, each gets it, and is counted."""

    async def body() -> None:
        go, clock = asyncio.Event(), Clock()
        async with fronted({READ: [BRIEF, after(go, reply(b"", status=500))]}, clock=clock) as (it, wire):
            await it.read(URI)
            clock.now += 2
            asked = [asyncio.create_task(it.read(URI)) for _ in range(20)]
            await waiting(it, 20)
            go.set()
            assert {text(await one) for one in asked} == {"text"}
            assert len(wire.calls(READ)) == 2
            counted = "mcp_federator_cache_requests_total"
            assert [await it.samples(counted, outcome=word) for word in ("miss", "stale")] == [1, 20]

    run(body())
