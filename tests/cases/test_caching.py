"""How long answers are kept: cases H25, H26 and H27, over the whole product.

Each row is one input.  It is judged by what reached the upstream, and by what each client got.
"""

import asyncio
import json
import re
from typing import Any

import pytest
from mcp_types import ListResourcesResult, ReadResourceResult

from tests.instruments import servers
from tests.instruments.fronted import (
    FORWARD,
    LIST,
    ONE,
    PARAMS,
    READ,
    SHELF,
    URI,
    Clock,
    bearer,
    choosing,
    fronted,
    run,
    shown,
)
from tests.instruments.house import Reply, house
from tests.instruments.servers import Shelf
from tests.instruments.wire import (
    Answer,
    Wire,
    drop,
    page,
    result,
)

# H25 and H26: hints of every kind, and none.

DAY = 24 * 3600 * 1000


def hinted(method: str, ttl: str | None, scope: str | None) -> Answer:
    """A result with these hints as JSON text, None for absent ones."""
    members = {k: v for k, v in SHELF[method].items() if k not in {"ttlMs", "cacheScope"}}
    told = json.dumps(members).encode()[:-1]
    told += b"" if ttl is None else b',"ttlMs":' + ttl.encode()
    told += b"" if scope is None else b',"cacheScope":' + scope.encode()
    return result(told + b"}")


def ttl_of(reply: Reply) -> int:
    """`ttlMs` as it stands in the reply: a whole number that is not negative."""
    (spelling,) = re.findall(rb'"ttlMs":([^,}]*)', reply.body)
    assert re.fullmatch(rb"0|[1-9][0-9]*", spelling)
    return int(spelling)


@pytest.mark.parametrize("method", SHELF)
@pytest.mark.parametrize(
    ("ttl", "told"),
    [
        ("0", 0),
        ("-0", 0),
        ("-1", 0),
        ("-9223372036854775808", 0),
        ("1", 1),
        ("60000", 60_000),
        ("60000.0", 60_000),
        ("6e4", 60_000),
        ("6E+4", 60_000),
        ("0.4", 0),
        ("60000.4", 0),
        ("1e-3", 0),
        ('"60000"', 0),
        ('""', 0),
        ("true", 0),
        ("false", 0),
        ("null", 0),
        ("[]", 0),
        ("[60000]", 0),
        ('{"ms":60000}', 0),
        (str(DAY), DAY),
        (str(DAY + 1), DAY),
        ("9007199254740993", DAY),
        ("9223372036854775807", DAY),
        ("9223372036854775808", DAY),
        ("1e30", DAY),
        ("1" + "0" * 300, DAY),
    ],
)
def test_H25_any_ttl(ttl: str, told: int, method: str) -> None:
    """The client is served whatever `ttlMs` is; it is told, and kept, what of it is sound, a day at most."""

    async def body() -> None:
        clock = Clock()
        async with fronted({method: hinted(method, ttl, '"public"')}, clock=clock) as (it, wire):
            first = await it.post(method, PARAMS[method])
            assert (len(shown(first)), ttl_of(first)) == (1, told)
            second = await it.post(method, PARAMS[method])
            assert ttl_of(second) == told
            assert len(wire.calls(method)) == (1 if told else 2)
            if told:
                clock.now += told / 1000 - 0.001
                assert ttl_of(await it.post(method, PARAMS[method])) <= 1
                assert len(wire.calls(method)) == 1
                clock.now += 0.001
                await it.post(method, PARAMS[method])
                assert len(wire.calls(method)) == 2

    run(body())


@pytest.mark.parametrize(
    ("cache", "ttl", "told"),
    [
        ({"max_ttl": "1h"}, "86400000", 3_600_000),
        ({"max_ttl": "1h"}, "1e30", 3_600_000),
        ({"max_ttl": "1500ms"}, "60000", 1500),
        ({"max_ttl": 0}, "60000", 0),
        ({"max_ttl": "400d"[:-1] + "h"}, "9223372036854775807", 400 * 3_600_000),
    ],
)
def test_H25_a_ceiling_that_is_configured(cache: dict[str, Any], ttl: str, told: int) -> None:
    """`cache.max_ttl` holds in the store and on the wire."""

    async def body() -> None:
        clock = Clock()
        async with fronted({READ: hinted(READ, ttl, '"public"')}, clock=clock, cache=cache) as (it, wire):
            assert ttl_of(await it.read(URI)) == told
            clock.now += told / 1000
            assert ttl_of(await it.read(URI)) == told
            assert len(wire.calls(READ)) == 2

    run(body())


