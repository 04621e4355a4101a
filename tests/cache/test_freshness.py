from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.cache import freshness
from mcp_federator.cache.entry import Entry
from mcp_federator.model import Scope

KEPT = Entry(Scope.PUBLIC, b"", fresh_until=60.0, keep_until=360.0, generation=b"g", epoch=b"e")


@pytest.mark.parametrize(
    ("ttl_ms", "kept_ms"),
    [(0, 0), (-1, 0), (60_000, 60_000), (9_007_199_254_740_993, 3_600_000), (10**30, 3_600_000)],
    ids=["0", "-1", "60000", "2^53+1", "1e30"],
)
def test_H25_a_life_is_clamped(ttl_ms: int, kept_ms: int) -> None:
    """No life is negative, and none longer than `max_ttl`."""
    assert freshness.clamp(ttl_ms, 3600.0) == kept_ms


@pytest.mark.parametrize(
    ("now", "epoch_end", "left"),
    [
        (0.0, inf, 60.0),
        (59.999, inf, pytest.approx(0.001)),
        (60.0, inf, 0.0),
        (359.0, inf, -299.0),
        (360.0, inf, freshness.GONE),
        (5.0, 4.0, -1.0),
        (303.0, 4.0, -299.0),
        (304.0, 4.0, freshness.GONE),
        (100.0, 70.0, -40.0),
        (5.0, -inf, freshness.GONE),
    ],
    ids=[
        "new",
        "last millisecond",
        "at its end",
        "stale",
        "past the stale window",
        "after a gap",
        "the window counts from the gap",
        "past the window after a gap",
        "a gap after its end changes nothing",
        "an epoch nobody remembers",
    ],
)
def test_the_life_of_a_copy(now: float, epoch_end: float, left: float) -> None:
    """Fresh while now < received + ttl, stale for the window after that or after a gap, then gone."""
    assert freshness.life(KEPT, now, b"g", epoch_end) == left


def test_a_copy_of_another_generation_is_gone() -> None:
    """However fresh it was."""
    assert freshness.life(KEPT, 0.0, b"h", inf) == freshness.GONE


def test_without_a_stale_window_nothing_is_stale() -> None:
    """At its end, or at a gap, the copy is gone."""
    kept = Entry(Scope.PUBLIC, b"", fresh_until=60.0, keep_until=60.0, generation=b"g", epoch=b"e")
    assert freshness.life(kept, 59.0, b"g", inf) == 1.0
    assert freshness.life(kept, 60.0, b"g", inf) == freshness.GONE
    assert freshness.life(kept, 5.0, b"g", 4.0) == freshness.GONE


@pytest.mark.parametrize(
    ("left", "ttl_ms", "seconds"),
    [(60.0, 60_000, 60), (30.0, 30_000, 30), (0.1, 100, 0), (0.0001, 0, 0), (0.0, 0, -1), (-11.5, 0, -12)],
    ids=str,
)
def test_H27_what_is_told_of_a_life(left: float, ttl_ms: int, seconds: int) -> None:
    """Milliseconds for the wire, seconds for Cache-Status; both rounded down."""
    assert freshness.remaining_ms(left) == ttl_ms
    assert freshness.fresh_for(left) == seconds


def test_nothing_is_told_of_what_is_gone() -> None:
    """Its ttlMs is 0."""
    assert freshness.remaining_ms(freshness.GONE) == 0


@given(
    received=st.floats(0, 1e7),
    ttl_ms=st.integers(1, 86_400_000),
    age=st.floats(0, 86_400),
)
def test_H27_a_told_life_is_whole_when_new_and_never_more_than_is_left(
    received: float, ttl_ms: int, age: float
) -> None:
    """What was received as N milliseconds is told as N at once, and with age as N less the age."""
    fresh_until = received + ttl_ms / 1000
    assert freshness.remaining_ms(fresh_until - received) == ttl_ms
    told = freshness.remaining_ms(fresh_until - (received + age))
    assert 0 <= told <= max(0.0, ttl_ms - age * 1000) + 0.01
