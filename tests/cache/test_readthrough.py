import asyncio

import pytest
from msgspec.structs import replace

from mcp_federator.errors import UpstreamFailure
from mcp_federator.model import (
    ANYONE,
    Answer,
    Caller,
    Completion,
    Hint,
    Method,
    Outcome,
    Query,
    Retry,
    Scope,
    Tier,
)
from tests.cache.stage import (
    BROKEN,
    INTERIM,
    Stage,
    bearer,
    by_alpha,
    numbered,
    page,
    private,
    public,
    raising,
    read,
    run,
    settle,
)

PRIVATE, PUBLIC = Scope.PRIVATE, Scope.PUBLIC


def token(_query: Query, caller: Caller) -> Answer:
    """A private answer whose text is its asker."""
    return private(caller.headers.get("authorization", "nobody"))


@pytest.mark.parametrize("query", [read(), page()], ids=["read", "list"])
def test_H24_a_private_answer_is_served_to_its_own_token_only(query: Query) -> None:
    """A hits; B, nobody, and A with a refreshed token each go upstream."""

    async def body() -> None:
        stage = Stage(token, forward=("authorization",))
        askers = ["A", "B", None, "A", "A'", "B"]
        answers = [await stage.cache.fetch(query, bearer(asker) if asker else ANYONE) for asker in askers]
        assert [answer.body.decode() for answer in answers] == ["A", "B", "nobody", "A", "A'", "B"]
        outcomes = [answer.served.outcome.value for answer in answers]
        assert outcomes == ["miss", "miss", "miss", "hit", "miss", "hit"]
        assert len(stage.calls) == 4

    run(body())


def test_H24_without_forwarding_there_is_one_authorization_context() -> None:
    """What is private is shared by all whom we let in."""

    async def body() -> None:
        stage = Stage(token)
        answers = [await stage.cache.fetch(read(), bearer(asker)) for asker in ("A", "B", "C")]
        assert len(stage.calls) == 1
        assert {answer.hint.scope for answer in answers} == {PRIVATE}

    run(body())


def test_another_forwarded_header_splits_public_entries_too() -> None:
    """A variant has copies of its own."""

    async def body() -> None:
        stage = Stage(numbered(), forward=("accept-language",))
        languages = ["de", "en", "de"]
        bodies = [
            (await stage.cache.fetch(read(), Caller(headers={"accept-language": language}))).body
            for language in languages
        ]
        assert bodies == [b"v1", b"v2", b"v1"]

    run(body())


@pytest.mark.parametrize(
    ("ttl_ms", "told", "calls"),
    [
        (0, 0, 2),
        (-1, 0, 2),
        (1, 1, 1),
        (60_000, 60_000, 1),
        (9_007_199_254_740_993, 3_600_000, 1),
        (9_223_372_036_854_775_807, 3_600_000, 1),
        (10**30, 3_600_000, 1),
    ],
    ids=["0", "-1", "1", "60000", "2^53+1", "2^63-1", "1e30"],
)
def test_H25_odd_lives_are_served_and_clamped(ttl_ms: int, told: int, calls: int) -> None:
    """The client is always served; what is told is from 0 to `max_ttl`, the same for the store."""

    async def body() -> None:
        stage = Stage(lambda _query, _caller: public("text", ttl_ms))
        first = await stage.cache.fetch(read(), ANYONE)
        second = await stage.cache.fetch(read(), ANYONE)
        assert (first.hint.ttl_ms, second.hint.ttl_ms) == (told, told)
        assert len(stage.calls) == calls
        assert first.served.stored is (calls == 1)
        stage.clock.now += 3600
        await stage.cache.fetch(read(), ANYONE)
        assert len(stage.calls) == calls + 1

    run(body())


def test_H26_an_answer_without_hints_is_served_and_not_kept() -> None:
    """No hints are, from the upstream's door on, a life of 0 and scope private."""

    async def body() -> None:
        stage = Stage(lambda _query, _caller: private("text", 0))
        for _ in range(2):
            answer = await stage.cache.fetch(read(), ANYONE)
            assert answer.hint == Hint(0, PRIVATE)
        assert len(stage.calls) == 2
        assert stage.memory.entries == 0

    run(body())


