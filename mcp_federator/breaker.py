"""When a server that fails is left alone, and when it is tried again.

Pure: time comes in as `now`, chance as `jitter`.  What a failure is the caller decides.

Hazards:
- Many requests may be on their way when the breaker opens.  Their results are of another time: a ticket names
  the state it was given in, and only results of the present state count.
- The one trial of a half-open breaker may end without a verdict; it must then be given back, or nobody ever
  tries again.
"""

import random
from collections.abc import Callable
from enum import StrEnum
from typing import NewType

Ticket = NewType("Ticket", int)


class State(StrEnum):
    """What a breaker does with the next request."""

    CLOSED = "closed"
    """Let it through."""
    OPEN = "open"
    """Refuse it."""
    HALF_OPEN = "half-open"
    """Let one through, and wait for what becomes of it."""


class Breaker:
    """Opens after `failures` failures in a row; then one trial at a time decides.

    Args:
        failures: how many in a row open it.
        open_for: seconds it stays open at first; each trial that fails doubles them.
        max_open_for: seconds it stays open at most.
        jitter: gives a number in [0, 1), by which up to a fifth of the time is added: processes that saw the
            same failure should not all try again at once.
    """

    def __init__(
        self,
        failures: int,
        open_for: float,
        max_open_for: float,
        *,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._threshold = failures
        self._first_open_for = open_for
        self._max_open_for = max_open_for
        self._jitter = jitter
        self._failures = 0
        self._open_for = open_for
        self._open_until: float | None = None
        self._trial = False
        self._epoch = 0

    def state(self, now: float) -> State:
        """What the next request meets."""
        if self._open_until is None:
            return State.CLOSED
        return State.OPEN if now < self._open_until or self._trial else State.HALF_OPEN

    def admit(self, now: float) -> Ticket | None:
        """A ticket to ask the server, to be handed back by one of the methods below; or None."""
        match self.state(now):
            case State.OPEN:
                return None
            case State.HALF_OPEN:
                self._trial = True
        return Ticket(self._epoch)

    def succeed(self, ticket: Ticket) -> None:
        """The server answered."""
        if ticket == self._epoch:
            self._failures = 0
            if self._open_until is not None:
                self._open_until = None
                self._open_for = self._first_open_for
                self._turn()

    def fail(self, ticket: Ticket, now: float) -> None:
        """The server failed."""
        if ticket != self._epoch:
            return
        self._failures += 1
        if self._open_until is None and self._failures < self._threshold:
            return
        if self._open_until is not None:
            self._open_for = min(self._open_for * 2, self._max_open_for)
        self._open_until = now + self._open_for * (1 + self._jitter() / 5)
        self._turn()

    def release(self, ticket: Ticket) -> None:
        """Nothing was learnt, as with our own cancellation; after a verdict this changes nothing."""
        if ticket == self._epoch:
            self._trial = False

    def _turn(self) -> None:
        self._epoch += 1
        self._trial = False
