import asyncio
from collections.abc import Sequence
from itertools import count

import pytest

from mcp_federator.config import Lists
from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.federation.prefix import Mapping
from mcp_federator.metrics import Metrics
from mcp_federator.model import Answer, Hint, Scope
from mcp_federator.upstream import resolution
from mcp_federator.upstream.resolution import REST, REST_FACTOR, WALK_AGAIN, Resolver
from tests.upstream.asking import Clock, run

HINT = Hint(0, Scope.PUBLIC)


class Listing:
    """An upstream's list: pages of URIs whose cursors are their numbers; it counts how often it is turned."""

    def __init__(self, *pages: Sequence[str], lists: Lists | None = None, prefix: str | None = None) -> None:
        self.pages = pages
        self.turned = 0
        self.clock = Clock()
        self.failing = False
        self.gate: asyncio.Event | None = None
        self.metrics = Metrics("0")
        self.resolver = Resolver(Mapping("alpha", prefix), lists or Lists(), self.clock, self.metrics)

    async def turn(self, cursor: str | None, partition: bytes = b"") -> Answer:
        self.turned += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.failing:
            raise UpstreamFailure("alpha", Reason.UNREACHABLE)
        at = int(cursor or 0)
        self.resolver.observe(partition, cursor, tuple(self.pages[at]))
        following = str(at + 1) if at + 1 < len(self.pages) else None
        return Answer(b"", HINT, following, len(self.pages[at]))

    async def resolve(self, uri: str, partition: bytes = b"", *, within: float = 10.0) -> str | None:
        deadline = asyncio.get_running_loop().time() + within

        async def turn(cursor: str | None) -> Answer:
            return await self.turn(cursor, partition)

        return await self.resolver.resolve(uri, partition, turn, deadline)

    @property
    def truncated(self) -> int:
        """How many walks were counted as cut off."""
        return self.metrics._incomplete_lists["alpha", "truncated"]


@pytest.mark.parametrize(
    ("original", "sent"),
    [
        pytest.param("file:///a b.txt", "file:///a%20b.txt", id="space"),
        pytest.param("file:///café/x", "file:///caf%C3%A9/x", id="non-ascii"),
        pytest.param("file:///a/../b", "file:///b", id="dot-segments"),
        pytest.param("x://h/A%2fb", "x://h/A%2Fb", id="hex-case"),
        pytest.param("x://h/%7Ea", "x://h/~a", id="unreserved"),
        pytest.param("x://h?", "x://h", id="empty-query"),
    ],
)
def test_H01_finds_the_original(original: str, sent: str) -> None:
    """What a URL class made of a listed URI leads back to it, by a walk or by pages that passed by."""

    async def body() -> None:
        walked = Listing(["other://1"], [original])
        assert await walked.resolve(sent) == original
        seen = Listing()
        seen.resolver.observe(b"", None, ("other://1", original))
        assert await seen.resolve(sent) == original
        assert seen.turned == 0

    run(body())


@pytest.mark.parametrize(
    "pages",
    [
        pytest.param([["file:///a b", "file:///a%20b"]], id="on-one-page"),
        pytest.param([["file:///a b"], ["file:///a%20b"]], id="on-two-pages"),
        pytest.param([["file:///a b", "file:///x/../a b"]], id="neither-normal"),
    ],
)
def test_H01_two_originals_stay_not_found(pages: list[list[str]]) -> None:
    """Where two listed URIs have the form asked for, neither is meant."""

    async def body() -> None:
        listing = Listing(*pages)
        assert await listing.resolve("file:///a%20b") is None
        assert await listing.resolve("file:///a%20b") is None
        assert listing.turned == len(pages)

    run(body())


def test_one_original_listed_twice_is_one() -> None:
    """A duplicate is no second original."""

    async def body() -> None:
        listing = Listing(["file:///a b", "file:///a b"], ["file:///a b"])
        assert await listing.resolve("file:///a%20b") == "file:///a b"

    run(body())


def test_a_listed_uri_is_not_replaced() -> None:
    """Where the URI asked for is listed itself, there is nothing to find."""

    async def body() -> None:
        listing = Listing(["file:///a"])
        assert await listing.resolve("file:///a") is None

    run(body())


def test_walks_once_until_the_list_changes() -> None:
    """What the list does not have is not looked for again before `forget`."""

    async def body() -> None:
        listing = Listing(["x://1"], ["x://2"])
        assert await listing.resolve("x://9") is None
        assert await listing.resolve("x://8") is None
        assert listing.turned == 2
        listing.pages = (["x://9/ "],)
        listing.resolver.forget()
        listing.clock.now += REST
        assert await listing.resolve("x://9/%20") == "x://9/ "
        assert listing.turned == 3

    run(body())


