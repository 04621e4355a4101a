import asyncio
import threading
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any

import msgspec
import pytest

from mcp_federator.cache import envelope
from mcp_federator.cache.envelope import Flaw
from mcp_federator.cache.generations import Generations
from mcp_federator.cache.names import Names
from mcp_federator.cache.notice import Kind, Notice
from mcp_federator.cache.replicas import Member
from mcp_federator.cache.secrecy import Secrecy
from mcp_federator.cache.shared import Shared
from mcp_federator.model import Answer, Event, Method, Query
from tests.cache.replica import (
    ALICE,
    BOB,
    GAP,
    IDENTITY,
    LIST_CHANGED,
    Replica,
    changed,
    mine,
    page,
    public,
    read,
    replica,
    run,
    trusted,
    until,
)
from tests.instruments.redis_server import Server


def test_what_one_replica_admits_the_other_finds(redis: Server) -> None:
    """Each member of the answer, with the life that Redis says remains."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            answer = public("body", 60_000, next_cursor="c", count=3, extra=b"e", meta=b"m", uris=("x://2",))
            assert await one.put(read(), answer)
            look = await two.look(read())
            assert look is not None
            assert look.found is not None
            assert 59 < look.found.left <= 60
            found = look.found.answer
            assert 59_000 < found.hint.ttl_ms <= 60_000
            assert msgspec.structs.replace(found, hint=answer.hint) == answer

    run(body())


def test_a_life_is_what_redis_says_is_left(redis: Server) -> None:
    """No clock of ours is asked: the entry's expiry less the stale window."""

    async def body() -> None:
        async with replica(redis.url, stale_window=100) as one:
            await one.put(read(), public())
            (entry,) = redis.keys("*:e:*")
            assert 159_000 < redis.ask("PTTL", entry) <= 160_000
            redis.ask("PEXPIRE", entry, 130_000)
            look = await one.look(read())
            assert look is not None
            assert look.found is not None
            assert 29 < look.found.left <= 30
            redis.ask("PEXPIRE", entry, 90_000)
            look = await one.look(read(), lead=False)
            assert look is not None
            assert look.found is None
            assert look.spare is not None
            assert -11 < look.spare.left <= -10
            assert look.spare.answer.hint.ttl_ms == 0

    run(body())


def test_a_private_answer_is_found_by_its_own_partition_only(redis: Server) -> None:
    """Whatever stands under which key."""

    async def body() -> None:
        async with replica(redis.url) as one:
            await one.put(read(), mine("alice's"), ALICE)
            assert await one.found(read(), ALICE) == b"alice's"
            assert await one.found(read(), BOB) is None
            # Somebody puts it where Bob, or everyone, would find it.
            (entry,) = redis.keys("*:e:*")
            kept = redis.ask("GET", entry)
            for key, partition in ((one.keys.public(read()), BOB), (one.keys.public(read()), b"")):
                site = one.names.site(read(), key, partition)
                for name in {site.public, site.own}:
                    redis.ask("SET", name, kept, "PX", 400_000)
                assert await one.found(read(), partition) is None
            assert one.flaws[Flaw.FOREIGN] >= 2

    run(body())


def test_a_private_answer_under_the_public_key_is_for_one_partition_only(redis: Server) -> None:
    """What was admitted when nothing was forwarded is not given to those whose credentials go along."""

    async def body() -> None:
        async with replica(redis.url) as one:
            await one.put(read(), mine("ours"))
            assert await one.found(read()) == b"ours"
            assert await one.found(read(), ALICE) is None

    run(body())


CHANGES: list[tuple[Event, dict[str, bool]]] = [
    (changed("x://1/a"), {"x://1/a": False, "x://1": False, "x://2": True, "list": True, "templates": True}),
    (changed("x://2"), {"x://1/a": True, "x://1": True, "x://2": False, "list": True, "templates": True}),
    (changed(None), {"x://1/a": False, "x://1": False, "x://2": False, "list": True, "templates": True}),
    (changed("x:" + "/" * 100), {"x://1/a": False, "x://2": False, "list": True}),
    (LIST_CHANGED, {"x://1/a": True, "x://1": True, "x://2": True, "list": False, "templates": False}),
]


def query_for(name: str) -> Query:
    match name:
        case "list":
            return page("c")
        case "templates":
            return page(method=Method.TEMPLATES)
    return read(name)


