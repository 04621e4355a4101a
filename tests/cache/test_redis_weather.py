"""Redis in all weathers: no request fails or waits long, nothing old comes back, hits resume."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from mcp_federator.breaker import Breaker, State
from mcp_federator.cache import outbox
from tests.cache.replica import Replica, changed, hasty, page, public, read, replica, run, trusted, until
from tests.instruments import redis_server
from tests.instruments.redis_server import Server

pytestmark = pytest.mark.skipif(bool(redis_server.WITHOUT), reason=redis_server.WITHOUT)


def quick() -> Breaker:
    """A breaker that tries again soon."""
    return Breaker(3, 0.05, 0.2)


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Replica]:
    async with hasty(url, breaker=quick()) as one:
        yield one


async def outlast(one: Replica, looks: int = 20) -> float:
    """Look until the breaker is open, then this often more; gives the longest of those."""
    while one.store.state is State.CLOSED:
        started = monotonic()
        assert await one.found(read()) is None
        assert monotonic() - started < 0.4
    longest = 0.0
    for _ in range(looks):
        started = monotonic()
        assert await one.look(read()) is None
        longest = max(longest, monotonic() - started)
    return longest


def test_absent_at_start(own: Server) -> None:
    """No answer, at once when the breaker is open; used as soon as it is there."""

    async def body() -> None:
        own.stop()
        async with hasty(own.url, up=False, breaker=quick()) as one:
            assert await outlast(one) < 0.05
            assert set(one.faults) == {"unreachable"}
            own.start()
            await trusted(one)
            await until(lambda: one.replicas.channel.up)
            assert await one.put(read(), public())
            assert await one.found(read()) is not None

    run(body())


def test_no_command_is_tried_while_the_breaker_is_open(own: Server) -> None:
    """Not even by those who write changes."""

    async def body() -> None:
        own.stop()
        async with hasty(own.url, up=False, breaker=Breaker(3, 60, 60)) as one:
            await outlast(one)
            tried = {name: count for name, count in one.operations.items() if name[0] != "subscribe"}
            for _ in range(100):
                assert await one.look(read()) is None
                one.shared.invalidate(changed())
            await asyncio.sleep(0.3)
            assert tried == {name: count for name, count in one.operations.items() if name[0] != "subscribe"}

    run(body())


def test_stopped_around_a_change(own: Server) -> None:
    """It is written before what comes back is trusted, on whichever replica it was declared."""

    async def body() -> None:
        async with listening(own.url) as one, listening(own.url) as two:
            await one.put(read(), public("old"))
            await one.put(read("x://2"), public("kept"))
            # The machine is gone for a while, with all it holds.
            own_pid = own.pid
            _pause(own_pid)
            one.shared.invalidate(changed())
            assert await one.found(read()) is None
            await outlast(one)
            assert await two.found(read()) is None
            _resume(own_pid)
            await trusted(one)
            assert await one.found(read()) is None
            assert await one.found(read("x://2")) == b"kept"
            await trusted(two)
            await until(lambda: two.replicas.channel.up)
            assert await two.found(read()) is None

    run(body())


def _pause(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def _resume(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def test_restarted_empty(own: Server) -> None:
    """What it held is gone, and it is used again without a restart of ours."""

    async def body() -> None:
        async with listening(own.url) as one, listening(own.url) as two:
            await one.put(read(), public())
            own.stop()
            own.start()
            await until(lambda: one.replicas.channel.up and two.replicas.channel.up)
            for each in (one, two):
                await trusted(each)
            assert await one.found(read()) is None
            assert await one.put(read(), public("new"))
            assert await two.found(read()) == b"new"

    run(body())


def test_restarted_with_what_it_held_long_ago(own: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot brings back entries with their generations; changes made since are not undone."""
    monkeypatch.setattr(outbox, "MEMORY", -1.0)

    async def body() -> None:
        async with listening(own.url) as one:
            await one.put(read(), public("old"))
            own.ask("SAVE")
            one.shared.invalidate(changed())
            assert await one.found(read()) is None
            await asyncio.to_thread(own.stop)
            await until(lambda: not one.replicas.channel.up)
            await asyncio.to_thread(own.start)
            assert own.keys("*:e:*")
            await until(lambda: one.replicas.channel.up)
            await trusted(one)
            assert one.replicas.channel.restarted
            assert await one.found(read()) is None
            assert await one.put(read(), public("new"))
            assert await one.found(read()) == b"new"

    run(body())