def test_asks_who_come_together_share_a_walk() -> None:
    """Ten misses at once turn each page once, and all learn from it."""

    async def body() -> None:
        listing = Listing(["x://h/a b"], ["x://2"])
        listing.gate = asyncio.Event()
        asks = [asyncio.create_task(listing.resolve("x://h/a%20b")) for _ in range(10)]
        await asyncio.sleep(0)
        listing.gate.set()
        assert await asyncio.gather(*asks) == ["x://h/a b"] * 10
        assert listing.turned == 2

    run(body())


def test_a_cancelled_walk_is_taken_over() -> None:
    """When the one who walks is gone, the next in line goes on where he was; nothing is asked anew."""

    async def body() -> None:
        listing = Listing(["x://1"], ["x://2"], ["x://h/a b"])
        listing.gate = asyncio.Event()
        asks = [asyncio.create_task(listing.resolve("x://h/a%20b")) for _ in range(3)]
        for ask in asks[:2]:
            await asyncio.sleep(0)
            listing.gate.set()
            await asyncio.sleep(0)
            listing.gate.clear()
            await asyncio.sleep(0)
            ask.cancel()
        await asyncio.sleep(0)
        listing.gate.set()
        assert await asks[2] == "x://h/a b"
        # Three pages, and those two again that were under way when their asker went.
        assert listing.turned <= 5

    run(body())


def test_one_walk_at_a_time_whoever_asks() -> None:
    """Twenty partitions at once: one walks, the others stay not found at once."""

    async def body() -> None:
        listing = Listing(["x://h/a b"])
        listing.gate = asyncio.Event()
        asks = [asyncio.create_task(listing.resolve("x://h/a%20b", b"%d" % number)) for number in range(20)]
        _, walking = await asyncio.wait(asks, timeout=0.01)
        assert walking == {asks[0]}
        assert listing.turned == 1
        listing.gate.set()
        assert await asyncio.gather(*asks) == ["x://h/a b"] + [None] * 19
        assert listing.turned == 1

    run(body())


@pytest.mark.parametrize(
    ("took", "rest"), [pytest.param(0, REST, id="short"), pytest.param(10, 10 * REST_FACTOR, id="long")]
)
@pytest.mark.parametrize("again", ["another-partition", "after-a-change", "after-a-cancelled-one"])
def test_there_is_a_rest_between_two_walks(again: str, took: float, rest: float) -> None:
    """At least a second, and in proportion to the walk: whatever one does, walking is no attack."""

    async def body() -> None:
        listing = Listing(["x://1"])
        listing.gate = asyncio.Event()
        walk = asyncio.create_task(listing.resolve("x://9"))
        await asyncio.sleep(0)
        listing.clock.now += took
        if again == "after-a-cancelled-one":
            walk.cancel()
        listing.gate.set()
        await asyncio.wait([walk])
        partition = b"other" if again == "another-partition" else b""
        if again == "after-a-change":
            listing.resolver.forget()
        for wait, turned in [(0, 1), (rest - 0.5, 1), (0.5, 2)]:
            listing.clock.now += wait
            assert await listing.resolve("x://9", partition) is None
            assert listing.turned == turned

    run(body())


def test_a_change_in_the_middle_of_a_walk_starts_no_second_one() -> None:
    """What the walk brings is of the old list; the new one may be walked after the rest."""

    async def body() -> None:
        listing = Listing(["x://1"])
        listing.gate = asyncio.Event()
        asks = [asyncio.create_task(listing.resolve("x://9"))]
        for _ in range(5):
            await asyncio.sleep(0)
            listing.resolver.forget()
            asks.append(asyncio.create_task(listing.resolve("x://9")))
        await asyncio.sleep(0)
        assert listing.turned == 1
        listing.gate.set()
        assert await asyncio.gather(*asks) == [None] * 6
        assert listing.turned == 1
        listing.clock.now += REST
        assert await listing.resolve("x://9") is None
        assert listing.turned == 2

    run(body())


def test_a_walk_that_fails_is_tried_again_later() -> None:
    """A failure is no answer, and no reason to try with every request."""

    async def body() -> None:
        listing = Listing(["x://h/a b"])
        listing.failing = True
        assert await listing.resolve("x://h/a%20b") is None
        listing.failing = False
        assert await listing.resolve("x://h/a%20b") is None
        listing.clock.now += WALK_AGAIN
        assert await listing.resolve("x://h/a%20b") == "x://h/a b"

    run(body())


def test_a_walk_ends_with_the_deadline() -> None:
    """A list that does not come in time is no list; the URI stays not found."""

    async def body() -> None:
        listing = Listing(["x://1"])
        listing.gate = asyncio.Event()
        assert await listing.resolve("x://h/a%20b", within=0.02) is None

    run(body())