@pytest.mark.parametrize("method", SHELF)
@pytest.mark.parametrize(
    ("ttl", "scope", "told"),
    [
        pytest.param(None, None, (0, "private"), id="no-hints"),
        pytest.param("60000", None, (60_000, "private"), id="no-scope"),
        pytest.param(None, '"public"', (0, "public"), id="no-ttl"),
        pytest.param("60000", '"PUBLIC"', (60_000, "private"), id="capitals"),
        pytest.param("60000", '"Public"', (60_000, "private"), id="a-capital"),
        pytest.param("60000", '" public"', (60_000, "private"), id="blank"),
        pytest.param("60000", '"shared"', (60_000, "private"), id="unknown"),
        pytest.param("60000", '""', (60_000, "private"), id="empty"),
        pytest.param("60000", "null", (60_000, "private"), id="null"),
        pytest.param("60000", "true", (60_000, "private"), id="true"),
        pytest.param("60000", '["public"]', (60_000, "private"), id="list"),
        pytest.param("60000", '{"public":true}', (60_000, "private"), id="object"),
        pytest.param("60000", '"private"', (60_000, "private"), id="private"),
        pytest.param("60000", '"public"', (60_000, "public"), id="public"),
    ],
)
def test_H26_hints_that_lack_or_are_odd(
    ttl: str | None, scope: str | None, told: tuple[int, str], method: str
) -> None:
    """Absent is 0 and private, unknown is private: for whom it is kept shows it, and both hints are told."""

    async def body() -> None:
        async with fronted({method: hinted(method, ttl, scope)}, FORWARD) as (it, wire):
            for token in "AAB":
                one = await it.post(method, PARAMS[method], headers=bearer(token))
                assert one.result["resultType"] == "complete"
                assert (ttl_of(one), one.result["cacheScope"]) == told
            calls = {(0, "private"): 3, (0, "public"): 3, (60_000, "private"): 2, (60_000, "public"): 1}
            assert len(wire.calls(method)) == calls[told]

    run(body())


@pytest.mark.parametrize(
    ("cache", "ttl", "scope", "told"),
    [
        pytest.param({"default_ttl": "30s"}, None, None, (30_000, "private"), id="ttl"),
        pytest.param({"default_ttl": "30s"}, "0", '"public"', (0, "public"), id="ttl-for-absent-only"),
        pytest.param({"default_ttl": "30s"}, "null", '"public"', (0, "public"), id="ttl-not-for-odd"),
        pytest.param({"default_ttl": "30s"}, '"60000"', '"public"', (0, "public"), id="ttl-not-for-text"),
        pytest.param({"default_scope": "public"}, "60000", None, (60_000, "public"), id="scope"),
        pytest.param(
            {"default_scope": "public"}, "60000", '"PUBLIC"', (60_000, "private"), id="scope-not-for-odd"
        ),
        pytest.param(
            {"default_scope": "public"}, "60000", '"private"', (60_000, "private"), id="scope-if-absent"
        ),
        pytest.param({"trust_public": False}, "60000", '"public"', (60_000, "private"), id="no-trust"),
        pytest.param(
            {"trust_public": False, "default_scope": "public"},
            "60000",
            None,
            (60_000, "private"),
            id="no-trust-at-all",
        ),
    ],
)
def test_H26_what_the_configuration_says_instead(
    cache: dict[str, Any], ttl: str | None, scope: str | None, told: tuple[int, str]
) -> None:
    """Defaults stand for absent hints, never for odd ones; `trust_public: false` makes all private."""

    async def body() -> None:
        async with fronted({READ: hinted(READ, ttl, scope)}, {**FORWARD, "cache": cache}) as (it, wire):
            for token in "AB":
                one = await it.read(URI, headers=bearer(token))
                assert (ttl_of(one), one.result["cacheScope"]) == told
            assert len(wire.calls(READ)) == (1 if told[0] and told[1] == "public" else 2)

    run(body())


@pytest.mark.parametrize("kind", servers.KINDS)
def test_H26_real_servers_without_hints(kind: str) -> None:
    """What servers of both SDKs say by themselves is taken as it is; what we say has the SDK's form."""

    async def body() -> None:
        shelf = Shelf({"x://1": "text"}, list_hint=servers.NEVER, read_hint=servers.NEVER)
        with servers.running(shelf, servers.KINDS[kind]) as server:
            async with house({"alpha": server.url}) as it:
                for _ in range(2):
                    read, listed = await it.read(URI), await it.page()
                    assert (ttl_of(read), ttl_of(listed)) == (0, 0)
                    assert ReadResourceResult.model_validate(read.result).cache_scope == "private"
                    assert ListResourcesResult.model_validate(listed.result).cache_scope == "private"
                assert (server.calls.count(READ), server.calls.count(LIST)) == (2, 2)

    run(body())


# H27: ageing.


