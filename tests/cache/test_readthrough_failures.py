"""When the upstream gives no answer: what may stand in for it, and what is dropped."""

from collections.abc import Callable

import pytest

from mcp_federator.errors import McpError, Reason, UpstreamFailure
from mcp_federator.model import ANYONE, Answer, Caller, Hint, Outcome, Query, Scope, Tier
from tests.cache.stage import (
    ABSENT,
    BARRED,
    BROKEN,
    HELD,
    INTERIM,
    LATE,
    SHUT,
    Stage,
    bearer,
    by_alpha,
    numbered,
    private,
    public,
    raising,
    read,
    run,
)

PRIVATE = Scope.PRIVATE

ANSWERS_THAT_ARE_ERRORS = [ABSENT, BARRED, INTERIM]


@pytest.mark.parametrize(
    ("failure", "detail"),
    [(BROKEN, "stale-if-error"), (LATE, "stale-if-error"), (HELD, "stale-if-error"), (SHUT, "breaker")],
    ids=["500", "time-out", "429", "breaker"],
)
def test_a_stale_copy_stands_in_for_a_failure(failure: UpstreamFailure, detail: str) -> None:
    """For `stale_if_error` after its end, with ttl 0; then the failure is told."""

    async def body() -> None:
        stage = Stage(numbered(private), forward=("authorization",))
        ann = bearer("ann")
        await stage.cache.fetch(read(), ann)
        stage.upstream.script = raising(failure)
        stage.clock.now += 72
        stale = await stage.cache.fetch(read(), ann)
        assert (stale.body, stale.hint) == (b"v1", Hint(0, PRIVATE))
        assert stale.served == by_alpha(
            Outcome.STALE, Tier.MEMORY, fresh_for=-12, found_stale=True, detail=detail
        )
        with pytest.raises(UpstreamFailure):
            await stage.cache.fetch(read(), bearer("bob"))
        stage.clock.now += 288
        with pytest.raises(UpstreamFailure):
            await stage.cache.fetch(read(), ann)
        assert stage.outcomes == {Outcome.MISS: 3, Outcome.STALE: 1}

    run(body())


def test_without_a_stale_window_a_failure_is_told() -> None:
    """`stale_if_error: 0s` serves no stale copy, not even just after a copy's end."""

    async def body() -> None:
        stage = Stage(numbered(), stale_if_error=0)
        await stage.cache.fetch(read(), ANYONE)
        stage.upstream.script = raising(BROKEN)
        stage.clock.now += 60
        with pytest.raises(UpstreamFailure):
            await stage.cache.fetch(read(), ANYONE)

    run(body())


@pytest.mark.parametrize("answer", ANSWERS_THAT_ARE_ERRORS, ids=["error", "401", "interim"])
@pytest.mark.parametrize("make", [public, private], ids=["public", "private"])
def test_H21_an_answer_that_is_no_result_drops_the_copy(
    answer: Answer | Exception, make: Callable[[str], Answer]
) -> None:
    """Not served for it, nor for a failure after it; a public one stays where one caller alone is refused."""

    async def body() -> None:
        stage = Stage(numbered(make), forward=("authorization",))
        ann = bearer("ann")
        await stage.cache.fetch(read(), ann)
        stage.clock.now += 61

        def no_result(_query: Query, _caller: Caller) -> Answer:
            if isinstance(answer, Answer):
                return answer
            raise answer

        stage.upstream.script = no_result
        if isinstance(answer, Answer):
            assert (await stage.cache.fetch(read(), ann)).interim
        else:
            with pytest.raises(type(answer)):
                await stage.cache.fetch(read(), ann)
        stage.upstream.script = raising(BROKEN)
        if answer is BARRED and make is public:
            assert (await stage.cache.fetch(read(), ann)).body == b"v1"
        else:
            with pytest.raises(UpstreamFailure):
                await stage.cache.fetch(read(), ann)
            assert stage.memory.entries == 0

    run(body())


