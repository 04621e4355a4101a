"""Flights across replicas of one process."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mcp_federator.cache import shared as shared_room
from mcp_federator.model import Answer, Query
from tests.cache.replica import ALICE, BOB, Replica, changed, mine, public, read, replica, run, until
from tests.instruments.redis_server import Server


class Counted:
    """An upstream that counts its calls, and answers when told."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.calls = 0
        self.go = asyncio.Event()

    async def __call__(self) -> Answer:
        self.calls += 1
        await self.go.wait()
        return self.answer


async def together(
    count: int, ask: Callable[[int], Awaitable[str]], upstream: Counted, calls: int
) -> list[str]:
    tasks = [asyncio.ensure_future(ask(number)) for number in range(count)]
    await until(lambda: upstream.calls == calls)
    await asyncio.sleep(0.02)
    upstream.go.set()
    return list(await asyncio.gather(*tasks))


def asking(
    replicas: list[Replica], query: Query, upstream: Counted, whose: bytes
) -> Callable[[int], Awaitable[str]]:
    return lambda number: replicas[number].fetch(query, upstream, whose)


@pytest.mark.parametrize("whose", [b"", ALICE])
def test_one_flight_serves_all_replicas(redis: Server, whose: bytes) -> None:
    """Five replicas, one upstream call, in 20 rounds; nobody polls where the word comes through."""

    async def body() -> None:
        async with (
            replica(redis.url) as a,
            replica(redis.url) as b,
            replica(redis.url) as c,
            replica(redis.url) as d,
            replica(redis.url) as e,
        ):
            ours = [a, b, c, d, e]
            for number in range(20):
                upstream = Counted(public(str(number)))
                answers = await together(5, asking(ours, read(str(number)), upstream, whose), upstream, 1)
                assert answers == [str(number)] * 5
                assert upstream.calls == 1
            assert not redis.keys("*:f:*")
            assert not any(one.replicas._waiters or one.replicas._held for one in ours)

    run(body())


def test_partitions_share_a_flight_once_the_answer_is_known_to_be_public(redis: Server) -> None:
    """A copy tells, even one that is gone; until then each partition flies alone."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            upstream = Counted(public())
            pairs = [(one, ALICE), (two, BOB)]
            await together(2, lambda i: pairs[i][0].fetch(read(), upstream, pairs[i][1]), upstream, 2)
            one.shared.invalidate(changed())
            await one.found(read())
            upstream = Counted(public())
            await together(2, lambda i: pairs[i][0].fetch(read(), upstream, pairs[i][1]), upstream, 1)
            assert upstream.calls == 1

    run(body())


def test_a_private_answer_of_a_shared_flight_is_nobody_elses(redis: Server) -> None:
    """What was public turns private: the follower flies in his own lane."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            await one.put(read(), public(ttl_ms=1))
            await asyncio.sleep(0.01)
            lead = await one.lease(read(), ALICE)
            assert lead.lane == lead.site.shared_lane
            upstream = Counted(mine("bob's"))
            upstream.go.set()
            follower = asyncio.create_task(two.fetch(read(), upstream, BOB))
            await asyncio.sleep(0.05)
            assert upstream.calls == 0
            await one.shared.admit(lead, mine("alice's"))
            assert await follower == "bob's"
            assert await one.found(read(), ALICE) == b"alice's"

    run(body())


@pytest.mark.parametrize("end", ["land", "overrule", "abandon", "uncacheable"])
def test_a_flight_that_brings_nothing_to_keep_sends_its_followers_upstream(redis: Server, end: str) -> None:
    """At once, and without another lease."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            lease = await one.lease(read())
            follower = asyncio.create_task(two.look(read()))
            await asyncio.sleep(0.05)
            assert not follower.done()
            match end:
                case "land":
                    await one.shared.land(lease)
                case "overrule":
                    await one.shared.overrule(lease)
                case "abandon":
                    one.shared.abandon(lease)
                case _:
                    await one.shared.admit(lease, public(ttl_ms=0))
            async with asyncio.timeout(0.09):
                look = await follower
            assert look is not None
            assert look.lease is not None
            assert not look.lease.token
            assert await two.shared.admit(look.lease, public("mine")) is True

    run(body())


def test_nobody_waits_for_what_can_never_be_kept(redis: Server) -> None:
    """For a while after such an answer askers go upstream side by side, on each replica that met it."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            upstream = Counted(public(ttl_ms=0))
            ours = [one, two]
            await together(2, lambda i: ours[i].fetch(read(), upstream), upstream, 1)
            upstream = Counted(public(ttl_ms=0))
            await together(2, lambda i: ours[i].fetch(read(), upstream), upstream, 2)
            upstream = Counted(public())
            await together(2, lambda i: ours[i].fetch(read(), upstream), upstream, 2)
            assert await one.found(read()) is not None
            one.shared.invalidate(changed())
            assert (await one.lease(read())).token

    run(body())


