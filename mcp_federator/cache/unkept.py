"""Flights whose answer could not be kept: for a while nobody waits for the next of their kind.

Otherwise an upstream that gives no hints would be slower with Redis than without: everyone would wait for
another replica's flight, only to fly after it.

Pure: the clock is handed in.  Bounded: past `_MAX_LANES` the oldest are forgotten, which costs a wait.
"""

from collections.abc import Callable
from typing import Final

UNKEPT_FOR: Final = 10.0
"""Seconds for which such an answer makes the next askers go upstream without waiting."""

_MAX_LANES: Final = 10_000


class Unkept:
    """The lanes of one upstream's flights.  `clock` gives seconds and never runs backwards."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[bytes, float] = {}

    def knows(self, lane: bytes) -> bool:
        """Whether a flight there brought what could not be kept, lately."""
        return self._until.get(lane, 0.0) > self._clock()

    def note(self, lane: bytes) -> None:
        """A flight there just did."""
        until, now = self._until, self._clock()
        until.pop(lane, None)
        # Lanes stand in the order of their times.
        while until and (until[oldest := next(iter(until))] <= now or len(until) >= _MAX_LANES):
            del until[oldest]
        until[lane] = now + UNKEPT_FOR

    def forget(self, lane: bytes) -> None:
        """A flight there brought what is kept."""
        self._until.pop(lane, None)
