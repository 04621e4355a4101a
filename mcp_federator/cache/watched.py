"""Which resources an upstream is to be listened to for, so that copies of them are never old.

Those that are kept, the most used first; only so many, for each costs the upstream a subscription.  Now and
then is looked which these are, and what left the memory is let go.

What may not come in: what a copy is worth, and how an upstream is listened to.

Hazard: `uses` is counted on each hit, in place; nothing else may be done there.
"""

import asyncio
from collections.abc import Callable
from heapq import nlargest
from typing import Final

from mcp_federator.cache.key import Key

MAX_WATCHED: Final = 256
"""Resources of one upstream that are listened to on behalf of the cache."""

LOOK_SECONDS: Final = 2.0
"""How often is looked which they are."""

_MAX_SEEN: Final = 4096


class Watched:
    """The resources of one upstream.

    Args:
        holds: whether the memory still has what was kept under a key.
        offered: whether the upstream tells of changes of its resources.
        watch: is told which resources are to be listened to from now on.

    Attributes:
        uses: how often each resource that may be chosen was used of late.
    """

    def __init__(
        self,
        holds: Callable[[Key], bool],
        offered: Callable[[], bool],
        watch: Callable[[frozenset[str]], None],
    ) -> None:
        self._holds = holds
        self._offered = offered
        self._watch = watch
        self._keys: dict[str, Key] = {}
        self._chosen: frozenset[str] = frozenset()
        self._timer: asyncio.TimerHandle | None = None
        self.uses: dict[str, int] = {}

    def kept(self, uri: str, key: Key) -> None:
        """A copy was kept."""
        if (uri in self._keys or len(self._keys) < _MAX_SEEN) and self._offered():
            self._keys[uri] = key
            self.uses[uri] = self.uses.get(uri, 0) + 1
            if self._timer is None:
                self._arm()

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        uses, keys = self.uses, self._keys
        for uri in [uri for uri, key in keys.items() if not self._holds(key)]:
            del keys[uri], uses[uri]
        # Of two that are used alike, the one that is watched already costs nothing.
        chosen = frozenset(nlargest(MAX_WATCHED, uses, key=lambda uri: (uses[uri], uri in self._chosen)))
        for uri in uses:
            # What was used long ago counts less and less.
            uses[uri] //= 2
        if chosen != self._chosen:
            self._chosen = chosen
            self._watch(chosen)
        self._timer = None
        if keys:
            self._arm()
