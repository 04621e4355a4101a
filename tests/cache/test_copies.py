from collections.abc import Callable

import pytest

from mcp_federator.cache.copies import Copies
from mcp_federator.cache.entry import Entry
from mcp_federator.cache.memory_store import MemoryStore
from mcp_federator.config import Cache
from mcp_federator.federation.partition import Credentials
from mcp_federator.model import ANYONE, Answer, Caller, Scope
from tests.cache.stage import Clock, bearer, private, public, read

ANN, BOB = bearer("ann"), bearer("bob")


class Shelf:
    """Copies of one upstream that forwards `authorization`, or nothing."""

    def __init__(self, *forward: str) -> None:
        self.clock = Clock()
        self.memory = MemoryStore(1 << 20, self.clock)
        self.copies = Copies(
            identity=b"alpha",
            credentials=Credentials(b"secret", forward, ()),
            cache=Cache(),
            memory=self.memory,
            clock=self.clock,
        )

    def keep(self, answer: Answer, caller: Caller = ANYONE) -> bool:
        place = self.copies.place(read(), caller)
        stamp = self.copies.generations.stamp(place.query)
        return self.copies.admit(place, self.copies.entry(answer, stamp))

    def body(self, caller: Caller = ANYONE, *, stale: bool = False) -> bytes | None:
        found = self.copies.find(self.copies.place(read(), caller), stale=stale)
        return found.entry.body if found else None


def test_H24_a_private_copy_is_for_its_own_partition() -> None:
    """Not for another token, nor for none; a public one is for all."""
    shelf = Shelf("authorization")
    shelf.keep(private("for ann"), ANN)
    assert [shelf.body(caller) for caller in (ANN, BOB, ANYONE)] == [b"for ann", None, None]
    shelf.keep(public("for all"), BOB)
    assert [shelf.body(caller) for caller in (BOB, ANYONE)] == [b"for all"] * 2


def test_H24_without_forwarding_all_share_what_is_private() -> None:
    """There is one authorization context, whatever the callers bring."""
    shelf = Shelf()
    shelf.keep(private("ours"), ANN)
    assert shelf.body(BOB) == b"ours"


def test_H24_a_private_copy_under_the_public_key_is_given_to_no_partition() -> None:
    """Should one ever lie there, its scope still protects it."""
    shelf = Shelf("authorization")
    place = shelf.copies.place(read(), ANN)
    stamp = shelf.copies.generations.stamp(place.query)
    shelf.memory.put(place.public, shelf.copies.entry(private("astray"), stamp))
    assert shelf.body(ANN) is None
    assert not shelf.copies.is_public(place)


@pytest.mark.parametrize("forward", [(), ("authorization",)], ids=["one partition", "partitions"])
@pytest.mark.parametrize(
    ("old", "new"),
    [(public, private), (private, public), (public, public), (private, private)],
    ids=["public to private", "private to public", "public again", "private again"],
)
def test_a_new_answer_takes_the_place_of_whatever_its_asker_had(
    forward: tuple[str, ...], old: Callable[[str], Answer], new: Callable[[str], Answer]
) -> None:
    """Also when the scope is another now: one copy is left, and the old scope does not linger."""
    shelf = Shelf(*forward)
    shelf.keep(old("old"), ANN)
    shelf.keep(new("new"), ANN)
    assert shelf.body(ANN) == b"new"
    assert shelf.memory.entries == 1


def test_an_answer_with_no_life_is_not_kept_and_ends_the_older_one() -> None:
    """`ttlMs` 0 says that what came before is not current either."""
    shelf = Shelf("authorization")
    assert shelf.keep(private("old"), ANN)
    assert not shelf.keep(private("now", ttl_ms=0), ANN)
    assert shelf.memory.entries == 0


def test_H28_an_answer_overtaken_by_a_change_leaves_the_newer_copy_alone() -> None:
    """It is not kept, and what was kept in the meantime stays."""
    shelf = Shelf()
    place = shelf.copies.place(read(), ANYONE)
    late = shelf.copies.generations.stamp(place.query)
    shelf.copies.generations.change_resource("x://1")
    assert shelf.keep(public("new"))
    assert not shelf.copies.admit(place, shelf.copies.entry(public("old"), late))
    assert shelf.body() == b"new"


def test_a_stale_copy_is_found_where_one_will_do() -> None:
    """While fresh it is found in any case, then only by who takes a stale one, after the window by nobody."""
    shelf = Shelf()
    shelf.keep(public("kept", ttl_ms=60_000))
    found = []
    for now in (1059.9, 1060.0, 1359.9, 1360.0):
        shelf.clock.now = now
        found.append((shelf.body(), shelf.body(stale=True)))
    assert found == [(b"kept", b"kept"), (None, b"kept"), (None, b"kept"), (None, None)]


def test_a_fresh_copy_goes_before_a_stale_one() -> None:
    """Also where the stale one is for all and the fresh one for this partition alone."""
    shelf = Shelf("authorization")
    place = shelf.copies.place(read(), ANN)
    stamp = shelf.copies.generations.stamp(place.query)
    shelf.memory.put(place.public, shelf.copies.entry(public("for all", ttl_ms=1), stamp))
    shelf.memory.put(place.private, shelf.copies.entry(private("for ann", ttl_ms=60_000), stamp))
    shelf.clock.now += 1
    assert [shelf.body(ANN, stale=True), shelf.body(BOB, stale=True)] == [b"for ann", b"for all"]


def test_a_copy_tells_that_an_answer_is_public_even_when_it_is_gone() -> None:
    """Stale or changed, it still says that a flight may be shared."""
    shelf = Shelf("authorization")
    place = shelf.copies.place(read(), ANN)
    assert not shelf.copies.is_public(place)
    shelf.keep(public("kept"), ANN)
    shelf.copies.generations.change_resource("x://1")
    assert shelf.body(ANN) is None
    assert shelf.copies.is_public(shelf.copies.place(read(), BOB))


def test_an_entry_has_all_of_the_answer_that_is_not_the_asker_s() -> None:
    """Body, cursor, count, other members and `_meta`."""
    answer = Answer(b"1", public("").hint, next_cursor="c", count=2, extra=b'"x":1', meta=b'"m":1')
    shelf = Shelf()
    stamp = shelf.copies.generations.stamp(read())
    assert shelf.copies.entry(answer, stamp) == Entry(
        Scope.PUBLIC,
        b"1",
        fresh_until=1060.0,
        keep_until=1360.0,
        generation=stamp.generation,
        epoch=stamp.epoch,
        next_cursor="c",
        count=2,
        extra=b'"x":1',
        meta=b'"m":1',
    )