def test_asleep_for_long(own: Server) -> None:
    """`DEBUG SLEEP`: requests wait a quarter of a second until the breaker is open, then not at all."""

    async def body() -> None:
        async with listening(own.url) as one:
            await one.put(read(), public())
            sleeper = asyncio.create_task(asyncio.to_thread(own.ask, "DEBUG", "SLEEP", "3"))
            await asyncio.sleep(0.1)
            assert await outlast(one, 1000) < 0.05
            assert one.faults["timeout"] >= 3
            await until(lambda: not one.replicas.channel.up)
            await sleeper
            await trusted(one)
            await until(lambda: one.replicas.channel.up)
            assert await one.found(read()) is not None

    run(body())


def test_black_holed(black_hole: str) -> None:
    """An address that takes connections and says nothing."""

    async def body() -> None:
        async with hasty(black_hole, up=False, breaker=Breaker(3, 60, 60)) as one:
            looks = [one.found(read()) for _ in range(50)]
            started = monotonic()
            assert set(await asyncio.gather(*looks)) == {None}
            assert monotonic() - started < 0.6
            assert await outlast(one) < 0.05
            assert not one.replicas.channel.up

    run(body())


def test_a_replica_that_only_reads(own: Server) -> None:
    """It counts as down, for generations cannot be made; once it is a master again it is used."""

    async def body() -> None:
        async with listening(own.url) as one:
            await one.put(read(), public())
            own.ask("REPLICAOF", "127.0.0.1", "1")
            own.ask("CONFIG", "SET", "replica-serve-stale-data", "yes")
            one.shared.invalidate(changed())
            for number in range(20):
                assert await one.found(read(str(number))) is None
            await until(lambda: one.store.state is not State.CLOSED)
            assert one.faults["readonly"] >= 3
            own.ask("REPLICAOF", "NO", "ONE")
            await trusted(one)
            assert await one.found(read()) is None
            assert await one.put(read(), public())
            assert await one.found(read()) is not None

    run(body())


def test_no_memory_left_and_none_to_make_room(own: Server) -> None:
    """What is there is served, what is new is not kept, changes are written, and the breaker stays closed."""

    async def body() -> None:
        async with listening(own.url) as one, listening(own.url) as two:
            await one.put(read(), public("there"))
            await one.put(read("x://changed"), public("there"))
            lease = await one.lease(read("x://new"))
            own.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")
            own.ask("CONFIG", "SET", "maxmemory", "1")
            assert await two.found(read()) == b"there"
            follower = asyncio.create_task(two.look(read("x://new")))
            await asyncio.sleep(0.05)
            assert not await one.shared.admit(lease, public("new"))
            async with asyncio.timeout(0.4):
                await follower
            assert await one.look(read("x://other")) is None
            one.shared.invalidate(changed("x://changed"))
            assert await two.found(read()) == b"there"
            await until(lambda: len(two.heard) == 1)
            own.ask("CONFIG", "SET", "maxmemory", "0")
            assert await one.found(read("x://changed")) is None
            assert one.store.state is State.CLOSED
            assert one.faults["oom"] >= 1
            assert set(one.faults) == {"oom"}
            assert await one.put(read("x://new"), public("new"))

    run(body())


def test_a_pool_of_two_serves_fifty(own: Server) -> None:
    """They wait for each other; none of them fails."""

    async def body() -> None:
        async with replica(own.url, connections=2) as one:
            await one.put(read(), public())
            found = await asyncio.gather(*(one.found(read()) for _ in range(50)))
            assert set(found) == {b"text"}
            assert not one.faults
            # One of them is ours that asks.
            assert own.ask("CLIENT", "LIST", "TYPE", "normal").count(b"id=") <= 3

    run(body())