@pytest.mark.parametrize(
    ("lists", "turned"),
    [
        pytest.param(Lists(max_pages=5), 5, id="pages"),
        pytest.param(Lists(max_items=6), 3, id="items"),
    ],
)
def test_H07_an_endless_list_is_walked_to_a_bound(lists: Lists, turned: int) -> None:
    """New cursors without end: the walk stops at so many pages or items."""

    async def body() -> None:
        listing = Listing(*(["x://1", "x://2"] for _ in range(1000)), lists=lists)
        assert await listing.resolve("x://9") is None
        assert listing.turned == turned
        assert listing.truncated == 1

    run(body())


def test_without_pages_there_are_no_walks() -> None:
    """A client of one upstream does not walk by itself; nothing is cut off."""

    async def body() -> None:
        listing = Listing(["x://h/a b"], lists=Lists(max_pages=0))
        assert await listing.resolve("x://h/a%20b") is None
        assert (listing.turned, listing.truncated) == (0, 0)

    run(body())


def test_a_list_that_ends_is_not_cut_off() -> None:
    """Nothing is counted."""

    async def body() -> None:
        listing = Listing(["x://1"], ["x://2"])
        assert await listing.resolve("x://9") is None
        assert listing.truncated == 0

    run(body())


@pytest.mark.parametrize("cursors", [["", "", ""], ["a", "b", "a", "b"]], ids=["one-cursor", "two-in-turn"])
def test_H07_a_cursor_that_comes_again_ends_the_walk(cursors: list[str]) -> None:
    """A list whose cursors go round is turned once around."""

    async def body() -> None:
        listing = Listing(["x://1"])
        following = iter(cursors)
        turned = count()

        async def turn(_: str | None) -> Answer:
            next(turned)
            return Answer(b"", HINT, next(following), 1)

        deadline = asyncio.get_running_loop().time() + 10
        assert await listing.resolver.resolve("x://9", b"", turn, deadline) is None
        assert next(turned) == len(set(cursors)) + 1
        assert listing.truncated == 1

    run(body())


def test_partitions_do_not_see_each_other() -> None:
    """What one caller's list says is nothing to another."""

    async def body() -> None:
        listing = Listing()
        listing.resolver.observe(b"a", None, ("x://h/a b",))

        async def turn(_: str | None) -> Answer:
            return Answer(b"", HINT)

        deadline = asyncio.get_running_loop().time() + 10
        for partition, expected in ((b"a", "x://h/a b"), (b"b", None), (b"", None)):
            assert await listing.resolver.resolve("x://h/a%20b", partition, turn, deadline) == expected

    run(body())


def test_a_page_that_passes_again_replaces_itself() -> None:
    """What is no longer listed is not found any more."""

    async def body() -> None:
        listing = Listing(["x://1"])
        listing.resolver.observe(b"", None, ("x://h/a b",))
        listing.resolver.observe(b"", None, ("x://h/a b",))
        listing.resolver.observe(b"", None, ("x://1",))
        assert await listing.resolve("x://h/a%20b") is None

    run(body())


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole partitions make room, the one seen longest ago first; then pages of the one that remains."""
    monkeypatch.setattr(resolution, "MAX_CHARACTERS", 10_000)
    resolver = Listing().resolver

    def observe(partition: int, number: int) -> None:
        uris = tuple(f"x://{number}/{n}" for n in range(9))
        resolver.observe(b"%d" % partition, str(number), uris)
        assert resolver._cost == sum(shelf.cost for shelf in resolver._shelves.values()) <= 10_000
        assert resolver._shelves[b"%d" % partition].pages[str(number)].uris == uris

    for number in range(100):
        observe(number % 7, number // 7)
        assert len(resolver._shelves) >= min(number, 4)
    for number in range(100):
        observe(1, number)
    assert list(resolver._shelves) == [b"1"]
    resolver.observe(b"1", "99", ("x" * 10_001,))
    assert "99" not in resolver._shelves[b"1"].pages
    assert len(resolver._shelves[b"1"].pages) > 5


def test_partitions_and_cursors_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many partitions as there may be tokens, and long cursors, leave a bounded trace of nothing."""
    monkeypatch.setattr(resolution, "MAX_CHARACTERS", 100_000)

    async def body() -> None:
        listing = Listing([])
        for number in range(500):
            listing.clock.now += REST
            assert await listing.resolve("x://1", b"%d" % number) is None
            listing.resolver.observe(b"%d" % number, "c" * 4000, ())
        assert 10 < len(listing.resolver._shelves) < 25

    run(body())


def test_compares_what_clients_saw() -> None:
    """Behind a prefix port 80 is a port like any other, without one a URL class leaves it out."""

    async def body() -> None:
        for prefix, expected in ((None, None), ("", "http://h:80/a")):
            listing = Listing(["http://h:80/a"], prefix=prefix)
            assert await listing.resolve("http://h/a") == expected, prefix

    run(body())
