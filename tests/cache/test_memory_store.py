import tracemalloc

import pytest

from mcp_federator.cache.entry import Entry
from mcp_federator.cache.memory_store import MemoryStore
from mcp_federator.model import Scope
from tests.cache.stage import Clock


def entry(size: int = 1000, keep_until: float = 2000.0) -> Entry:
    # Not a constant: each body is an object of its own.
    return Entry(Scope.PUBLIC, b"%0*d" % (size, 1), keep_until - 10.0, keep_until, b"g", b"e")


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


COST = entry().cost()


def test_an_entry_is_kept_until_its_end() -> None:
    """Each entry has an end of its own; after it there is nothing, and it costs nothing."""
    clock = Clock()
    store = MemoryStore(1 << 20, clock)
    store.put(key(1), entry(keep_until=1010.0))
    store.put(key(2), entry(keep_until=1020.0))
    clock.now = 1009.9
    assert store.get(key(1)) == entry(keep_until=1010.0)
    clock.now = 1010.0
    assert store.get(key(1)) is None
    assert store.get(key(2)) is not None
    assert (store.entries, store.bytes) == (1, COST)
    assert store.evictions == 0


def test_what_was_not_kept_is_none() -> None:
    """A miss raises nothing, and to drop what is not there is no fault."""
    store = MemoryStore(1 << 20, Clock())
    store.drop(key(1))
    assert store.get(key(1)) is None


def test_the_least_recently_used_makes_room() -> None:
    """A look counts as use; what went for room is counted as evicted."""
    store = MemoryStore(3 * COST, Clock())
    for number in (1, 2, 3):
        assert store.put(key(number), entry())
    store.get(key(1))
    store.put(key(4), entry())
    assert [store.get(key(number)) is not None for number in (1, 2, 3, 4)] == [True, False, True, True]
    assert (store.entries, store.bytes, store.evictions) == (3, 3 * COST, 1)


def test_what_is_replaced_dropped_or_over_is_not_evicted() -> None:
    """Evictions are for want of room alone."""
    clock = Clock()
    store = MemoryStore(3 * COST, clock)
    store.put(key(1), entry())
    store.put(key(1), entry(10))
    store.put(key(2), entry(keep_until=1001.0))
    store.put(key(3), entry())
    store.drop(key(3))
    clock.now = 1001.0
    store.put(key(4), entry())
    store.put(key(5), entry())
    assert (store.entries, store.evictions) == (3, 0)


def test_what_is_larger_than_the_budget_is_not_kept_and_pushes_nothing_out() -> None:
    """The others stay; an older copy under the same key goes."""
    store = MemoryStore(3 * COST, Clock())
    store.put(key(1), entry())
    store.put(key(2), entry())
    assert not store.put(key(2), entry(4 * COST))
    assert store.get(key(1)) is not None
    assert store.get(key(2)) is None
    assert store.evictions == 0


def test_a_budget_of_nothing_keeps_nothing() -> None:
    """`memory: 0` turns the tier off."""
    store = MemoryStore(0, Clock())
    assert not store.put(key(1), entry(0))
    assert (store.entries, store.bytes, store.evictions) == (0, 0, 0)


@pytest.mark.parametrize("size", [10, 1000, 20_000])
def test_the_budget_counts_what_the_memory_really_is(size: int) -> None:
    """With entries coming and going, what is allocated is what is accounted, and not a quarter less."""
    tracemalloc.start()
    try:
        store = MemoryStore(2_000 * entry(size).cost(), Clock())
        before, _ = tracemalloc.get_traced_memory()
        for number in range(6_000):
            store.put(key(number), entry(size))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert store.entries == 2_000
    assert 0.75 * store.bytes < after - before < store.bytes * 1.05