@pytest.mark.parametrize("method", SHELF)
def test_H27_the_ttl_is_the_life_that_is_left(method: str) -> None:
    """A copy is told with what remains of its minute; after that minute the upstream is asked once."""
    changed = json.dumps(SHELF[method]).replace('"t"', '"u"').replace('"text"}', '"changed"}').encode()

    async def body() -> None:
        clock = Clock()
        async with fronted({method: [result(SHELF[method]), result(changed)]}, clock=clock) as (it, wire):
            told = []
            for now in (0, 1, 30, 59.9, 59.9999):
                clock.now = 1000 + now
                told.append(await it.post(method, PARAMS[method]))
            assert [ttl_of(one) for one in told] == [60_000, 59_000, 30_000, 100, 0]
            assert all(shown(one) == shown(told[0]) for one in told)
            assert told[2].cache_status == "mcp-federator; hit; ttl=30"
            assert len(wire.calls(method)) == 1
            clock.now = 1060
            assert ttl_of(await it.post(method, PARAMS[method])) == 60_000
            assert len(wire.calls(method)) == 2

    run(body())


def test_H27_a_mixed_page_lives_as_long_as_its_shortest_part() -> None:
    """One part has fifty seconds left and one five; then the part that ended is fetched alone."""

    async def body() -> None:
        clock = Clock()
        async with (
            Wire({LIST: result(page("a://1", ttl=60_000))}) as alpha,
            Wire({LIST: result(page("b://1", ttl=15_000))}) as beta,
            Wire({LIST: result(page("c://1", ttl=3_600_000))}) as gamma,
            house({"alpha": alpha.url, "beta": beta.url, "gamma": gamma.url}, clock=clock) as it,
        ):
            ages = []
            for now in (0, 5, 10, 14.5, 15, 20, 59, 60):
                clock.now = 1000 + now
                ages.append(ttl_of(await it.page()))
            assert ages == [15_000, 10_000, 5_000, 500, 15_000, 10_000, 1_000, 14_000]
            assert [len(wire.calls(LIST)) for wire in (alpha, beta, gamma)] == [2, 3, 1]

    run(body())


def test_H27_two_federators_in_a_row() -> None:
    """A federator before a federator tells no more life than the upstream gave, counted from the start."""

    async def body() -> None:
        clock = Clock()
        async with (
            fronted({READ: result(ONE), LIST: result(page("x://1"))}, clock=clock) as (inner, wire),
            house({"far": inner.url}, clock=clock) as outer,
        ):
            assert (await inner.read(URI)).uris == (await inner.page()).uris == [URI]
            ages = []
            for now in (20, 40, 59.5, 60, 90):
                clock.now = 1000 + now
                for told in (await outer.read("far+" + URI), await outer.page()):
                    assert told.uris == ["far+" + URI]
                    ages.append(ttl_of(told))
            assert ages == [40_000] * 2 + [20_000] * 2 + [500] * 2 + [60_000] * 2 + [30_000] * 2
            assert (len(wire.calls(READ)), len(wire.calls(LIST))) == (2, 2)

    run(body())


def test_H27_life_begins_when_the_answer_comes() -> None:
    """What a slow upstream says is fresh from then on (t_received + ttlMs)."""

    async def body() -> None:
        go, clock = asyncio.Event(), Clock()
        async with fronted({READ: result(ONE, after=go)}, clock=clock) as (it, wire):
            asked = asyncio.create_task(it.read(URI))
            await wire.arrived(READ)
            clock.now += 9
            go.set()
            assert ttl_of(await asked) == 60_000
            clock.now += 59
            assert ttl_of(await it.read(URI)) == 1000

    run(body())


@pytest.mark.parametrize("method", SHELF)
def test_H27_a_stale_copy_has_no_life(method: str) -> None:
    """What stands in for a failure is told with `ttlMs` 0 and with the scope it had."""

    async def body() -> None:
        clock = Clock()
        async with fronted({method: [result(SHELF[method]), drop()]}, clock=clock) as (it, _):
            await it.post(method, PARAMS[method])
            clock.now += 72.5
            told = await it.post(method, PARAMS[method])
            assert (ttl_of(told), told.result["cacheScope"], len(shown(told))) == (0, "public", 1)

    run(body())


def test_H27_pages_age_each_on_its_own() -> None:
    """The second page was fetched later, and lives longer."""

    async def body() -> None:
        clock = Clock()
        first = choosing(
            lambda request: result(page("x://2") if "cursor" in request.params else page("x://1", cursor=""))
        )
        async with fronted({LIST: first}, clock=clock) as (it, wire):
            cursor = (await it.page()).result["nextCursor"]
            clock.now += 40
            assert ttl_of(await it.page(cursor)) == 60_000
            clock.now += 15
            assert (ttl_of(await it.page()), ttl_of(await it.page(cursor))) == (5_000, 45_000)
            clock.now += 10
            assert (ttl_of(await it.page()), ttl_of(await it.page(cursor))) == (60_000, 35_000)
            assert len(wire.calls(LIST)) == 3

    run(body())
