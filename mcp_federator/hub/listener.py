"""One who listens: what it is to be told, until it takes it.

Each thing waits once, however often it changes, for all that a notice says is "look again".  Taking is the
listener's own affair: who tells never waits.  And what waits is bounded whatever happens: where parts of a
resource become too many, the resource itself stands for them.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from mcp_federator.model import Caller, Wanted

MAX_PARTS: Final = 1024
"""So many notices waiting, no more of parts are told apart.  What was asked for always has room."""

Notice: TypeAlias = str | None
"""The public URI of a resource that changed, or None: the lists did."""


class Listener:
    """Made by `Hub.open`.

    Args:
        wanted: what it wants to hear of, in public URIs.
        caller: who it is.
        wake: is called when there is something to take, or nothing any more; must not call the hub.

    Attributes:
        over: nothing is told any more.
    """

    def __init__(self, wanted: Wanted, caller: Caller, wake: Callable[[], None]) -> None:
        self.wanted = wanted
        self.caller = caller
        self.over = False
        self._wake = wake
        self._waiting: dict[Notice, None] = {}

    def tell(self, notice: Notice, part: str | None = None) -> None:
        """Something that it wants to hear of has changed, or a `part` of it."""
        waiting = self._waiting
        if part is not None and len(waiting) < MAX_PARTS:
            notice = part
        if notice not in waiting:
            waiting[notice] = None
            self._wake()

    def take(self) -> list[Notice]:
        """What it was told since it took something last, in order."""
        waiting, self._waiting = self._waiting, {}
        return list(waiting)

    def end(self) -> None:
        """Nothing is told any more."""
        self.over = True
        self._wake()

    def become(self, wanted: Wanted) -> None:
        """It wants something else from now on."""
        for uri in self.wanted.uris - wanted.uris:
            self._waiting.pop(uri, None)
        self.wanted = wanted