def test_a_refusal_of_one_caller_does_not_keep_the_others_from_waiting(redis: Server) -> None:
    """Whoever followed him goes upstream; the next still wait for each other."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            await one.put(read(), public(), ALICE)
            redis.ask("DEL", *redis.keys("*:g:*"))
            refused = await one.lease(read(), ALICE)
            waiting = asyncio.create_task(two.lease(read(), BOB))
            await until(lambda: bool(two.replicas._waiters))
            await one.shared.overrule(refused, public=False)
            following = await waiting
            assert following.token
            await two.shared.land(following)
            for each in (one, two):
                assert not each.shared._unkept.knows(refused.lane)

    run(body())


def test_who_asks_after_a_change_does_not_wait_for_what_was_asked_before_it(redis: Server) -> None:
    """He leads; the first flight's end does not end his."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            before = await one.lease(read())
            two.shared.invalidate(changed())
            after = await two.lease(read())
            assert after.token
            await one.shared.admit(before, public("old"))
            assert redis.keys("*:f:*") == [after.lane]
            assert await two.shared.admit(after, public("new"))
            assert await one.found(read()) == b"new"

    run(body())


def test_a_long_flight_keeps_its_lease(redis: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than a lease lasts; a follower gives up after his patience, not before."""
    monkeypatch.setattr(shared_room, "PATIENCE", 1.5)

    async def body() -> None:
        loop = asyncio.get_running_loop()
        async with replica(redis.url) as one, replica(redis.url) as two:
            lease = await one.lease(read())
            started = loop.time()
            follower = await two.lease(read())
            assert 1.4 < loop.time() - started < 1.9
            assert not follower.token
            assert redis.keys("*:f:*") == [lease.lane]
            await one.shared.land(lease)
            assert not redis.keys("*:f:*")

    run(body())


def test_a_leader_that_dies_is_followed_by_one_other(redis: Server) -> None:
    """When its lease ends, one of those who waited leads, and serves the rest."""

    async def body() -> None:
        loop = asyncio.get_running_loop()
        async with replica(redis.url) as dead, replica(redis.url) as one, replica(redis.url) as two:
            lease = await dead.lease(read())
            dead.replicas.let_go(lease.token)
            upstream = Counted(public("alive"))
            upstream.go.set()
            started = loop.time()
            answers = await asyncio.gather(one.fetch(read(), upstream), two.fetch(read(), upstream))
            assert list(answers) == ["alive"] * 2
            assert upstream.calls == 1
            assert loop.time() - started < 1.5

    run(body())


def test_a_word_that_is_missed_costs_no_more_than_a_poll(redis: Server) -> None:
    """Followers look by themselves."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url, up=False) as deaf:
            deaf.replicas._waiters = _Nobody()
            lease = await one.lease(read())
            follower = asyncio.create_task(deaf.look(read()))
            await asyncio.sleep(0.05)
            await one.shared.admit(lease, public("there"))
            async with asyncio.timeout(0.3):
                look = await follower
            assert look is not None
            assert look.found is not None

    run(body())


class _Nobody(dict[bytes, Any]):
    """Whoever is told, nobody hears."""

    def get(self, _key: bytes, default: Any = None) -> Any:
        return default


def test_who_goes_away_leaves_nothing_behind(redis: Server) -> None:
    """A follower that is cancelled; the flight goes on."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            lease = await one.lease(read())
            follower = asyncio.create_task(two.look(read()))
            await asyncio.sleep(0.05)
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
            assert not two.replicas._waiters
            assert await one.shared.admit(lease, public())

    run(body())