def test_a_pool_that_is_busy_is_not_redis_fault(own: Server) -> None:
    """Who waits in vain goes upstream; the breaker hears nothing of it."""

    async def body() -> None:
        async with hasty(own.url, connections=1) as one:
            await one.put(read(), public())
            await one.store._slots.acquire()
            assert set(await asyncio.gather(*(one.found(read()) for _ in range(10)))) == {None}
            assert set(one.faults) == {"busy"}
            one.store._slots.release()
            assert await one.found(read()) is not None

    run(body())


def test_a_killed_listener_comes_back_and_says_so(own: Server) -> None:
    """What was said meanwhile was missed: entries in memory are stale, those in Redis are not."""

    async def body() -> None:
        async with listening(own.url) as one, listening(own.url) as two:
            await one.put(read(), public())
            epoch = two.generations.epoch
            up_since = two.replicas.channel.since
            own.ask("CLIENT", "KILL", "TYPE", "pubsub")
            one.shared.invalidate(changed())
            await until(lambda: two.replicas.channel.up and two.replicas.channel.since > up_since)
            assert two.generations.epoch != epoch
            assert await two.found(read()) is None
            await until(lambda: one.replicas.channel.up)
            two.heard.clear()
            one.shared.invalidate(changed("x://2"))
            await until(lambda: len(two.heard) > 0)

    run(body())


def test_a_listener_that_hears_nothing_finds_out(own: Server) -> None:
    """Within a few seconds, although the connection stands."""

    async def body() -> None:
        async with listening(own.url) as one:
            _pause(own.pid)
            started = monotonic()
            await until(lambda: not one.replicas.channel.up)
            assert monotonic() - started < 3
            _resume(own.pid)
            await until(lambda: one.replicas.channel.up)

    run(body())


def test_a_cancelled_command_never_gives_its_answer_to_another(own: Server) -> None:
    """1,000 rounds, cancelled at every stage; each look finds its own answer or none."""

    async def body() -> None:
        async with replica(own.url, connections=4, timeout=5) as one:
            names = [str(number) for number in range(10)]
            for name in names:
                await one.put(read(name), public(name))
                await one.put(page(name), public("page " + name))
            for round_ in range(1000):
                name = names[round_ % 10]
                doomed = [asyncio.create_task(one.found(read(each))) for each in names[:3]]
                for _ in range(round_ % 25):
                    await asyncio.sleep(0)
                for each in doomed:
                    each.cancel()
                assert await one.found(read(name)) == name.encode()
                assert await one.found(page(name)) == b"page " + name.encode()
                await asyncio.gather(*doomed, return_exceptions=True)
            assert not one.faults
            assert one.store.state is State.CLOSED

    run(body())


def test_a_breaker_trial_is_never_a_request(own: Server) -> None:
    """While Redis is down all looks together are as fast as none, half-open or not."""

    async def body() -> None:
        async with listening(own.url) as one:
            _pause(own.pid)
            await outlast(one)
            end = monotonic() + 1.0
            while monotonic() < end:
                started = monotonic()
                assert await one.look(read()) is None
                assert monotonic() - started < 0.05
                await asyncio.sleep(0.001)
            assert one.operations["probe", "timeout"] >= 1
            _resume(own.pid)
            await trusted(one)

    run(body())


def test_more_changes_than_are_remembered_are_one_of_everything(own: Server) -> None:
    """A long outage costs one line per upstream, and the whole of it afterwards."""

    async def body() -> None:
        async with listening(own.url) as one:
            await one.put(read("x://unchanged"), public())
            _pause(own.pid)
            await outlast(one)
            for number in range(1500):
                one.shared.invalidate(changed(f"x://{number}"))
            _resume(own.pid)
            await trusted(one)
            assert await one.found(read("x://unchanged")) is None

    run(body())


def test_something_else_under_a_key_of_ours_does_not_hold_up_changes(own: Server) -> None:
    """What cannot be changed in part is deleted."""

    async def body() -> None:
        async with listening(own.url) as one:
            await one.put(read(), public())
            common = next(iter(one.names.commons()))
            own.ask("DEL", common)
            own.ask("SET", common, "somebody else's")
            one.shared.invalidate(changed("x://2"))
            assert await one.found(read("x://2")) is None
            await trusted(one)

    run(body())
