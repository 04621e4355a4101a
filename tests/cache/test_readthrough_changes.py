import asyncio

import pytest
from msgspec.structs import replace

from mcp_federator.errors import UpstreamFailure
from mcp_federator.model import ANYONE, Answer, Caller, Change, Event, Method, Outcome, Query
from tests.cache.stage import (
    ABSENT,
    BARRED,
    BROKEN,
    INTERIM,
    Stage,
    bearer,
    by_alpha,
    page,
    private,
    public,
    read,
    run,
    settle,
)


def changed(uri: str | None = "x://1") -> Event:
    return Event("alpha", Change.RESOURCE, uri)


LISTED = Event("alpha", Change.LIST)
GAP = Event("alpha", Change.GAP)


def echo(query: Query, _caller: Caller) -> Answer:
    return public(query.uri or "page")


async def kept(stage: Stage, *queries: Query) -> list[bool]:
    """Which of these a fresh copy answers."""
    return [stage.cache.peek(query, ANYONE) is not None for query in queries]


@pytest.mark.parametrize(
    ("event", "query"),
    [(changed(), read()), (LISTED, page()), (LISTED, page("c", Method.TEMPLATES))],
    ids=["updated", "list_changed", "list_changed, templates"],
)
def test_H28_an_answer_overtaken_by_a_change_goes_to_its_asker_and_is_not_stored(
    event: Event, query: Query
) -> None:
    """He is told no life, so he does not keep it either; the next reader goes upstream."""

    async def body() -> None:
        stage = Stage()
        first = stage.ask(query)
        await settle()
        stage.cache.invalidate(event)
        stage.calls[0].land(public("v1"))
        answer = await first
        assert (answer.body, answer.hint.ttl_ms) == (b"v1", 0)
        assert answer.served == by_alpha(Outcome.MISS)
        second = stage.ask(query)
        await settle()
        stage.calls[1].land(public("v2"))
        assert (await second).body == b"v2"
        assert (await stage.cache.fetch(query, ANYONE)).body == b"v2"

    run(body())


@pytest.mark.parametrize("event", [changed(), GAP], ids=["updated", "gap"])
def test_H28_who_comes_after_a_change_does_not_join_the_old_flight(event: Event) -> None:
    """Whichever of the two lands last, the newer answer is the one that is kept."""

    async def body(*, old_first: bool, shared: bool) -> None:
        stage = Stage(lambda _query, _caller: public("v0", 1), forward=("authorization",))
        if shared:
            # Known to be public: a flight for all partitions.
            await stage.cache.fetch(read(), ANYONE)
            stage.clock.now += 1
            stage.calls.clear()
        stage.upstream.script = None
        before = [stage.ask(read()), stage.ask(read())]
        await settle()
        stage.cache.invalidate(event)
        after = [stage.ask(read()), stage.ask(read())]
        await settle()
        assert len(stage.calls) == 2
        old, new = stage.calls
        for call, text in [(old, "v1"), (new, "v2")] if old_first else [(new, "v2"), (old, "v1")]:
            call.land(public(text))
            await settle()
        assert [(await each).body for each in before] == [b"v1"] * 2
        assert [(await each).body for each in after] == [b"v2"] * 2
        assert (await before[0]).hint.ttl_ms == 0
        assert (await after[0]).hint.ttl_ms == 60_000
        assert (await stage.cache.fetch(read(), ANYONE)).body == b"v2"
        assert len(stage.calls) == 2

    for old_first in (True, False):
        for shared in (True, False):
            run(body(old_first=old_first, shared=shared))


@pytest.mark.parametrize("said", [ABSENT, BARRED, INTERIM], ids=["error", "401", "input_required"])
def test_H28_what_an_overtaken_flight_brings_drops_no_newer_copy(said: Answer | Exception) -> None:
    """The upstream said so before the change."""

    async def body() -> None:
        stage = Stage()
        old = stage.ask(read())
        await settle()
        stage.cache.invalidate(changed())
        new = stage.ask(read())
        await settle()
        stage.calls[1].land(public("v2"))
        await new
        stage.calls[0].land(said)
        await settle()
        if said is INTERIM:
            stage.calls[2].land(INTERIM)
        await asyncio.gather(old, return_exceptions=True)
        assert (await stage.cache.fetch(read(), ANYONE)).body == b"v2"

    run(body())


def test_a_change_of_a_resource_reaches_what_it_is_a_part_of_and_nothing_else() -> None:
    """Its own copy and those above it are gone, of every partition; lists and siblings stay."""

    async def body() -> None:
        stage = Stage(echo)
        gone = [read("file:///d/a.md?x=1"), read("file:///d/a.md"), read("file:///d/"), read("file:///d")]
        left = [read("file:///d/b.md"), page(), page(None, Method.TEMPLATES)]
        for query in gone + left:
            await stage.cache.fetch(query, ANYONE)
        stage.cache.invalidate(changed("file:///d/a.md?x=1"))
        assert await kept(stage, *gone, *left) == [False] * 4 + [True] * 3

    run(body())


