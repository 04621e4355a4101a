"""What is known of the scope of each upstream's lists, beyond the page at hand.

The specification gives one scope to a whole listing, but a merged listing must say its own before most of its
pages were seen.  So it is remembered what earlier pages were, whoever asked for them (design, section 4).

Pure: `now` is passed in, in seconds of any clock that never goes back.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from mcp_federator.model import Method, Scope

MEMORY: Final = 3600.0
"""For how long, in seconds, a page tells of its list."""

TELL_AGAIN: Final = 60.0
"""Seconds in which other processes are told at most once that a list is private: they may have forgotten."""

_Key = tuple[str, Method]

Tell: TypeAlias = Callable[[str, Method, float], None]
"""Is told that a list of an upstream is private, for so many seconds."""


class ListScopes:
    """The memory of one process.

    Args:
        max_ttl: seconds for which one private page makes a list private, and never less than `MEMORY`: as
            long as a page that somebody keeps may be fresh.
        tell: tells the other processes.

    Attributes:
        changes: grows whenever a list that could have counted as public no longer does because of a page.
    """

    def __init__(self, max_ttl: float, tell: Tell = lambda *_: None) -> None:
        self.adopt(max_ttl)
        self._tell = tell
        self._public_until: dict[_Key, float] = {}
        self._private_until: dict[_Key, float] = {}
        self._quiet_until: dict[_Key, float] = {}
        self.changes = 0

    def adopt(self, max_ttl: float) -> None:
        """Remember private pages for another time from now on."""
        self._private_for = max(max_ttl, MEMORY)

    def observe(self, upstream: str, method: Method, scope: Scope, now: float) -> None:
        """A page of this upstream's list with this scope was answered, to any caller."""
        key = upstream, method
        if scope is Scope.PUBLIC:
            self._public_until[key] = now + MEMORY
        else:
            self.hear(upstream, method, self._private_for, now)
            if self._quiet_until.get(key, now) <= now:
                self._quiet_until[key] = now + TELL_AGAIN
                self._tell(upstream, method, self._private_for)

    def hear(self, upstream: str, method: Method, seconds: float, now: float) -> None:
        """A page of this list, here or at another process, makes it private for so many seconds."""
        key = upstream, method
        before = self._private_until.get(key, now)
        if before <= now:
            self.changes += 1
        self._private_until[key] = max(before, now + seconds)

    def public(self, upstream: str, method: Method, now: float) -> bool:
        """Whether all pages of the last hour were public.

        A list of which no page was seen does not count: a walk that began public on a guess would have to be
        refused half way.
        """
        key = upstream, method
        return self._private_until.get(key, now) <= now < self._public_until.get(key, now)
