import asyncio
from collections.abc import Sequence
from itertools import count

import pytest

from mcp_federator.config import Lists
from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.federation.prefix import Mapping
from mcp_federator.model import Answer, Hint, Scope
from mcp_federator.upstream import resolution
from mcp_federator.upstream.resolution import WALK_AGAIN, Resolver
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
        self.resolver = Resolver(Mapping("alpha", prefix), lists or Lists(), self.clock)

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
        return await self.resolver.resolve(uri, partition, self.turn, deadline)


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
    """When the one who walks is gone, the next in line walks."""

    async def body() -> None:
        listing = Listing(["x://h/a b"])
        listing.gate = asyncio.Event()
        first, second = (asyncio.create_task(listing.resolve("x://h/a%20b")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        listing.gate.set()
        assert await second == "x://h/a b"

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
    """Old pages make room for new ones, and a page too large for all of it is not kept."""
    monkeypatch.setattr(resolution, "MAX_CHARACTERS", 10_000)
    listing = Listing([])
    for number in range(1000):
        listing.resolver.observe(
            b"%d" % (number % 7), str(number), tuple(f"x://{number}/{n}" for n in range(9))
        )
        assert listing.resolver._cost <= 10_000
    assert listing.resolver._cost == sum(page.cost for page in listing.resolver._pages.values())
    assert (b"%d" % (999 % 7), "999") in listing.resolver._pages
    listing.resolver.observe(b"", None, ("x" * 10_001,))
    assert (b"", None) not in listing.resolver._pages


def test_walks_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many partitions as there may be tokens leave a bounded trace."""
    monkeypatch.setattr(resolution, "_MAX_WALKS", 10)

    async def body() -> None:
        listing = Listing([])
        for number in range(50):
            assert await listing.resolve("x://1", b"%d" % number) is None
        assert len(listing.resolver._walks) == 10

    run(body())


def test_compares_what_clients_saw() -> None:
    """Behind a prefix port 80 is a port like any other, without one a URL class leaves it out."""

    async def body() -> None:
        for prefix, expected in ((None, None), ("", "http://h:80/a")):
            listing = Listing(["http://h:80/a"], prefix=prefix)
            assert await listing.resolve("http://h/a") == expected, prefix

    run(body())
