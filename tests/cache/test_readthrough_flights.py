import asyncio
import gc
from typing import Any

import pytest

from mcp_federator.errors import McpError, UpstreamFailure
from mcp_federator.model import ANYONE, Answer, Outcome, Query
from tests.cache.stage import (
    ABSENT,
    BARRED,
    BROKEN,
    HELD,
    INCAPABLE,
    INTERIM,
    LATE,
    Stage,
    bearer,
    by_alpha,
    private,
    public,
    read,
    run,
    settle,
)

ANN, BOB = bearer("ann"), bearer("bob")


async def known_public() -> Stage:
    """A stage with partitions on which a public answer has just gone stale."""
    stage = Stage(lambda _query, _caller: public("old", 1), forward=("authorization",), stale_if_error=300)
    await stage.cache.fetch(read(), ANN)
    stage.clock.now += 1
    stage.upstream.script = None
    stage.calls.clear()
    stage.metrics._cache_requests.clear()
    return stage


def test_H30_a_hundred_readers_are_one_upstream_call() -> None:
    """One leads, 99 are coalesced, and all get the same bytes and life."""

    async def body() -> None:
        stage = Stage()
        asked = [stage.ask(read()) for _ in range(100)]
        await settle()
        [call] = stage.calls
        call.land(public("text"))
        answers = await asyncio.gather(*asked)
        assert {(answer.body, answer.hint.ttl_ms) for answer in answers} == {(b"text", 60_000)}
        assert stage.outcomes == {Outcome.MISS: 1, Outcome.COALESCED: 99}
        assert answers[0].served == by_alpha(Outcome.MISS, stored=True)
        assert answers[1].served == by_alpha(Outcome.COALESCED, stored=True)

    run(body())


def test_H30_the_leader_leaves_and_ninety_nine_are_answered() -> None:
    """Invariant 8: one upstream call all the same, and the leader's query is still counted."""

    async def body() -> None:
        stage = Stage()
        leader, *others = [stage.ask(read()) for _ in range(100)]
        await settle()
        leader.cancel()
        await settle()
        [call] = stage.calls
        assert not call.cancelled
        call.land(public("text"))
        answers = await asyncio.gather(*others)
        assert [answer.body for answer in answers] == [b"text"] * 99
        assert leader.cancelled()
        assert stage.outcomes == {Outcome.MISS: 1, Outcome.COALESCED: 99}

    run(body())


def test_H30_a_failure_meets_all_and_the_next_request_tries_anew() -> None:
    """500: a hundred errors, one upstream call, nothing remembered."""

    async def body() -> None:
        stage = Stage()
        asked = [stage.ask(read()) for _ in range(100)]
        await settle()
        stage.calls[0].land(BROKEN)
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert results == [BROKEN] * 100
        assert len(stage.calls) == 1
        assert stage.outcomes == {Outcome.MISS: 1, Outcome.COALESCED: 99}
        again = stage.ask(read())
        await settle()
        stage.calls[1].land(public("text"))
        assert (await again).body == b"text"

    run(body())


def test_H30_when_all_are_gone_the_upstream_call_is_cancelled() -> None:
    """No task is left, asyncio complains of nothing, and every query is counted."""
    complaints: list[dict[str, Any]] = []

    async def body() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        stage = Stage()
        asked = [stage.ask(read()) for _ in range(100)]
        await settle()
        for task in asked:
            task.cancel()
        await settle()
        [call] = stage.calls
        assert call.cancelled
        assert all(task.cancelled() for task in asked)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert stage.outcomes == {Outcome.MISS: 1, Outcome.COALESCED: 99}
        assert stage.memory.entries == 0
        gc.collect()

    run(body())
    assert complaints == []


def test_H30_who_comes_after_all_have_gone_has_a_flight_of_his_own() -> None:
    """A cancelled load is never joined."""

    async def body() -> None:
        stage = Stage()
        first = stage.ask(read())
        await settle()
        first.cancel()
        await asyncio.sleep(0)
        second = stage.ask(read())
        await settle()
        stage.calls[1].land(public("text"))
        assert (await second).body == b"text"

    run(body())


def test_H24_until_known_to_be_public_each_partition_flies_alone() -> None:
    """Two tokens are two upstream calls, each with its own; the same token is one."""

    async def body() -> None:
        stage = Stage(forward=("authorization",))
        asked = [stage.ask(read(), caller) for caller in (ANN, BOB, ANN)]
        await settle()
        assert [call.caller for call in stage.calls] == [ANN, BOB]
        stage.calls[0].land(private("for ann"))
        stage.calls[1].land(private("for bob"))
        assert [(await each).body for each in asked] == [b"for ann", b"for bob", b"for ann"]

    run(body())


