"""Clients that want no copy, and a store that has no room, over the whole product.

Each row is one input.  It is judged by what reached the upstream and by what the client got for it.
"""

import asyncio
import json
from typing import Any

import pytest

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
    fronted,
    run,
    shown,
    text,
)
from tests.instruments.house import Reply, house
from tests.instruments.wire import (
    Wire,
    contents,
    error,
    page,
    reply,
    result,
)

BRIEF = result(contents("x://1", ttl=1000))
NEW = result(contents("x://1", "new"))


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