def test_H27_a_copy_is_told_with_the_life_that_remains() -> None:
    """Invariant 4: served ttl falls with age; at its end there is one upstream call."""

    async def body() -> None:
        stage = Stage(numbered())
        start = stage.clock.now
        seen = []
        for age in (0, 30, 59.9, 60):
            stage.clock.now = start + age
            answer = await stage.cache.fetch(read(), ANYONE)
            seen.append((answer.body, answer.hint.ttl_ms, answer.served.fresh_for))
        assert seen[0] == (b"v1", 60_000, None)
        assert seen[1] == (b"v1", 30_000, 30)
        assert seen[2] in [(b"v1", 99, 0), (b"v1", 100, 0)]
        assert seen[3] == (b"v2", 60_000, None)
        assert len(stage.calls) == 2

    run(body())


def test_H27_the_life_counts_from_when_the_answer_came() -> None:
    """Not from when it was asked for: received + ttl."""

    async def body() -> None:
        stage = Stage()
        asked = stage.ask(read())
        await settle()
        stage.clock.now += 50
        stage.calls[0].land(public("text"))
        assert (await asked).hint.ttl_ms == 60_000
        stage.clock.now += 59
        assert (await stage.cache.fetch(read(), ANYONE)).hint.ttl_ms == 1_000

    run(body())


def test_pages_are_kept_by_cursor_and_list() -> None:
    """H06: no cursor, the empty one and any other are three pages, of each of two lists."""

    async def body() -> None:
        stage = Stage(numbered())
        queries = [
            page(cursor, method) for method in (Method.LIST, Method.TEMPLATES) for cursor in (None, "", "c")
        ]
        first = [(await stage.cache.fetch(query, ANYONE)).body for query in queries]
        second = [(await stage.cache.fetch(query, ANYONE)).body for query in queries]
        assert first == second == [b"v1", b"v2", b"v3", b"v4", b"v5", b"v6"]
        stage.cache.drop_pages(Method.LIST)
        third = [(await stage.cache.fetch(query, ANYONE)).body for query in queries]
        assert third == [b"v7", b"v8", b"v9", b"v4", b"v5", b"v6"]

    run(body())


def test_everything_of_an_answer_is_the_same_on_miss_and_hit() -> None:
    """Invariant 6: the bytes, the cursor, the count and the other members."""

    async def body() -> None:
        whole = Answer(
            b'{"uri":"x://1"}', Hint(60_000, PUBLIC), next_cursor="", count=1, extra=b'"x":1', meta=b'"m":[1]'
        )
        stage = Stage(lambda _query, _caller: whole)
        miss, hit = [await stage.cache.fetch(page(), ANYONE) for _ in range(2)]
        assert miss == Answer(
            whole.body,
            whole.hint,
            "",
            1,
            whole.extra,
            whole.meta,
            served=by_alpha(Outcome.MISS, stored=True),
        )
        assert hit == Answer(
            whole.body,
            whole.hint,
            "",
            1,
            whole.extra,
            whole.meta,
            served=by_alpha(Outcome.HIT, Tier.MEMORY, fresh_for=60),
        )

    run(body())


def test_a_peek_has_a_fresh_copy_or_nothing() -> None:
    """It asks nobody, and only a hit is counted."""

    async def body() -> None:
        stage = Stage(numbered())
        assert stage.cache.peek(read(), ANYONE) is None
        assert stage.outcomes == {}
        await stage.cache.fetch(read(), ANYONE)
        found = stage.cache.peek(read(), ANYONE)
        assert found is not None
        assert found.body == b"v1"
        assert stage.outcomes == {Outcome.MISS: 1, Outcome.HIT: 1}
        retry = Query(Method.READ, uri="x://1", retry=Retry(request_state=b'"s"'))
        alone = Query(Method.READ, uri="x://1", alone=True)
        for query in (read(refresh=True), retry, alone):
            assert stage.cache.peek(query, ANYONE) is None
        stage.clock.now += 60
        assert stage.cache.peek(read(), ANYONE) is None
        assert stage.outcomes == {Outcome.MISS: 1, Outcome.HIT: 1}

    run(body())


