import pytest

from mcp_federator.cache import unkept
from mcp_federator.cache.unkept import UNKEPT_FOR, Unkept
from tests.cache.stage import Clock


def test_a_lane_is_known_for_a_while() -> None:
    """From the last such flight on, until one brings what is kept."""
    clock = Clock()
    lanes = Unkept(clock)
    lanes.note(b"a")
    clock.now += 1
    lanes.note(b"a")
    clock.now += UNKEPT_FOR - 0.5
    assert (lanes.knows(b"a"), lanes.knows(b"b")) == (True, False)
    lanes.forget(b"a")
    lanes.forget(b"b")
    assert not lanes.knows(b"a")
    lanes.note(b"a")
    clock.now += UNKEPT_FOR
    assert not lanes.knows(b"a")


def test_so_many_are_known_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten, and those whose time is over."""
    monkeypatch.setattr(unkept, "_MAX_LANES", 3)
    clock = Clock()
    lanes = Unkept(clock)
    for lane in (b"a", b"b", b"c", b"a", b"d"):
        lanes.note(lane)
    assert [lanes.knows(lane) for lane in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    clock.now += UNKEPT_FOR
    lanes.note(b"e")
    assert set(lanes._until) == {b"e"}