@pytest.mark.parametrize("how", ["refresh", "after-its-end"])
def test_H21_a_refusal_of_one_caller_costs_nobody_else_the_public_copy(how: str) -> None:
    """He is told that he is refused; others are served it, fresh, or stale while the upstream is down."""

    async def body() -> None:
        stage = Stage(numbered(), forward=("authorization",))
        bob, stranger = bearer("bob"), bearer("bad")
        await stage.cache.fetch(read(), bob)
        stage.clock.now += 30 if how == "refresh" else 61
        stage.upstream.script = raising(BARRED)
        with pytest.raises(UpstreamFailure, match="401"):
            await stage.cache.fetch(read(refresh=how == "refresh"), stranger)
        stage.upstream.script = raising(BROKEN)
        answer = await stage.cache.fetch(read(), bob)
        assert (answer.body, answer.hint.ttl_ms) == (b"v1", 30_000 if how == "refresh" else 0)

    run(body())


def test_H21_a_refusal_costs_its_caller_his_own_copy() -> None:
    """Not another's."""

    async def body() -> None:
        stage = Stage(numbered(private), forward=("authorization",))
        ann, bob = bearer("ann"), bearer("bob")
        for caller in (ann, bob):
            await stage.cache.fetch(read(), caller)
        stage.upstream.script = raising(BARRED)
        with pytest.raises(UpstreamFailure, match="401"):
            await stage.cache.fetch(read(refresh=True), ann)
        assert stage.cache.peek(read(), ann) is None
        assert stage.cache.peek(read(), bob) is not None

    run(body())


def test_H21_where_all_are_one_a_refusal_drops_the_one_copy() -> None:
    """Nothing of a caller goes upstream: it is us who are refused."""

    async def body() -> None:
        stage = Stage(numbered())
        await stage.cache.fetch(read(), ANYONE)
        stage.upstream.script = raising(BARRED)
        with pytest.raises(UpstreamFailure, match="401"):
            await stage.cache.fetch(read(refresh=True), ANYONE)
        assert stage.memory.entries == 0

    run(body())


def test_our_own_limit_says_nothing_of_the_copy() -> None:
    """The upstream was not asked: a failure that allows no stale copy still leaves it for the next."""

    async def body() -> None:
        stage = Stage(numbered())
        await stage.cache.fetch(read(), ANYONE)
        stage.clock.now += 61
        stage.upstream.script = raising(UpstreamFailure("alpha", Reason.OVERLOADED, stale_ok=False))
        with pytest.raises(UpstreamFailure):
            await stage.cache.fetch(read(), ANYONE)
        stage.upstream.script = raising(BROKEN)
        assert (await stage.cache.fetch(read(), ANYONE)).body == b"v1"

    run(body())


@pytest.mark.parametrize("error", [ABSENT, BARRED, BROKEN, LATE], ids=["error", "401", "500", "time-out"])
def test_H22_a_failure_is_not_remembered(error: McpError | UpstreamFailure) -> None:
    """The next query is asked anew, and succeeds at once."""

    async def body() -> None:
        stage = Stage(raising(error))
        with pytest.raises(type(error)) as told:
            await stage.cache.fetch(read(), ANYONE)
        assert told.value is error
        stage.upstream.script = numbered()
        answer = await stage.cache.fetch(read(), ANYONE)
        assert (answer.body, answer.served) == (b"v1", by_alpha(Outcome.MISS, stored=True))

    run(body())


def test_a_refresh_that_fails_leaves_the_fresh_copy() -> None:
    """It is served as what it is, a hit; the failure stands in the detail."""

    async def body() -> None:
        stage = Stage(numbered())
        await stage.cache.fetch(read(), ANYONE)
        stage.clock.now += 10
        stage.upstream.script = raising(BROKEN)
        answer = await stage.cache.fetch(read(refresh=True), ANYONE)
        assert answer.body == b"v1"
        assert answer.hint.ttl_ms == 50_000
        assert answer.served == by_alpha(Outcome.HIT, Tier.MEMORY, fresh_for=50, detail="stale-if-error")

    run(body())