def test_a_copy_is_still_there_or_it_is_not() -> None:
    """What is left of it is told and counted as a hit; for another answer, or a stale one, nothing is."""

    async def body() -> None:
        stage = Stage(numbered())
        await stage.cache.fetch(read(), ANYONE)
        found = stage.cache.peek(read(), ANYONE)
        assert found is not None
        stage.clock.now += 1
        assert stage.cache.still(read(), ANYONE, found) == 59_000
        assert stage.outcomes == {Outcome.MISS: 1, Outcome.HIT: 2}
        other = replace(found, body=b"".join([b"v", b"1"]))
        assert stage.cache.still(read(), ANYONE, other) is None
        stage.clock.now += 59
        assert stage.cache.still(read(), ANYONE, found) is None
        assert stage.outcomes == {Outcome.MISS: 1, Outcome.HIT: 2}

    run(body())


def test_a_hit_needs_no_task() -> None:
    """The hot path runs to its end without a step of the event loop."""

    async def body() -> None:
        stage = Stage(numbered())
        await stage.cache.fetch(read(), ANYONE)
        await settle()
        before = asyncio.all_tasks()
        coroutine = stage.cache.fetch(read(), ANYONE)
        with pytest.raises(StopIteration) as done:
            coroutine.send(None)
        assert done.value.value.body == b"v1"
        assert asyncio.all_tasks() == before

    run(body())


RETRY = Query(Method.READ, uri="x://1", retry=Retry(b'{"a":{}}', b'"opaque"'))
ALONE = Query(Method.READ, uri="x://1", alone=True)


@pytest.mark.parametrize("query", [RETRY, ALONE], ids=["retry", "alone"])
def test_H29_what_is_asked_for_one_caller_is_neither_looked_up_nor_stored(query: Query) -> None:
    """Invariant 9: it reaches the upstream as it is, though a copy is there, and the copy stays."""

    async def body() -> None:
        stage = Stage(numbered())
        await stage.cache.fetch(read(), ANYONE)
        answers = [await stage.cache.fetch(query, ANYONE) for _ in range(2)]
        assert [answer.body for answer in answers] == [b"v2", b"v3"]
        assert [call.query for call in stage.calls[1:]] == [query, query]
        assert {answer.served for answer in answers} == {by_alpha(Outcome.BYPASS)}
        assert {answer.hint.scope for answer in answers} == {PRIVATE}
        assert answers[0].hint.ttl_ms == (0 if query.retry else 60_000)
        assert (await stage.cache.fetch(read(), ANYONE)).body == b"v1"
        assert stage.outcomes == {Outcome.MISS: 1, Outcome.BYPASS: 2, Outcome.HIT: 1}

    run(body())


def test_H29_retries_are_not_coalesced() -> None:
    """Two at once are two upstream calls, and a reader of the same resource has one of his own."""

    async def body() -> None:
        stage = Stage()
        asked = [stage.ask(RETRY), stage.ask(RETRY), stage.ask(read())]
        await settle()
        assert len(stage.calls) == 3
        for number, call in enumerate(stage.calls):
            call.land(public(str(number)))
        assert [(await each).body for each in asked] == [b"0", b"1", b"2"]

    run(body())


def test_H29_an_interim_answer_is_asked_for_again_by_each_caller_alone() -> None:
    """It is passed on unchanged, is not stored, and the next reader has his own round."""

    async def body() -> None:
        stage = Stage(lambda _query, _caller: INTERIM)
        for asker in ("A", "B"):
            caller = Caller(headers={"authorization": asker}, capabilities=b'{"elicitation":{}}')
            answer = await stage.cache.fetch(read(), caller)
            assert (answer.interim, answer.body, answer.served) == (
                True,
                INTERIM.body,
                by_alpha(Outcome.BYPASS),
            )
        assert [(call.query.alone, call.caller.headers["authorization"]) for call in stage.calls] == [
            (False, "A"),
            (True, "A"),
            (False, "B"),
            (True, "B"),
        ]
        assert stage.memory.entries == 0
        assert stage.outcomes == {Outcome.BYPASS: 2}

    run(body())


def test_discover_passes_by() -> None:
    """It is not cached here, and its hint is the upstream's own."""

    async def body() -> None:
        stage = Stage(numbered())
        answers = [await stage.cache.fetch(Query(Method.DISCOVER), ANYONE) for _ in range(2)]
        assert [answer.body for answer in answers] == [b"v1", b"v2"]
        assert answers[0].hint == Hint(60_000, PUBLIC)
        assert stage.outcomes == {Outcome.BYPASS: 2}

    run(body())


