"""What the look-up makes of Redis: another place for copies, never a reason for a failure."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from mcp_federator.breaker import State
from mcp_federator.config import Duration, Redis
from mcp_federator.errors import McpError, UpstreamFailure
from mcp_federator.model import (
    ANYONE,
    Answer,
    Caller,
    Change,
    Event,
    Hint,
    Method,
    Outcome,
    Query,
    Scope,
    Tier,
)
from tests.cache.replica import until
from tests.cache.stage import (
    ABSENT,
    BARRED,
    BROKEN,
    HELD,
    INTERIM,
    LATE,
    Script,
    Stage,
    bearer,
    numbered,
    page,
    private,
    public,
    raising,
    read,
    run,
)
from tests.instruments.redis_server import Server

HIT, MISS, STALE = Outcome.HIT, Outcome.MISS, Outcome.STALE
ANN, BOB = bearer("ann"), bearer("bob")
FORWARD = ("authorization",)


@asynccontextmanager
async def replica(redis: Server | str, script: Script | None = None, **named: Any) -> AsyncIterator[Stage]:
    """A cache over Redis that hears the others; over none that can be had, it hears nobody."""
    url = redis if isinstance(redis, str) else redis.url
    tier = {key: named.pop(key) for key in ("outage_freshness", "key_prefix") if key in named}
    # Where Redis is there, time is not the question.
    timeout = Duration(0.25 if isinstance(redis, str) else 5)
    stage = Stage(script, redis=Redis(url=url, timeout=timeout, **tier), **named)
    assert stage.tier is not None
    stage.tier.start()
    try:
        if isinstance(redis, Server):
            await until(lambda: up(stage))
        yield stage
    finally:
        stage.cache.close()
        await stage.tier.close()


def up(stage: Stage) -> bool:
    assert stage.tier is not None
    return stage.tier.up


async def body(stage: Stage, query: Query | None = None, caller: Caller = ANYONE) -> str:
    return (await stage.cache.fetch(query or read(), caller)).body.decode()


@pytest.mark.parametrize("query", [read(), page(), page("2"), page(method=Method.TEMPLATES)], ids=str)
def test_what_one_process_fetched_the_other_finds(redis: Server, query: Query) -> None:
    """A hit out of Redis, then one out of memory; the upstream is asked once, and the life goes on."""

    async def check() -> None:
        async with replica(redis, numbered()) as one, replica(redis, numbered()) as two:
            await one.cache.fetch(query, ANYONE)
            found = await two.cache.fetch(query, ANYONE)
            assert (found.body, found.served.outcome, found.served.tier) == (b"v1", HIT, Tier.REDIS)
            assert 55_000 < found.hint.ttl_ms <= 60_000
            assert found.served.fresh_for == found.hint.ttl_ms // 1000
            again = two.cache.peek(query, ANYONE)
            assert again is not None
            assert again.served.tier is Tier.MEMORY
            assert two.tiers == [(HIT, Tier.REDIS), (HIT, Tier.MEMORY)]
            assert (len(one.calls), len(two.calls)) == (1, 0)

    run(check())


def test_a_memory_hit_asks_no_redis(redis: Server) -> None:
    """Not one command is sent for it."""

    async def check() -> None:
        async with replica(redis, numbered()) as one:
            await body(one)
            before = redis.ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"]
            for _ in range(50):
                assert await body(one) == "v1"
            assert redis.ask("INFO", "commandstats")["cmdstat_evalsha"]["calls"] == before

    run(check())


@pytest.mark.parametrize("first", [ANN, BOB], ids=["ann", "bob"])
def test_a_private_answer_is_found_by_its_partition_alone(redis: Server, first: Caller) -> None:
    """Invariant 3, through Redis: another caller goes upstream, on whichever process."""
    second = BOB if first is ANN else ANN

    def said(_query: Query, caller: Caller) -> Answer:
        return private(caller.headers["authorization"])

    async def check() -> None:
        async with (
            replica(redis, said, forward=FORWARD) as one,
            replica(redis, said, forward=FORWARD) as two,
        ):
            for caller in (first, second):
                assert await body(one, caller=caller) == caller.headers["authorization"]
            for caller in (second, first):
                assert await body(two, caller=caller) == caller.headers["authorization"]
            assert (len(one.calls), len(two.calls)) == (2, 0)

    run(check())


@pytest.mark.parametrize(
    ("answered", "public_stays"),
    [
        pytest.param(ABSENT, False, id="error"),
        pytest.param(INTERIM, False, id="input-required"),
        pytest.param(BARRED, True, id="refused-to-one"),
        pytest.param(HELD, True, id="held"),
        pytest.param(BROKEN, True, id="no-answer"),
        pytest.param(public("none", 0), False, id="not-to-be-kept"),
    ],
)
def test_an_answer_that_is_not_kept_drops_the_copy_there(
    redis: Server, answered: Answer | Exception, *, public_stays: bool
) -> None:
    """As in memory: what was said to one caller alone leaves what all may be given."""
    script = raising(answered) if isinstance(answered, Exception) else lambda *_: answered

    async def check() -> None:
        async with (
            replica(redis, numbered(), forward=FORWARD) as one,
            replica(redis, script, forward=FORWARD) as two,
            replica(redis, numbered(lambda text: public(f"new {text}")), forward=FORWARD) as three,
        ):
            await body(one, caller=ANN)
            assert await body(two, caller=BOB) == "v1"
            with suppress(McpError, UpstreamFailure):
                await two.cache.fetch(read(refresh=True), BOB)
            assert await body(three, caller=ANN) == ("v1" if public_stays else "new v1")

    run(check())


@pytest.mark.parametrize(
    "event",
    [
        Event("alpha", Change.RESOURCE, "x://1"),
        Event("alpha", Change.RESOURCE, "x://1/part"),
        Event("alpha", Change.RESOURCE),
        Event("alpha", Change.LIST),
    ],
    ids=str,
)
def test_a_change_is_one_for_all(redis: Server, event: Event) -> None:
    """What it makes stale is fetched anew by everyone, once; everything else is where it was."""
    gone = page() if event.change is Change.LIST else read()
    kept = read() if event.change is Change.LIST else page()

    async def check() -> None:
        async with replica(redis, numbered()) as one, replica(redis, numbered()) as two:
            for query in (gone, kept):
                await body(one, query)
                await body(two, query)
            two.cache.invalidate(event)
            await until(lambda: bool(one.heard))
            assert (await body(two, gone), await body(one, gone)) == ("v1", "v1")
            assert (await body(one, kept), await body(two, kept)) == ("v2", "v2")
            assert (len(one.calls), len(two.calls)) == (2, 1)
            assert one.heard[0].change is event.change

    run(check())


def test_all_who_wait_for_a_look_that_ends_in_redis_have_a_hit(redis: Server) -> None:
    """Each is counted once."""

    async def check() -> None:
        async with replica(redis, numbered()) as one, replica(redis, numbered()) as two:
            await body(one)
            answers = await asyncio.gather(*(two.cache.fetch(read(), ANYONE) for _ in range(5)))
            assert {(each.served.outcome, each.served.tier) for each in answers} == {(HIT, Tier.REDIS)}
            assert (two.tiers, two.outcomes, len(two.calls)) == ([(HIT, Tier.REDIS)], {HIT: 5}, 0)

    run(check())


def test_a_copy_found_there_lives_no_longer_than_copies_may_here(redis: Server) -> None:
    """Another process may have another `max_ttl`."""

    async def check() -> None:
        async with replica(redis, numbered()) as one, replica(redis, numbered(), max_ttl=10) as two:
            await body(one)
            assert (await two.cache.fetch(read(), ANYONE)).hint.ttl_ms <= 10_000
            assert not two.calls

    run(check())


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_a_refresh_passes_over_what_is_there(redis: Server, memory: int) -> None:
    """Once a second for each copy, whichever tier has it; all others get the new one."""

    async def check() -> None:
        async with replica(redis, numbered()) as one, replica(redis, numbered(), memory=memory) as two:
            await body(one)
            two.upstream.script = numbered(lambda text: public(f"new {text}"))
            answer = await two.cache.fetch(read(refresh=True), ANYONE)
            assert (answer.body, answer.served.refreshed) == (b"new v1", True)
            await body(two, read(refresh=True))
            assert (await body(two), len(two.calls)) == ("new v1", 1)
            one.memory.drop(one.cache._copies.place(read(), ANYONE).public)
            assert await body(one) == "new v1"
            first = await two.cache.fetch(read("x://2", refresh=True), ANYONE)
            assert (first.body, first.served.refreshed) == (b"new v2", False)

    run(check())


def test_a_refresh_that_fails_gets_what_is_there(redis: Server) -> None:
    """Fresh as it is."""

    async def check() -> None:
        async with replica(redis, numbered()) as one, replica(redis, raising(LATE), memory=0) as two:
            await body(one)
            answer = await two.cache.fetch(read(refresh=True), ANYONE)
            assert (answer.body, answer.served.tier, len(two.calls)) == (b"v1", Tier.REDIS, 1)
            assert answer.hint.ttl_ms > 0

    run(check())


def test_the_younger_of_two_stale_copies_stands_in(redis: Server) -> None:
    """The one in memory may have been overtaken by another process."""

    async def check() -> None:
        script = numbered(lambda text: public(text, 50))
        async with replica(redis, script) as one, replica(redis, script) as two:
            await body(two)
            await asyncio.sleep(0.06)
            await body(one)
            await asyncio.sleep(0.06)
            two.upstream.script = raising(LATE)
            assert await body(two) == "v2"

    run(check())


def test_a_change_during_the_look_leaves_no_life(redis: Server) -> None:
    """What was found is what was asked for; it is not kept, and the next asker gets a newer one."""

    async def check() -> None:
        async with replica(redis, numbered()) as one, replica(redis, numbered()) as two:
            await body(one)
            shared = two.cache._shared
            assert shared is not None
            look = shared.look

            async def overtaken(*given: Any, **named: Any) -> Any:
                found = await look(*given, **named)
                two.cache.invalidate(Event("alpha", Change.RESOURCE, "x://1"))
                return found

            shared.look = overtaken  # type: ignore[method-assign]  # a change at this very moment
            answer = await two.cache.fetch(read(), ANYONE)
            assert (answer.body, answer.hint.ttl_ms) == (b"v1", 0)
            assert (answer.served.outcome, answer.served.fresh_for) == (HIT, 0)
            shared.look = look  # type: ignore[method-assign]  # as it was
            assert two.cache.peek(read(), ANYONE) is None
            assert (await body(two), len(two.calls)) == ("v1", 1)

    run(check())


def test_pages_of_a_refused_walk_are_dropped_everywhere(redis: Server) -> None:
    """They do not belong together any more."""

    async def check() -> None:
        async with replica(redis, numbered()) as one, replica(redis, numbered()) as two:
            await body(one, page())
            await body(two, page())
            one.cache.drop_pages(Method.LIST)
            await until(lambda: bool(two.heard))
            assert await body(two, page()) == "v1"
            assert len(two.calls) == 1

    run(check())


def test_a_stale_copy_there_stands_in_for_a_failure(redis: Server) -> None:
    """A process that never had a copy serves the one it finds, while the upstream gives no answer."""

    async def check() -> None:
        async with (
            replica(redis, numbered(lambda text: public(text, 50))) as one,
            replica(redis, raising(LATE)) as two,
        ):
            await body(one)
            await asyncio.sleep(0.06)
            answer = await two.cache.fetch(read(), ANYONE)
            assert (answer.body, answer.hint.ttl_ms) == (b"v1", 0)
            assert two.tiers == [(STALE, Tier.REDIS)]
            assert answer.served.detail == "stale-if-error"

    run(check())


def test_a_stale_private_copy_stands_in_for_its_own_caller_alone(redis: Server) -> None:
    """Invariant 3: who shares a flight with its owner does not get it."""

    async def check() -> None:
        async with (
            replica(redis, lambda *_: private("ann's", 50), forward=FORWARD) as one,
            replica(redis, raising(LATE), forward=FORWARD) as two,
        ):
            await body(one, caller=ANN)
            await asyncio.sleep(0.06)
            found = await asyncio.gather(
                *(two.cache.fetch(read(), caller) for caller in (ANN, BOB)), return_exceptions=True
            )
            assert isinstance(found[0], Answer)
            assert found[0].body == b"ann's"
            assert isinstance(found[1], UpstreamFailure)

    run(check())


def test_who_follows_in_a_flight_is_not_given_its_leaders_spare(redis: Server) -> None:
    """Invariant 3: an answer that once was public lets them share a flight, and each has his own copy."""

    async def check() -> None:
        async with (
            replica(redis, numbered(lambda text: public(text, 50)), forward=FORWARD) as one,
            replica(redis, raising(LATE), forward=FORWARD) as two,
        ):
            await body(one, caller=ANN)
            assert await body(two, caller=BOB) == "v1"
            one.upstream.script = lambda *_: private("ann's", 50)
            await body(one, read(refresh=True), ANN)
            await asyncio.sleep(0.06)
            answers = await asyncio.gather(*(two.cache.fetch(read(), caller) for caller in (ANN, BOB)))
            assert [answer.body for answer in answers] == [b"ann's", b"v1"]
            assert len(two.calls) == 1

    run(check())


def test_who_is_closed_takes_part_no_longer(redis: Server) -> None:
    """A replaced upstream is not told what happens after it."""

    async def check() -> None:
        async with replica(redis, numbered()) as one:
            assert one.tier is not None
            one.cache.close()
            assert not one.tier._replicas._members

    run(check())


def test_a_change_here_is_not_undone_by_what_redis_still_has(redis: Server) -> None:
    """From the moment it is declared; Redis is not asked before it has been told."""

    async def check() -> None:
        async with replica(redis, numbered()) as one:
            for number in range(1, 20):
                assert await body(one) == f"v{number}"
                one.cache.invalidate(Event("alpha", Change.RESOURCE, "x://1"))

    run(check())


def test_who_leaves_lets_the_others_go_on(redis: Server) -> None:
    """A flight that all have left is another process' to fly, well before a lease would end by itself."""

    async def check() -> None:
        async with replica(redis) as one, replica(redis, numbered()) as two:
            asked = one.ask(read())
            await until(lambda: bool(one.calls))
            waiting = two.ask(read())
            await asyncio.sleep(0.05)
            assert not two.calls
            asked.cancel()
            async with asyncio.timeout(0.8):
                assert (await waiting).body == b"v1"
            assert len(two.calls) == 1

    run(check())


