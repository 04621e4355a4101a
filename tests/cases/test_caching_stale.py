"""When a copy stands in for an answer, when it must not, and when it is fetched anew (design, section 6).

Each row is one input.  It is judged by what reached the upstream, and by what the client got.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from mcp_federator.model import Change, Event
from tests.instruments.fronted import (
    FORWARD,
    LIST,
    NO_CACHE,
    ONE,
    PARAMS,
    READ,
    SHELF,
    URI,
    Clock,
    after,
    bearer,
    failed,
    fronted,
    run,
    shown,
    text,
    waiting,
)
from tests.instruments.house import Reply, house
from tests.instruments.wire import (
    Answer,
    Answers,
    End,
    Wire,
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


# Cache-Control: no-cache.


def fetched(told: Reply) -> bool:
    """Whether the upstream was asked because the client said so."""
    assert told.cache_status.startswith(("mcp-federator; hit", "mcp-federator; fwd=request"))
    return "fwd=request" in told.cache_status


@pytest.mark.parametrize(
    ("allowed", "headers", "answered"),
    [
        pytest.param(None, {"Cache-Control": "no-cache"}, True, id="by-default-from-loopback"),
        pytest.param("loopback", {"Cache-Control": "no-cache"}, True, id="loopback"),
        pytest.param("always", {"Cache-Control": "no-cache"}, True, id="always"),
        pytest.param("never", {"Cache-Control": "no-cache"}, False, id="never"),
        pytest.param("loopback", {**NO_CACHE, "X-Forwarded-For": "9.9.9.9"}, False, id="through-a-proxy"),
        pytest.param("loopback", {**NO_CACHE, "Forwarded": "for=9.9.9.9"}, False, id="through-another-proxy"),
        pytest.param("loopback", {**NO_CACHE, "Via": "1.1 p"}, False, id="through-a-third"),
        pytest.param("always", {**NO_CACHE, "X-Forwarded-For": "9.9.9.9"}, True, id="always-through-a-proxy"),
        pytest.param("always", {"Cache-Control": "No-Cache"}, True, id="letter-case"),
        pytest.param("always", {"Cache-Control": "max-age=9, no-cache ,x"}, True, id="among-others"),
        pytest.param("always", {"Cache-Control": "max-age=0"}, False, id="max-age"),
        pytest.param("always", {"Cache-Control": "no-cachet"}, False, id="another-word"),
        pytest.param("always", {"Cache-Control": ""}, False, id="empty"),
        pytest.param("always", {"Pragma": "no-cache"}, False, id="pragma"),
    ],
)
def test_who_may_refresh(allowed: str | None, headers: dict[str, str], answered: bool) -> None:
    """As `cache.client_refresh` says; who may not is served from the copy, without an error."""
    cache = {} if allowed is None else {"client_refresh": allowed}

    async def body() -> None:
        clock = Clock()
        async with fronted({READ: [result(ONE), NEW]}, clock=clock, cache=cache) as (it, wire):
            await it.read(URI)
            clock.now += 10
            told = await it.read(URI, headers=headers)
            assert fetched(told) is answered
            assert (text(told), told.result["ttlMs"]) == (("new", 60_000) if answered else ("text", 50_000))
            assert text(await it.read(URI)) == text(told)
            assert len(wire.calls(READ)) == (2 if answered else 1)

    run(body())


@pytest.mark.parametrize("method", SHELF)
def test_a_refresh_at_most_once_a_second(method: str) -> None:
    """However many ask for it; each copy counts for itself."""

    async def body() -> None:
        clock = Clock()
        async with fronted({method: result(SHELF[method])}, clock=clock) as (it, wire):
            await it.post(method, PARAMS[method])
            asked = []
            for _ in range(5):
                asked += [fetched(await it.post(method, PARAMS[method], headers=NO_CACHE)) for _ in range(3)]
                clock.now += 0.5
            assert asked == [True, *[False] * 5] * 2 + [True, False, False]
            assert len(wire.calls(method)) == 4
            if method == READ:
                await it.read("alpha+x://2")
                assert fetched(await it.read("alpha+x://2", headers=NO_CACHE))

    run(body())


def test_a_refresh_that_fails_leaves_the_copy() -> None:
    """The fresh copy stands in, with the life it has."""

    async def body() -> None:
        clock = Clock()
        async with fronted({READ: [result(ONE), reply(b"", status=500)]}, clock=clock) as (it, wire):
            await it.read(URI)
            clock.now += 10
            told = await it.read(URI, headers=NO_CACHE)
            assert (text(told), told.result["ttlMs"]) == ("text", 50_000)
            assert (await it.read(URI)).result["ttlMs"] == 50_000
            assert len(wire.calls(READ)) == 2

    run(body())


def test_a_refresh_that_is_answered_with_an_error_drops_the_copy() -> None:
    """The upstream has said something else now."""

    async def body() -> None:
        async with fronted({READ: [result(ONE), error(7001), NEW]}) as (it, _):
            await it.read(URI)
            assert (await it.read(URI, headers=NO_CACHE)).error["code"] == 7001
            assert text(await it.read(URI)) == "new"

    run(body())


def test_refreshes_at_once_are_one() -> None:
    """Those who come while it is under way are given the copy, and nobody is without an answer."""

    async def body() -> None:
        go = asyncio.Event()
        async with fronted({READ: [result(ONE), after(go, NEW)]}) as (it, wire):
            await it.read(URI)
            first = asyncio.create_task(it.read(URI, headers=NO_CACHE))
            await wire.arrived(READ, 2)
            others = await asyncio.gather(*(it.read(URI, headers=NO_CACHE) for _ in range(5)))
            assert {text(one) for one in others} == {"text"}
            go.set()
            assert text(await first) == "new"
            assert len(wire.calls(READ)) == 2

    run(body())


def test_a_refresh_of_a_private_copy_is_the_callers_own() -> None:
    """Another caller's copy stays what it is."""

    async def body() -> None:
        kept = [result(contents("x://1", word, scope="private")) for word in ("A1", "B1", "A2")]
        async with fronted({READ: kept}, FORWARD) as (it, wire):
            await it.read(URI, headers=bearer("A"))
            await it.read(URI, headers=bearer("B"))
            assert text(await it.read(URI, headers=bearer("A") | NO_CACHE)) == "A2"
            assert text(await it.read(URI, headers=bearer("B"))) == "B1"
            assert text(await it.read(URI, headers=bearer("A"))) == "A2"
            assert len(wire.calls(READ)) == 3

    run(body())