def test_a_new_copy_after_a_stale_one_says_that_it_was_found() -> None:
    """`fwd=stale` and `fwd=miss` are told apart."""

    async def body() -> None:
        stage = Stage(numbered())
        await stage.cache.fetch(read(), ANYONE)
        stage.clock.now += 61
        answer = await stage.cache.fetch(read(), ANYONE)
        assert answer.served == by_alpha(Outcome.MISS, found_stale=True, stored=True)

    run(body())


def test_a_refresh_goes_upstream_at_most_once_a_second() -> None:
    """The rest get the copy; another key has a second of its own."""

    async def body() -> None:
        stage = Stage(numbered())
        await stage.cache.fetch(read(), ANYONE)
        seen = []
        for step in (0, 0, 0.5, 0.5, 0):
            stage.clock.now += step
            answer = await stage.cache.fetch(read(refresh=True), ANYONE)
            seen.append((answer.body, answer.served.outcome.value, answer.served.refreshed))
        assert seen == [
            (b"v2", "miss", True),
            (b"v2", "hit", False),
            (b"v2", "hit", False),
            (b"v3", "miss", True),
            (b"v3", "hit", False),
        ]
        other = await stage.cache.fetch(read("x://2", refresh=True), ANYONE)
        assert other.served == by_alpha(Outcome.MISS, stored=True)

    run(body())


def test_what_is_remembered_of_refreshes_is_bounded() -> None:
    """Only the last second counts."""

    async def body() -> None:
        stage = Stage(numbered())
        for number in range(50):
            await stage.cache.fetch(read(f"x://{number}"), ANYONE)
            await stage.cache.fetch(read(f"x://{number}", refresh=True), ANYONE)
            stage.clock.now += 0.1
        assert len(stage.cache._refreshes._at) <= 11

    run(body())


def test_each_outcome_is_labelled_with_its_scope_and_tier() -> None:
    """Upstream, method, scope, outcome, tier; failures count as private."""

    async def body() -> None:
        stage = Stage(numbered())
        await stage.cache.fetch(read(), ANYONE)
        await stage.cache.fetch(read(), ANYONE)
        await stage.cache.fetch(RETRY, ANYONE)
        stage.upstream.script = raising(BROKEN)
        with pytest.raises(UpstreamFailure):
            await stage.cache.fetch(page(), ANYONE)
        stage.clock.now += 61
        await stage.cache.fetch(read(), ANYONE)
        assert dict(stage.labels) == {
            ("alpha", "resources/read", "public", "miss", "none"): 1,
            ("alpha", "resources/read", "public", "hit", "memory"): 1,
            ("alpha", "resources/read", "private", "bypass", "none"): 1,
            ("alpha", "resources/list", "private", "miss", "none"): 1,
            ("alpha", "resources/read", "public", "stale", "memory"): 1,
        }

    run(body())


def test_an_answer_larger_than_the_store_is_served() -> None:
    """It is told not to be stored."""

    async def body() -> None:
        stage = Stage(lambda _query, _caller: public("x" * 100_000), memory=50_000)
        for _ in range(2):
            answer = await stage.cache.fetch(read(), ANYONE)
            assert answer.served == by_alpha(Outcome.MISS)
            assert answer.hint.ttl_ms == 60_000

    run(body())


@pytest.mark.parametrize("alone", [True, False])
def test_a_completion_is_neither_looked_up_nor_kept_nor_shared(alone: bool) -> None:
    """Two at once, and one more, are three questions to the upstream, each counted as passed by."""

    async def body() -> None:
        stage = Stage()
        query = Query(
            Method.COMPLETE, "x://{a}", alone=alone, completion=Completion(b'{"name":"a","value":""}')
        )
        assert stage.cache.peek(query, ANYONE) is None
        both = [stage.ask(query), stage.ask(query)]
        await settle()
        for call in stage.calls:
            call.land(public('"completion":{"values":[]}'))
        for answer in await asyncio.gather(*both):
            assert answer.served == by_alpha(Outcome.BYPASS)
        again = stage.ask(query)
        await settle()
        assert len(stage.calls) == 3
        stage.calls[-1].land(public(""))
        await again
        assert (len(stage.calls), stage.memory.entries) == (3, 0)
        assert stage.labels == {("alpha", "completion/complete", PRIVATE, Outcome.BYPASS, Tier.NONE): 3}

    run(body())
