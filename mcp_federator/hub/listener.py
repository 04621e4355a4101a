"""One who listens: what it is to be told, until it takes it.

What waits is kept once, however often it changes, for all that a notice says is "look again".  Taking is the
listener's own affair: who tells never waits, and a listener that does not take in time is given up.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from mcp_federator.model import Caller, Wanted

MAX_WAITING: Final = 2048
"""Notices that may wait for one listener: more than it can have named URIs, so that only parts of these can
become too many."""

Notice: TypeAlias = str | None
"""The public URI of a resource that changed, or None: the lists did."""

SLOW: Final = "slow"
"""Why a listener is given up: it does not take what it is told."""


class Listener:
    """Made by `Hub.open`.

    Args:
        wanted: what it wants to hear of, in public URIs.
        caller: who it is.
        wake: is called when there is something to take, or when it was given up.

    Attributes:
        dropped: why it was given up; `""` while it was not.
    """

    def __init__(self, wanted: Wanted, caller: Caller, wake: Callable[[], None]) -> None:
        self.wanted = wanted
        self.caller = caller
        self.dropped = ""
        self._wake = wake
        self._waiting: dict[Notice, None] = {}

    def tell(self, notice: Notice) -> bool:
        """Keep a notice for it; false where there are too many, and it is to be given up."""
        waiting = self._waiting
        if notice in waiting:
            return True
        if len(waiting) >= MAX_WAITING:
            return False
        waiting[notice] = None
        if len(waiting) == 1:
            self._wake()
        return True

    def take(self) -> list[Notice]:
        """What it was told since it took something last, in order."""
        waiting, self._waiting = self._waiting, {}
        return list(waiting)

    def give_up(self, why: str) -> None:
        """It is told nothing any more."""
        self.dropped = why
        self._waiting.clear()
        self._wake()
