"""What is known of the scope of each upstream's lists, beyond the page at hand.

The specification gives one scope to a whole listing, but a merged listing must say its own before most of its
pages were seen.  So it is remembered what earlier pages were, whoever asked for them (design, section 4).

Pure: `now` is passed in, in seconds of any clock that never goes back.
"""

from typing import Final

from mcp_federator.model import Method, Scope

MEMORY: Final = 3600.0
"""For how long, in seconds, a page tells of its list."""

_Key = tuple[str, Method]


class ListScopes:
    """The memory of one process.

    Args:
        max_ttl: seconds for which one private page makes a list private, and never less than `MEMORY`: as
            long as a page that somebody keeps may be fresh.

    Attributes:
        changes: grows whenever a list that could have counted as public no longer does because of a page.
    """

    def __init__(self, max_ttl: float) -> None:
        self.adopt(max_ttl)
        self._public_until: dict[_Key, float] = {}
        self._private_until: dict[_Key, float] = {}
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
            if self._private_until.get(key, now) <= now:
                self.changes += 1
            self._private_until[key] = now + self._private_for

    def public(self, upstream: str, method: Method, now: float) -> bool:
        """Whether all pages of the last hour were public.

        A list of which no page was seen does not count: a walk that began public on a guess would have to be
        refused half way.
        """
        key = upstream, method
        return self._private_until.get(key, now) <= now < self._public_until.get(key, now)