@pytest.mark.parametrize(("event", "kept"), CHANGES, ids=str)
def test_a_change_reaches_what_it_says_on_every_replica(
    redis: Server, event: Event, kept: dict[str, bool]
) -> None:
    """The resource, what it is a part of, or the lists with all their pages; nothing else."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            for name in kept:
                assert await one.put(query_for(name), public(name))
            before = {name: two.generations.of(query_for(name)) for name in kept}
            one.shared.invalidate(event)
            assert {name: await one.found(query_for(name)) is not None for name in kept} == kept
            assert {name: await two.found(query_for(name)) is not None for name in kept} == kept
            await until(lambda: len(two.heard) > 0)
            await until(
                lambda: {name: two.generations.of(query_for(name)) == before[name] for name in kept} == kept
            )

    run(body())


def test_everything_of_an_upstream_can_be_forgotten(redis: Server) -> None:
    """By 64 keys, however many entries there are."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            names = ["x://1", "x://2", "list", "templates"]
            for name in names:
                await one.put(query_for(name), public())
            one.shared.invalidate_all()
            assert [await one.found(query_for(name)) for name in names] == [None] * 4
            assert [await two.found(query_for(name)) for name in names] == [None] * 4
            await until(lambda: two.heard == [Notice(Kind.ALL)])

    run(body())


def test_a_look_after_a_change_never_finds_what_was_before(redis: Server) -> None:
    """Not even at once: it waits for the change to be written."""

    async def body() -> None:
        async with replica(redis.url) as one:
            for number in range(20):
                assert await one.put(read(), public(str(number)))
                one.shared.invalidate(changed())
                assert await one.found(read()) is None

    run(body())


@pytest.mark.parametrize("event", [changed(), changed("x://1/below"), changed(None)], ids=str)
def test_a_fetch_begun_before_a_change_cannot_restore_the_old_answer(redis: Server, event: Event) -> None:
    """On whichever replica the change was declared."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            lease = await one.lease(read())
            two.shared.invalidate(event)
            assert await two.found(read()) is None
            assert not await one.shared.admit(lease, public("old"))
            assert await one.found(read()) is None
            assert await two.found(read()) is None

    run(body())


def test_a_change_of_a_resource_it_names_makes_an_answer_gone(redis: Server) -> None:
    """Any change does, for an answer that names others; none of another, for one that does not."""

    async def body() -> None:
        async with replica(redis.url) as one:
            await one.put(read("x://tied"), public(uris=("x://named",)))
            await one.put(read("x://free"), public())
            one.shared.invalidate(changed("x://named"))
            assert await one.found(read("x://tied")) is None
            assert await one.found(read("x://free")) is not None
            lease = await one.lease(read("x://tied"))
            one.shared.invalidate(changed("x://elsewhere"))
            assert not await one.shared.admit(lease, public(uris=("x://named",)))

    run(body())


def test_a_gap_makes_entries_stale_for_as_long_as_a_failure_may_last(redis: Server) -> None:
    """They are shown as stale, and what is fetched after it is fresh."""

    async def body() -> None:
        async with replica(redis.url, stale_window=0.5) as one:
            await one.put(read(), public("old"))
            one.shared.invalidate(GAP)
            one.shared.invalidate(GAP)
            look = await one.look(read())
            assert look is not None
            assert look.found is None
            assert look.spare is not None
            assert look.spare.answer.body == b"old"
            assert look.spare.left <= 0
            assert look.lease is not None
            await asyncio.sleep(0.6)
            later = await one.look(read(), lead=False)
            assert later is not None
            assert later.spare is None
            assert await one.shared.admit(look.lease, public("new"))
            assert await one.found(read()) == b"new"

    run(body())


def test_after_a_gap_what_is_newer_stays(redis: Server) -> None:
    """An answer fetched before the gap does not replace one fetched after it."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            before = await one.lease(read(), lead=False)
            one.shared.invalidate(GAP)
            await trusted(one)
            assert await two.put(read(), public("after"))
            assert not await one.shared.admit(before, public("before"))
            assert await one.found(read()) == b"after"

    run(body())