def test_a_known_public_answer_is_one_flight_for_all_partitions() -> None:
    """The stale copy says that it is public: a hundred tokens are one upstream call."""

    async def body() -> None:
        stage = await known_public()
        asked = [stage.ask(read(), bearer(str(number))) for number in range(100)]
        await settle()
        [call] = stage.calls
        call.land(public("new"))
        answers = await asyncio.gather(*asked)
        assert {answer.body for answer in answers} == {b"new"}
        assert answers[99].served == by_alpha(Outcome.COALESCED, found_stale=True, stored=True)
        assert stage.outcomes == {Outcome.MISS: 1, Outcome.COALESCED: 99}

    run(body())


@pytest.mark.parametrize(
    "leaders",
    [private("for ann"), ABSENT, BARRED, HELD],
    ids=["private answer", "JSON-RPC error", "401", "429"],
)
def test_H21_a_follower_takes_nothing_that_was_said_to_another(leaders: Answer | Exception) -> None:
    """Invariant 3: he flies again in his own partition; those of the leader's partition take it."""

    async def body() -> None:
        stage = await known_public()
        ann, ann_too, bob, bob_too = [stage.ask(read(), caller) for caller in (ANN, ANN, BOB, BOB)]
        await settle()
        stage.calls[0].land(leaders)
        await settle()
        assert [call.caller for call in stage.calls] == [ANN, BOB]
        stage.calls[1].land(private("for bob"))
        assert [(await each).body for each in (bob, bob_too)] == [b"for bob"] * 2
        for result in await asyncio.gather(ann, ann_too, return_exceptions=True):
            if leaders is HELD:
                assert isinstance(result, Answer)
                assert result.served.outcome is Outcome.STALE
            elif isinstance(leaders, Answer):
                assert isinstance(result, Answer)
                assert result.body == b"for ann"
            else:
                assert result is leaders
        assert sum(stage.outcomes.values()) == 4
        assert stage.outcomes[Outcome.COALESCED] == (1 if leaders is HELD else 2)

    run(body())


def test_who_was_turned_away_once_is_not_made_to_wait_for_others_again() -> None:
    """Each partition that could not take the leader's answer asks for itself, all at the same time."""

    async def body() -> None:
        stage = await known_public()
        callers = [bearer(name) for name in ("ann", "bob", "cid", "dan")]
        asked = [stage.ask(read(), caller) for caller in callers]
        await settle()
        stage.calls[0].land(HELD)
        await settle()
        assert [call.caller for call in stage.calls] == callers
        for call in stage.calls[1:]:
            call.land(HELD)
        answers = await asyncio.gather(*asked)
        assert [answer.served.outcome for answer in answers] == [Outcome.STALE] * 4

    run(body())


@pytest.mark.parametrize("failure", [BROKEN, LATE], ids=["500", "time-out"])
def test_a_transport_failure_meets_every_partition(failure: UpstreamFailure) -> None:
    """Nobody tries again at once; the stale copy stands in for all."""

    async def body() -> None:
        stage = await known_public()
        asked = [stage.ask(read(), caller) for caller in (ANN, BOB)]
        await settle()
        stage.calls[0].land(failure)
        answers = await asyncio.gather(*asked)
        assert [(answer.body, answer.served.outcome) for answer in answers] == [(b"old", Outcome.STALE)] * 2
        assert len(stage.calls) == 1
        assert stage.outcomes == {Outcome.STALE: 2}

    run(body())


@pytest.mark.parametrize("said", [INTERIM, INCAPABLE], ids=["input_required", "-32021"])
def test_H29_each_waiter_asks_again_alone(said: Answer | Exception) -> None:
    """Invariant 9: the flight brings nobody anything; each caller has his own call, outside any flight."""

    async def body() -> None:
        stage = Stage()
        callers = [bearer(name) for name in ("ann", "bob", "cid")]
        asked = [stage.ask(read(), caller) for caller in callers]
        await settle()
        assert len(stage.calls) == 1
        stage.calls[0].land(said)
        await settle()
        alone = stage.calls[1:]
        assert [(call.query, call.caller) for call in alone] == [
            (Query(read().method, uri="x://1", alone=True), caller) for caller in callers
        ]
        # A reader who comes now joins none of them.
        late = stage.ask(read())
        await settle()
        assert len(stage.calls) == 5
        alone[0].land(INTERIM)
        alone[1].land(public("with bob's capabilities"))
        alone[2].land(INCAPABLE)
        stage.calls[4].land(public("shared"))
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(results[0], Answer)
        assert results[0].interim
        assert isinstance(results[1], Answer)
        assert (results[1].body, results[1].served) == (
            b"with bob's capabilities",
            by_alpha(Outcome.BYPASS),
        )
        assert results[2] is INCAPABLE
        assert (await late).body == b"shared"
        assert (await stage.cache.fetch(read(), ANYONE)).body == b"shared"
        assert stage.outcomes == {Outcome.BYPASS: 3, Outcome.MISS: 1, Outcome.HIT: 1}

    run(body())