def test_a_process_that_ends_lets_the_others_go_on(redis: Server) -> None:
    """Those who wait for its flights are told, before a lease would end by itself."""

    async def check() -> None:
        async with replica(redis, numbered()) as two:
            async with replica(redis) as one:
                asked = one.ask(read())
                await until(lambda: bool(one.calls))
                waiting = two.ask(read())
                await asyncio.sleep(0.05)
                assert not two.calls
                one.cache.close()
                with suppress(UpstreamFailure):
                    await asked
            async with asyncio.timeout(0.6):
                assert (await waiting).body == b"v1"
            assert len(two.calls) == 1

    run(check())


def test_an_outage_leaves_what_is_in_memory_fresh_for_a_while(own: Server) -> None:
    """Thirty seconds from its beginning, then stale; what is fetched meanwhile is fresh for as long."""

    async def check() -> None:
        async with replica(own, numbered()) as one:
            await body(one)
            own.stop()
            await until(lambda: not up(one))
            peeked = one.cache.peek(read(), ANYONE)
            assert peeked is not None
            assert 25_000 < peeked.hint.ttl_ms <= 30_000
            one.clock.now += 20
            fetched = await one.cache.fetch(read("x://2"), ANYONE)
            assert 29_000 < fetched.hint.ttl_ms <= 30_000
            assert one.cache.peek(read(), ANYONE) is not None
            one.clock.now += 15
            assert one.cache.peek(read(), ANYONE) is None
            assert one.cache.peek(read("x://2"), ANYONE) is not None
            own.start()
            await until(lambda: up(one))
            # What was told meanwhile was missed.
            assert one.cache.peek(read("x://2"), ANYONE) is None

    run(check())