def test_an_answer_takes_the_place_of_what_its_asker_was_given_before(redis: Server) -> None:
    """A public one of his private one, a private one of the public one, one without life of both."""

    async def body() -> None:
        async with replica(redis.url) as one:
            await one.put(read(), mine("1"), ALICE)
            lease = await one.lease(read(), ALICE, refresh=True)
            assert await one.shared.admit(lease, public("2"))
            assert [await one.found(read(), whose) for whose in (ALICE, BOB)] == [b"2", b"2"]
            assert len(redis.keys("*:e:*")) == 1
            lease = await one.lease(read(), ALICE, refresh=True)
            assert await one.shared.admit(lease, mine("3"))
            assert [await one.found(read(), whose) for whose in (ALICE, BOB)] == [b"3", None]
            lease = await one.lease(read(), ALICE, refresh=True)
            assert not await one.shared.admit(lease, public("4", ttl_ms=0))
            assert not redis.keys("*:e:*")

    run(body())


@pytest.mark.parametrize("changes", [0, 1])
def test_what_overrules_a_copy_drops_it_unless_a_change_came_between(redis: Server, changes: int) -> None:
    """What was admitted after the change is newer than the error."""

    async def body() -> None:
        async with replica(redis.url) as one:
            await one.put(read(), public("old"))
            lease = await one.lease(read(), refresh=True)
            if changes:
                one.shared.invalidate(changed())
                await one.put(read(), public("new"))
            await one.shared.overrule(lease)
            assert await one.found(read()) == (b"new" if changes else None)

    run(body())


def odd_values(kept: bytes) -> dict[str, tuple[bytes, Flaw]]:
    return {
        "garbage": (b"garbage", Flaw.ODD),
        "empty mark": (kept[:5], Flaw.ODD),
        "older": (b"mcpf\x00" + kept[5:], Flaw.VERSION),
        "newer": (b"mcpf\x02" + kept[5:], Flaw.VERSION),
        "cut": (kept[:-1], Flaw.BROKEN),
        "cut in the head": (kept[:60], Flaw.ODD),
        "changed": (kept[:-1] + b"?", Flaw.BROKEN),
    }


@pytest.mark.parametrize(
    "what", [*odd_values(b""), "another key's", "of another type", "under another secret"]
)
def test_an_odd_entry_is_a_miss_that_is_counted_and_replaced(redis: Server, what: str) -> None:
    """It neither hinders the flight nor outlives it."""

    async def body() -> None:
        async with replica(redis.url) as one:
            await one.put(read(), public("good"))
            await one.put(read("x://other"), public("other"))
            site = one.names.site(read(), one.keys.public(read()), b"")
            other = one.names.site(read("x://other"), one.keys.public(read("x://other")), b"")
            kept = redis.ask("GET", site.public)
            flaw: Flaw | None
            if what == "another key's":
                # All but the key is right, the generation too.
                stolen = redis.ask("GET", other.public)
                redis.ask("SET", site.public, stolen[:6] + kept[6:46] + stolen[46:], "PX", 400_000)
                flaw = Flaw.FOREIGN
            elif what == "of another type":
                redis.ask("DEL", site.public)
                redis.ask("RPUSH", site.public, "1")
                flaw = None
            elif what == "under another secret":
                async with replica(redis.url, secrets=(b"other",)) as stranger:
                    lease = await stranger.lease(read(), refresh=True)
                    await stranger.shared.admit(lease, public("strange"))
                flaw = Flaw.BROKEN
            else:
                value, flaw = odd_values(kept)[what]
                redis.ask("SET", site.public, value, "PX", 400_000)
            lease = await one.lease(read())
            assert lease.token
            assert set(one.flaws) == ({flaw} if flaw else set())
            assert await one.shared.admit(lease, public("again"))
            assert await one.found(read()) == b"again"

    run(body())


def test_whatever_redis_loses_costs_a_miss_and_nothing_else(redis: Server) -> None:
    """Any key of ours evicted, or of another type: the next look finds nothing, or the right answer."""

    async def body() -> None:
        async with replica(redis.url) as one:
            await one.put(read(), public("right"))
            names = redis.keys("mcpf:*")
            assert len(names) == 3
            for spoil in (
                lambda name: redis.ask("DEL", name),
                lambda name: (redis.ask("DEL", name), redis.ask("RPUSH", name, "x")),
                lambda name: (redis.ask("DEL", name), redis.ask("SET", name, "x")),
                lambda name: (redis.ask("DEL", name), redis.ask("HSET", name, "resources", "x", "any", "")),
            ):
                for name in names:
                    spoil(name)
                    assert await one.found(read()) is None
                    lease = await one.lease(read())
                    assert await one.shared.admit(lease, public("right"))
                    assert await one.found(read()) == b"right"

    run(body())