def test_a_refreshed_list_asks_every_upstream() -> None:
    """A merged page is refreshed in all its parts."""

    async def body() -> None:
        async with (
            Wire({LIST: [result(page("a://1")), result(page("a://2"))]}) as alpha,
            Wire({LIST: [result(page("b://1")), result(page("b://2"))]}) as beta,
            house({"alpha": alpha.url, "beta": beta.url}) as it,
        ):
            for _ in range(2):
                assert (await it.page()).uris == ["alpha+a://1", "beta+b://1"]
            assert (await it.page(headers=NO_CACHE)).uris == ["alpha+a://2", "beta+b://2"]
            assert (await it.page()).uris == ["alpha+a://2", "beta+b://2"]
            assert (len(alpha.calls(LIST)), len(beta.calls(LIST))) == (2, 2)

    run(body())


# The budget of the store.


def test_the_store_stays_within_its_budget() -> None:
    """A hundred answers of 4 KiB pass through 64 KiB: all are served, and the latest are kept."""
    answer = result(contents("x://1", "k" * 4096))

    async def body() -> None:
        async with fronted({READ: answer}, cache={"memory": "64KiB"}) as (it, wire):
            for n in range(100):
                assert len(shown(await it.read(f"alpha+x://{n}"))) == 1
                assert await it.samples("mcp_federator_cache_bytes", tier="memory") <= 65_536
            assert 10 <= await it.samples("mcp_federator_cache_entries") <= 16
            assert await it.samples("mcp_federator_cache_evictions_total") >= 84
            assert "hit" in (await it.read("alpha+x://99")).cache_status
            assert "miss" in (await it.read("alpha+x://0")).cache_status
            assert len(wire.calls(READ)) == 101

    run(body())


@pytest.mark.parametrize(("memory", "size"), [("8KiB", 10_000), (0, 10)])
def test_what_does_not_fit_is_served_all_the_same(memory: Any, size: int) -> None:
    """It is not kept, and not told as stored; the client may keep it as long as the upstream says."""

    async def body() -> None:
        async with fronted({READ: result(contents("x://1", "k" * size))}, cache={"memory": memory}) as (
            it,
            wire,
        ):
            for _ in range(2):
                told = await it.read(URI)
                assert (len(text(told)), told.cache_status) == (size, "mcp-federator; fwd=miss")
                assert told.result["ttlMs"] == 60_000
            assert len(wire.calls(READ)) == 2
            assert await it.samples("mcp_federator_cache_bytes") == 0

    run(body())


def test_each_query_has_one_outcome() -> None:
    """Over hits, misses, stale copies, errors, bypasses and crowds, outcomes sum to the queries."""

    async def body() -> None:
        clock = Clock()
        answers = [BRIEF, reply(b"", status=500), error(7001), NEW]
        async with fronted({READ: answers}, clock=clock) as (it, _):
            queries = 0
            for wait in (0, 0, 2, 0, 0, 0):
                clock.now += wait
                await it.read(URI)
                queries += 1
            for params in ({"uri": URI, "requestState": "s"}, {"uri": "alpha+x://2"}):
                await asyncio.gather(*(it.post(READ, params) for _ in range(5)))
                queries += 5
            assert await it.samples("mcp_federator_cache_requests_total", upstream="alpha") == queries
            rates = (await it.status())["cache"]["requests"]
            assert json.dumps(rates).count("alpha") >= 1

    run(body())
