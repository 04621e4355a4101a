"""Items that an upstream gave and nobody is shown: outside the native prefix, or not as the schema has them.

Each is counted; that there are any is logged once in a while, for a list may be asked for often.
"""

import logging
from collections.abc import Callable
from typing import Final

from mcp_federator.model import Method

TELL_AGAIN: Final = 60.0
"""Seconds in which one method's items are logged at most once."""

_log = logging.getLogger(__name__)


class LeftOut:
    """Those of the upstream `name`; `clock` gives seconds.

    Attributes:
        total: how many so far; an item is counted each time that it comes.
    """

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._tell_after: dict[Method, float] = {}
        self.total = 0

    def add(self, count: int, method: Method) -> None:
        """So many items of an answer are left out."""
        if not count:
            return
        self.total += count
        now = self._clock()
        if now >= self._tell_after.get(method, now):
            self._tell_after[method] = now + TELL_AGAIN
            _log.info(
                "%s: %d items in an answer to %s are left out: not published, or not as the schema has them"
                " (%d so far)",
                self._name,
                count,
                method,
                self.total,
            )