def test_a_lost_generation_cannot_come_back(redis: Server) -> None:
    """A fetch that began under it is not kept."""

    async def body() -> None:
        async with replica(redis.url) as one:
            lease = await one.lease(read())
            redis.ask("DEL", lease.site.generation)
            assert not await one.shared.admit(lease, public())
            lease = await one.lease(read())
            redis.ask("DEL", lease.site.common)
            assert not await one.shared.admit(lease, public())

    run(body())


def test_all_that_is_written_expires(redis: Server) -> None:
    """Entries after life and window, what they name not before them, and nothing stays for ever."""

    async def body() -> None:
        async with replica(redis.url, stale_window=1000) as one:
            lease = await one.lease(read(), ALICE)
            assert 0 < redis.ask("PTTL", lease.lane) <= 1000
            await one.shared.admit(lease, mine(ttl_ms=500_000))
            left = {name: redis.ask("PTTL", name) for name in redis.keys("*")}
            assert 1_499_000 < left.pop(lease.site.own) <= 1_500_000
            assert set(left) == {lease.site.common, lease.site.generation}
            assert all(1_500_000 < ms < 1_700_000 for ms in left.values())

    run(body())


@pytest.mark.parametrize("make", [public, mine])
def test_what_is_large_is_closed_and_opened_beside_the_loop(
    redis: Server, make: Callable[[str], Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a megabyte takes a millisecond, in which nobody else could go on."""
    closed: list[threading.Thread] = []
    whole = envelope.write

    def write(*given: Any) -> bytes:
        closed.append(threading.current_thread())
        return whole(*given)

    monkeypatch.setattr(envelope, "write", write)

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            text = "x" * (512 << 10)
            await one.put(read("small"), make("text"), ALICE)
            await one.put(read("large"), make(text), ALICE)
            here = [thread is threading.current_thread() for thread in closed]
            assert here == [True, False]
            assert await two.found(read("large"), ALICE) == text.encode()
            assert await two.found(read("small"), ALICE) == b"text"

    run(body())


def test_what_is_too_large_is_not_written(redis: Server) -> None:
    """And what was there before is not served in its stead."""

    async def body() -> None:
        async with replica(redis.url, max_value_bytes=1000) as one:
            await one.put(read(), public("small"))
            lease = await one.lease(read(), refresh=True)
            assert not await one.shared.admit(lease, public("x" * 1000))
            assert not redis.keys("*:e:*")

    run(body())


def test_federators_of_another_configuration_or_prefix_do_not_mix(redis: Server) -> None:
    """Neither entries nor changes."""

    async def body() -> None:
        others: list[dict[str, Any]] = [{"identity": b"o" * 32}, {"key_prefix": "other:"}]
        async with replica(redis.url) as one:
            await one.put(read(), public("one"))
            for named in others:
                async with replica(redis.url, **named) as other:
                    assert await other.found(read()) is None
                    await other.put(read(), public("other"))
                    other.shared.invalidate_all()
                    assert await other.found(read()) is None
            assert await one.found(read()) == b"one"
            assert one.heard == []

    run(body())


def test_a_private_text_can_nowhere_be_seen_in_redis(redis: Server) -> None:
    """No 16 bytes of it, nor of the URI, the cursor, or the partition's credential."""

    async def body() -> None:
        text = "a very private text that nobody may read but its owner"
        async with replica(redis.url) as one:
            answer = msgspec.structs.replace(mine(text), next_cursor=text, uris=(text,))
            await one.put(read("x://" + text), answer, ALICE)
            await one.put(page(text), answer, ALICE)
            dump = b"".join(name + redis.ask("DUMP", name) for name in redis.keys("*"))
            assert len(redis.keys("*:e:*")) == 2
            assert not any(text[at : at + 16].encode() in dump for at in range(len(text) - 15))

    run(body())


def another(one: Replica) -> Shared:
    """The part of an upstream that takes the place of one with the same names."""
    return Shared(
        one.replicas,
        names=Names("mcpf:", "alpha", IDENTITY),
        closure=Secrecy((b"secret",)),
        generations=Generations(),
        max_ttl=3600,
        stale_window=300,
        max_value_bytes=8 << 20,
        clock=monotonic,
        heard=one.heard.append,
    )


def test_who_is_replaced_leaves_its_successor_in(redis: Server) -> None:
    """Both hear while the first still has requests; afterwards the second alone."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            successor = another(one)
            two.shared.invalidate(LIST_CHANGED)
            await until(lambda: len(one.heard) == 4)
            one.shared.close()
            one.shared.close()
            two.shared.invalidate(LIST_CHANGED)
            await until(lambda: len(one.heard) == 6)
            successor.close()
            two.shared.invalidate(LIST_CHANGED)
            await trusted(two)
            assert not one.replicas._members

    run(body())


def test_a_change_is_written_although_its_upstream_has_left(redis: Server) -> None:
    """And its names are forgotten with it, once nothing may have to be written again."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            await one.put(read(), public())
            one.shared.invalidate(changed())
            one.shared.close()
            beta = Names("mcpf:", "beta", IDENTITY)
            one.replicas.join(Member(beta, lambda _: None, lambda _: None))
            await trusted(one)
            assert await two.found(read()) is None
            assert set(one.replicas._names) == {one.names.tag, beta.tag}
            one.replicas._outbox._lately.clear()
            one.replicas.join(Member(beta, lambda _: None, lambda _: None))
            assert set(one.replicas._names) == {beta.tag}

    run(body())


def test_who_joins_while_nobody_is_heard_trusts_what_is_fetched_for_less_long(redis: Server) -> None:
    """Until the channel is up."""

    async def body() -> None:
        async with replica(redis.url, up=False, outage_freshness=7) as one:
            assert one.generations.trust == 7
            await until(lambda: one.replicas.channel.up)
            assert one.generations.trust == inf

    run(body())


def test_a_private_list_is_told_and_remembered(redis: Server) -> None:
    """Those who listen hear of it, those who come later read it, until it ends; it is no change."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two:
            await one.put(page(), public())
            one.shared.tell_private(Method.LIST, 100)
            await until(lambda: bool(two.private))
            async with replica(redis.url) as three:
                await until(lambda: bool(three.private))
                for each in (two, three):
                    assert list(each.private) == [Method.LIST]
                    assert 95 < each.private[Method.LIST] <= 100
                assert not one.private
                redis.ask("CLIENT", "KILL", "TYPE", "pubsub")
                three.private.clear()
                await until(lambda: bool(three.private))
            assert await two.found(page()) is not None
            redis.ask("PEXPIRE", one.names.private_mark(Method.LIST), 1)
            async with replica(redis.url) as four:
                await trusted(four)
                assert await four.replicas.private_for(four.names, Method.LIST) == 0

    run(body())


def test_scripts_are_loaded_when_redis_has_forgotten_them(redis: Server) -> None:
    """In the same call, without an error."""

    async def body() -> None:
        async with replica(redis.url) as one:
            for number in range(3):
                redis.ask("SCRIPT", "FLUSH")
                lease = await one.lease(read(str(number)))
                redis.ask("SCRIPT", "FLUSH")
                assert await one.shared.admit(lease, public())
                redis.ask("SCRIPT", "FLUSH")
                assert await one.found(read(str(number))) is not None
            assert not one.faults

    run(body())


def test_who_settles_waits_until_all_others_have_heard(redis: Server) -> None:
    """What was declared before holds at each of them then."""

    async def body() -> None:
        async with replica(redis.url) as one, replica(redis.url) as two, replica(redis.url) as three:
            for number in range(20):
                one.generations.change_resource(f"x://{number}")
                one.shared.invalidate(changed(f"x://{number}"))
                assert await one.replicas.settle()
                for other in (two, three):
                    assert other.heard[-1] == Notice(Kind.RESOURCE, f"x://{number}")
            assert one.heard == []
            assert one.replicas._answers == {}

    run(body())


def test_nobody_waits_for_ever_to_settle(redis: Server) -> None:
    """Alone there is nobody to wait for; one who listens and never answers is left by who waited."""

    async def body() -> None:
        async with replica(redis.url) as one:
            one.shared.invalidate(changed())
            assert await one.replicas.settle()
            deaf = await one.store.subscribe(one.replicas.channel_name)
            one.shared.invalidate(changed())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(one.replicas.settle(), 0.2)
            assert one.replicas._answers == {}
            await deaf.close()
            one.shared.invalidate(changed())
            assert await asyncio.wait_for(one.replicas.settle(), 5)

    run(body())


def test_where_redis_is_down_there_is_nothing_to_settle() -> None:
    """It says so at once."""

    async def body() -> None:
        async with replica("redis://127.0.0.1:9/0", up=False) as one:
            one.shared.invalidate(changed())
            assert not await asyncio.wait_for(one.replicas.settle(), 5)

    run(body())