TROUBLE = {
    "nothing-listens": "redis://127.0.0.1:1/0",
    "no-such-host": "redis://redis.invalid/0",
    "not-redis": "",
}


@pytest.mark.parametrize("trouble", TROUBLE)
def test_a_store_failure_never_fails_a_request(trouble: str) -> None:
    """Invariant 7: all is as if there were no Redis, but that copies are fresh for less long."""

    async def check() -> None:
        async def nonsense(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(nonsense, "127.0.0.1", 0) as server:
            url = TROUBLE[trouble] or f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with replica(url, numbered()) as one:
                for query in (read(), page(), page("2"), page(method=Method.TEMPLATES)):
                    first = await one.cache.fetch(query, ANYONE)
                    assert (await one.cache.fetch(query, ANYONE)).body == first.body
                    assert 29_000 < first.hint.ttl_ms <= 30_000
                one.cache.invalidate(Event("alpha", Change.RESOURCE, "x://1"))
                assert await body(one) == "v5"
                one.upstream.script = raising(BROKEN)
                one.clock.now += 31
                assert (await one.cache.fetch(page(), ANYONE)).served.outcome is STALE
                assert len(one.calls) == 6
                assert not up(one)

    run(check())


def test_no_command_is_tried_while_the_breaker_is_open() -> None:
    """A request costs nothing more then; a task of its own finds out whether Redis is back."""

    async def check() -> None:
        async with replica("redis://127.0.0.1:1/0", numbered()) as one:
            assert one.tier is not None
            tried = one.metrics._redis_seconds
            for number in range(3):
                await body(one, read(f"x://first/{number}"))
            assert one.tier.status()["breaker"] is State.OPEN
            before = sum(tried["look",].counts)
            for number in range(50):
                await body(one, read(f"x://then/{number}"))
            assert sum(tried["look",].counts) == before

    run(check())


def test_an_entry_of_another_secret_is_a_miss_and_is_counted(redis: Server) -> None:
    """Nobody without our secret can make up an answer."""

    async def check() -> None:
        async with (
            replica(redis, numbered(), secrets=(b"another secret 0123",)) as one,
            replica(redis, numbered(lambda text: public(f"ours {text}"))) as two,
        ):
            await body(one)
            assert await body(two) == "ours v1"
            assert two.metrics._redis_errors["entry",] == 1
            assert two.tiers == [(MISS, Tier.NONE)]

    run(check())


def test_a_new_secret_leaves_what_is_kept_readable(redis: Server) -> None:
    """As long as the old one stands behind it; what the new one closed is a miss for the old alone."""
    old, new = b"an old secret 012", b"a new secret 0123"

    async def check() -> None:
        for make in (public, private):
            redis.ask("FLUSHALL")
            async with (
                replica(redis, numbered(make), secrets=(old,)) as before,
                replica(redis, numbered(make), secrets=(new, old)) as after,
            ):
                await body(before)
                assert (await body(after), len(after.calls)) == ("v1", 0)
                await body(after, read("x://2"))
                await body(before, read("x://2"))
                assert (len(before.calls), len(after.calls)) == (2, 1)

    run(check())


def test_what_we_show_of_our_own_splits_private_answers(redis: Server) -> None:
    """Two federators before one server, each with its own token: what one may see is not the other's."""

    async def check() -> None:
        async with (
            replica(redis, numbered(private), context=b"one's token") as one,
            replica(redis, numbered(private), context=b"two's token") as two,
            replica(redis, numbered(private), context=b"one's token") as three,
        ):
            await body(one)
            await body(two)
            await body(three)
            assert [len(each.calls) for each in (one, two, three)] == [1, 1, 0]
            one.upstream.script = two.upstream.script = numbered(public)
            await body(one, page())
            await body(two, page())
            assert [len(each.calls) for each in (one, two)] == [2, 1]
            one.cache.invalidate(Event("alpha", Change.RESOURCE))
            await until(lambda: bool(two.heard and three.heard))
            two.upstream.script = numbered(private)
            await body(two)
            await body(three)
            assert [len(each.calls) for each in (one, two, three)] == [2, 2, 1]

    run(check())


def test_other_prefixes_do_not_meet(redis: Server) -> None:
    """Federators that are none of each other's business share a Redis and nothing else."""

    async def check() -> None:
        async with (
            replica(redis, numbered(), key_prefix="one:") as one,
            replica(redis, numbered(), key_prefix="two:") as two,
        ):
            await body(one)
            await body(two)
            one.cache.invalidate(Event("alpha", Change.RESOURCE))
            assert await body(one) == "v2"
            assert await body(two) == "v1"
            assert (len(one.calls), len(two.calls)) == (2, 1)
            assert not two.heard

    run(check())


def test_the_scope_of_an_answer_is_kept(redis: Server) -> None:
    """What one process learnt to be public is public for the others."""

    async def check() -> None:
        async with (
            replica(redis, numbered(), forward=FORWARD) as one,
            replica(redis, numbered(), forward=FORWARD) as two,
        ):
            await body(one, caller=ANN)
            answer = await two.cache.fetch(read(), BOB)
            assert answer.hint.scope is Scope.PUBLIC
            assert answer.hint != Hint(0, Scope.PUBLIC)
            assert not two.calls

    run(check())
