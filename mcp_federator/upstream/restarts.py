"""When what ended by itself may be begun again: a process, a stream.

Pure: time comes in as `now`, chance as `jitter`.
"""

import random
from collections.abc import Callable
from typing import Final

FIRST: Final = 0.5
"""Seconds of the first wait; each further one doubles it."""

LONGEST: Final = 30.0
"""Seconds waited at most, jitter apart."""

CALM: Final = 10.0
"""Seconds a process must have run for its end to count as the first one, and not to be waited after."""


class Restarts:
    """Counts ends that came too soon.

    `jitter` gives a number in [0, 1), by which up to a fifth of a wait is added: processes that share what
    they fail of should not all come back at once.
    """

    def __init__(self, *, jitter: Callable[[], float] = random.random) -> None:
        self._jitter = jitter
        self._early = 0
        self._not_before = 0.0

    def ended(self, ran: float, now: float) -> None:
        """Note that a process ended by itself after `ran` seconds; one that did not start ran for 0."""
        if ran >= CALM:
            self._early = 0
            return
        # The exponent is bounded, or the power would overflow after a week of trying.
        wait = min(FIRST * 2 ** min(self._early, 16), LONGEST)
        self._early += 1
        self._not_before = now + wait * (1 + self._jitter() / 5)

    def wait(self, now: float) -> float:
        """Seconds until the next start is due, 0 when it is."""
        return max(0.0, self._not_before - now)