def test_a_change_reaches_every_partition() -> None:
    """Private copies of all tokens are gone."""

    async def body() -> None:
        stage = Stage(lambda _query, _caller: private("text"), forward=("authorization",))
        callers = [bearer("ann"), bearer("bob"), ANYONE]
        for caller in callers:
            await stage.cache.fetch(read(), caller)
        stage.cache.invalidate(changed())
        assert [stage.cache.peek(read(), caller) for caller in callers] == [None] * 3

    run(body())


def test_H11_a_change_reaches_an_answer_whose_contents_name_the_resource() -> None:
    """A folder read as several contents is gone when one of them changes, and only then."""

    async def body() -> None:
        folder = replace(public("folder"), uris=("other://a", "other://b"))
        stage = Stage(lambda _query, _caller: folder)
        await stage.cache.fetch(read("x://folder"), ANYONE)
        stage.cache.invalidate(changed("other://c"))
        assert await kept(stage, read("x://folder")) == [True]
        stage.cache.invalidate(changed("other://b"))
        assert await kept(stage, read("x://folder")) == [False]

    run(body())


def test_H28_a_named_resource_that_changes_during_the_fetch_keeps_the_answer_out() -> None:
    """Its asker is told no life."""

    async def body() -> None:
        stage = Stage()
        asked = stage.ask(read("x://folder"))
        await settle()
        stage.cache.invalidate(changed("other://b"))
        stage.calls[0].land(replace(public("folder"), uris=("other://a", "other://b")))
        answer = await asked
        assert (answer.hint.ttl_ms, answer.served.stored) == (0, False)
        assert stage.memory.entries == 0

    run(body())


def test_H32_a_changed_list_is_gone_with_all_its_pages() -> None:
    """Both lists of the upstream, every cursor; reads stay."""

    async def body() -> None:
        stage = Stage(echo)
        pages = [page(), page("c"), page(None, Method.TEMPLATES), page("c", Method.TEMPLATES)]
        for query in [*pages, read()]:
            await stage.cache.fetch(query, ANYONE)
        stage.cache.invalidate(LISTED)
        assert await kept(stage, *pages, read()) == [False] * 4 + [True]

    run(body())


def test_a_change_without_a_uri_reaches_all_resources() -> None:
    """What changed is unknown, so everything may have."""

    async def body() -> None:
        stage = Stage(echo)
        for query in (read("x://1"), read("y://2"), page()):
            await stage.cache.fetch(query, ANYONE)
        stage.cache.invalidate(changed(None))
        assert await kept(stage, read("x://1"), read("y://2"), page()) == [False, False, True]

    run(body())


@pytest.mark.parametrize("event", [changed(), GAP], ids=["updated", "gap"])
def test_stale_if_error_never_after_an_invalidation_and_a_gap_is_none(event: Event) -> None:
    """After a change the copy is gone; after a gap it is stale, and stands in for a failure."""

    async def body() -> None:
        stage = Stage(echo)
        await stage.cache.fetch(read(), ANYONE)
        stage.cache.invalidate(event)

        def fail(_query: Query, _caller: Caller) -> Answer:
            raise BROKEN

        stage.upstream.script = fail
        stage.clock.now += 10
        if event is GAP:
            answer = await stage.cache.fetch(read(), ANYONE)
            assert (answer.hint.ttl_ms, answer.served.outcome) == (0, Outcome.STALE)
            assert answer.served.fresh_for == -10
            # The window counts from the gap, not from the end the copy would have had.
            stage.clock.now += 290
        with pytest.raises(UpstreamFailure):
            await stage.cache.fetch(read(), ANYONE)

    run(body())


def test_an_answer_fetched_across_a_gap_is_kept_as_stale() -> None:
    """It is told no life, is asked for again, and stands in if that fails."""

    async def body() -> None:
        stage = Stage()
        asked = stage.ask(read())
        await settle()
        stage.cache.invalidate(GAP)
        stage.calls[0].land(public("v1"))
        answer = await asked
        assert (answer.hint.ttl_ms, answer.served.stored) == (0, True)
        again = stage.ask(read())
        await settle()
        stage.calls[1].land(BROKEN)
        assert ((await again).body, (await again).served.outcome) == (b"v1", Outcome.STALE)

    run(body())


def test_events_are_counted_by_reason() -> None:
    """The change's own word, or the one that the teller gives."""

    async def body() -> None:
        stage = Stage(echo)
        stage.cache.invalidate(changed())
        stage.cache.invalidate(LISTED)
        stage.cache.invalidate(GAP)
        stage.cache.invalidate(GAP, "reconnected")
        assert dict(stage.metrics._invalidations) == {
            ("alpha", "updated"): 1,
            ("alpha", "list_changed"): 1,
            ("alpha", "gap"): 1,
            ("alpha", "reconnected"): 1,
        }

    run(body())
