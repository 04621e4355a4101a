"""Redis in each of its deployments, by URL."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from mcp_federator.breaker import Breaker, State
from mcp_federator.cache.scripts import Script
from tests.cache.replica import (
    ALICE,
    GAP,
    Replica,
    changed,
    hasty,
    mine,
    page,
    public,
    read,
    replica,
    run,
    trusted,
    until,
)
from tests.instruments import redis_server
from tests.instruments.redis_server import Server
from tests.upstream.certificates import Authority

needs_redis = pytest.mark.skipif(bool(redis_server.WITHOUT), reason=redis_server.WITHOUT)
needs_tls = pytest.mark.skipif(bool(redis_server.WITHOUT_TLS), reason=redis_server.WITHOUT_TLS)


async def works(url: str) -> None:
    """Two replicas share what one admits, and a change."""
    async with replica(url) as one, replica(url) as two:
        assert await one.put(read(), public("shared"))
        assert await one.put(page(), mine("alice's"), ALICE)
        assert await two.found(read()) == b"shared"
        assert await two.found(page(), ALICE) == b"alice's"
        one.shared.invalidate(changed())
        assert await one.found(read()) is None
        assert await two.found(read()) is None
        await until(lambda: len(two.heard) == 1)
        one.shared.invalidate(GAP)
        assert await one.found(page(), ALICE) is None
        await trusted(one)
        assert not one.faults
        assert not two.faults


def test_by_address_and_database(redis: Server) -> None:
    """`redis://HOST:PORT/DATABASE`."""
    run(works(redis.url + "/3"))
    assert not redis.keys("*")


def test_by_unix_socket(redis: Server) -> None:
    """`unix://PATH`, the database as an option."""
    run(works(f"unix://{redis.socket}?db=2"))
    assert not redis.keys("*")


@needs_redis
def test_by_user_and_password(redis: Server) -> None:
    """The rules of ADR 0022 are all that is needed; a password may hold anything."""
    password = "p@ss/:word"
    rules = ("resetchannels", "~mcpf:*", "&mcpf:channel", "-@all")
    commands = "+eval +evalsha +info +ping +subscribe +publish +time +del +get +set +pttl +pexpire "
    commands += "+hmget +hset +hdel"
    redis.ask("ACL", "SETUSER", "cache", "on", ">" + password, *rules, *commands.split())
    user = f"cache:{quote(password, safe='')}"
    run(works(f"redis://{user}@127.0.0.1:{redis.port}"))

    async def wrong() -> None:
        async with replica(f"redis://cache:no@127.0.0.1:{redis.port}", up=False) as one:
            assert await one.look(read()) is None
            assert set(one.faults) == {"denied"}

    run(wrong())


def idle(one: Replica) -> list[Any]:
    lines = one.store._lines
    return [] if lines is None else lines._idle


def test_a_connection_that_was_closed_meanwhile_is_no_failure(redis: Server) -> None:
    """Redis closes what is idle for long, or its operator does."""

    async def body() -> None:
        async with replica(redis.url) as one:
            for _ in range(3):
                assert await one.put(read(), public())
                await asyncio.gather(*(one.found(read()) for _ in range(10)))
                redis.ask("CLIENT", "KILL", "TYPE", "normal")
                assert len(idle(one)) > 1
                await until(lambda: all(line._reader.at_eof() for line in idle(one)))
                assert await one.found(read()) is not None
                one.shared.invalidate(changed())
                assert await one.found(read()) is None
            assert not one.faults

    run(body())


def test_an_error_is_an_answer_and_its_connection_stays(redis: Server) -> None:
    """The next command on it gets its own answer."""

    async def body() -> None:
        async with replica(redis.url) as one:
            await one.put(read(), public())
            before = redis.ask("INFO", "clients")["connected_clients"]
            wrong = Script("look", "return redis.error_reply('ERR no')", "0" * 40)
            for _ in range(20):
                assert await one.store.run(wrong, [], []) is None
                assert await one.found(read()) is not None
            assert redis.ask("INFO", "clients")["connected_clients"] == before
            assert one.faults == {"refused": 20}

    run(body())


@needs_tls
def test_over_tls(tmp_path: Path) -> None:
    """`rediss://`, the authority as an option; without it the certificate is not believed."""
    authority = Authority(tmp_path)
    files = (str(authority.file), *authority.issue("redis", "127.0.0.1"))
    with redis_server.server(tls=files) as one:
        run(works(f"rediss://127.0.0.1:{one.port}?ssl_ca_certs={quote(str(authority.file))}"))

        async def doubtful() -> None:
            async with replica(f"rediss://127.0.0.1:{one.port}", up=False) as stranger:
                assert await stranger.look(read()) is None
                assert set(stranger.faults) <= {"unreachable", "timeout"}

        run(doubtful())


@needs_redis
def test_by_sentinels_through_a_failover_under_load() -> None:
    """No request fails; changes around it are kept; hits resume on the new master."""
    with redis_server.watched() as (servers, sentinels):
        places = ",".join(f"127.0.0.1:{one.port}" for one in sentinels)
        url = f"redis+sentinel://{places}/cache/0"
        run(works(url))

        async def body() -> None:
            async with (
                hasty(url, breaker=Breaker(3, 0.05, 0.2)) as one,
                hasty(url, breaker=Breaker(3, 0.05, 0.2)) as two,
            ):
                await one.put(read(), public("old"))
                await one.put(read("x://2"), public("kept"))
                await until(lambda: servers[1].keys("*") == servers[0].keys("*"))
                load = [asyncio.create_task(_load(each)) for each in (one, two)]
                one.shared.invalidate(changed())
                assert await one.found(read()) is None
                await until(lambda: len(two.heard) == 1)
                await asyncio.to_thread(servers[0].stop)
                await until(lambda: _role(servers[1]) == "master", 20)
                await until(lambda: one.replicas.channel.up and two.replicas.channel.up, 20)
                for each in (one, two):
                    await trusted(each)
                    assert await each.found(read()) is None
                assert await one.found(read("x://2")) == b"kept"
                assert await one.put(read(), public("new"))
                assert await two.found(read()) == b"new"
                for task in load:
                    task.cancel()
                longest = [max(await task) for task in load]
                assert max(longest) < 0.5

        run(body())


async def _load(one: Replica) -> list[float]:
    """Look all the time; the seconds each look took."""
    loop = asyncio.get_running_loop()
    took = [0.0]
    try:
        while True:
            started = loop.time()
            await one.found(read("x://load"))
            took.append(loop.time() - started)
            await asyncio.sleep(0.002)
    except asyncio.CancelledError:
        return took


def _role(server: Server) -> str:
    return str(server.ask("INFO", "replication")["role"])


@needs_redis
def test_a_cluster_while_slots_move() -> None:
    """Every bucket is one slot; what moved is found where it is now."""
    with redis_server.cluster() as nodes:
        url = f"redis+cluster://127.0.0.1:{nodes[0].port},127.0.0.1:{nodes[1].port}"
        run(works(url))

        async def body() -> None:
            async with hasty(url, breaker=Breaker(3, 0.05, 0.2)) as one, hasty(url) as two:
                names = [f"x://{number}" for number in range(30)]
                for name in names:
                    assert await one.put(read(name), public(name))
                slots = {int(nodes[0].ask("CLUSTER", "KEYSLOT", key)) for key in one.names.commons()}
                assert len(slots) > 50
                await asyncio.to_thread(_move, nodes[0], nodes[1])
                for name in names:
                    assert await one.found(read(name)) == name.encode()
                one.shared.invalidate(changed(None))
                assert {await one.found(read(name)) for name in names} == {None}
                await until(lambda: len(two.heard) > 0)
                assert one.store.state is State.CLOSED

        run(body())


def _move(source: Server, target: Server) -> None:
    """Move each slot that holds a key."""
    ours, theirs = (node.ask("CLUSTER", "MYID").decode() for node in (source, target))
    for slot in {int(source.ask("CLUSTER", "KEYSLOT", key)) for key in source.keys("*")}:
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ours)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", theirs)
        keys = source.ask("CLUSTER", "GETKEYSINSLOT", slot, 1000)
        source.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", theirs)


@needs_redis
def test_a_cluster_through_a_failover() -> None:
    """A master dies, its replica takes over, and all keys are served again."""
    with redis_server.cluster(masters=3, replicas=1) as nodes:
        url = f"redis+cluster://127.0.0.1:{nodes[0].port},127.0.0.1:{nodes[1].port}"

        async def body() -> None:
            async with hasty(url, breaker=Breaker(3, 0.05, 0.2)) as one:
                names = [f"x://{number}" for number in range(30)]
                for name in names:
                    assert await one.put(read(name), public(name))
                await until(
                    lambda: all(nodes[n].ask("DBSIZE") == nodes[n + 3].ask("DBSIZE") for n in range(3))
                )
                await asyncio.to_thread(nodes[0].stop)
                await until(lambda: _role(nodes[3]) == "master", 20)
                async with asyncio.timeout(20):
                    for name in names:
                        while await one.found(read(name)) is None:  # noqa: ASYNC110 - Redis' own doing
                            await asyncio.sleep(0.05)

        run(body())