def test_H29_in_a_shared_flight_the_other_partition_asks_for_itself_first() -> None:
    """What the upstream wanted of the leader it may not want of the follower."""

    async def body() -> None:
        stage = await known_public()
        ann, bob = [stage.ask(read(), caller) for caller in (ANN, BOB)]
        await settle()
        stage.calls[0].land(INTERIM)
        await settle()
        assert [(call.caller, call.query.alone) for call in stage.calls] == [
            (ANN, False),
            (ANN, True),
            (BOB, False),
        ]
        stage.calls[1].land(INTERIM)
        stage.calls[2].land(private("for bob"))
        assert (await ann).interim
        assert (await bob).body == b"for bob"

    run(body())


def test_who_asks_alone_is_cancelled_alone() -> None:
    """His upstream call goes with him; the others' goes on."""

    async def body() -> None:
        stage = Stage()
        one, other = [stage.ask(read(), caller) for caller in (ANN, BOB)]
        await settle()
        stage.calls[0].land(INTERIM)
        await settle()
        one.cancel()
        await settle()
        assert [call.cancelled for call in stage.calls] == [False, True, False]
        stage.calls[2].land(INTERIM)
        assert (await other).interim

    run(body())


def test_a_flight_looks_once_more_before_it_asks() -> None:
    """A public answer that another partition's flight brought meanwhile saves the call."""

    async def body() -> None:
        stage = Stage(lambda _query, _caller: public("text"), forward=("authorization",))
        ann, bob = await asyncio.gather(stage.ask(read(), ANN), stage.ask(read(), BOB))
        assert (ann.body, bob.body) == (b"text", b"text")
        assert len(stage.calls) == 1
        assert bob.served.outcome is Outcome.HIT
        assert stage.outcomes == {Outcome.MISS: 1, Outcome.HIT: 1}

    run(body())


def test_a_refresh_joins_a_flight_that_is_under_way() -> None:
    """It is a copy from upstream already; a plain reader gets the kept one without waiting."""

    async def body() -> None:
        stage = Stage(lambda _query, _caller: public("old"))
        await stage.cache.fetch(read(), ANYONE)
        stage.upstream.script = None
        first = stage.ask(read(refresh=True))
        await settle()
        stage.clock.now += 2
        second = stage.ask(read(refresh=True))
        await settle()
        assert (await stage.cache.fetch(read(), ANYONE)).body == b"old"
        assert len(stage.calls) == 2
        stage.calls[1].land(public("new"))
        one, two = await first, await second
        assert (one.body, one.served) == (b"new", by_alpha(Outcome.MISS, stored=True, refreshed=True))
        assert (two.body, two.served) == (b"new", by_alpha(Outcome.COALESCED, stored=True))
        assert (await stage.cache.fetch(read(), ANYONE)).body == b"new"

    run(body())


def test_closing_fails_those_who_wait_and_cancels_the_upstream_call() -> None:
    """They are told `unreachable`, or get a stale copy; no task is left."""

    async def body() -> None:
        stage = await known_public()
        stale, other = stage.ask(read(), ANN), stage.ask(read("x://2"), ANN)
        await settle()
        stage.cache.close()
        assert (await stale).served.outcome is Outcome.STALE
        with pytest.raises(UpstreamFailure, match="unreachable"):
            await other
        await settle()
        assert [call.cancelled for call in stage.calls] == [True, True]
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(body())


def test_a_fault_of_our_own_is_told_to_all_and_counted() -> None:
    """An exception nobody planned for reaches every waiter; the next query is asked anew."""

    async def body() -> None:
        stage = Stage()
        asked = [stage.ask(read()) for _ in range(3)]
        await settle()
        stage.calls[0].land(ZeroDivisionError())
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(result) for result in results] == [ZeroDivisionError] * 3
        assert stage.outcomes == {Outcome.MISS: 1, Outcome.COALESCED: 2}

    run(body())


def test_a_shared_error_does_not_grow() -> None:
    """A hundred waiters raise one object; its traceback holds one path, not a hundred."""

    async def body() -> None:
        stage = Stage()
        error = McpError(-32602, "no such resource")
        asked = [stage.ask(read()) for _ in range(100)]
        await settle()
        stage.calls[0].land(error)
        await asyncio.gather(*asked, return_exceptions=True)
        depth, traceback = 0, error.__traceback__
        while traceback is not None:
            depth, traceback = depth + 1, traceback.tb_next
        assert depth <= 5

    run(body())
