"""When a change is acted on: at once, and in a storm of them not again before it calms down.

Each subject has its own pace.  The first change is acted on as it comes.  Those that follow are gathered
until none has come for `QUIET`, at most until `LONGEST` after the last act.  So whoever looks at each act
looks twice in a storm of a second, and the last change is always among those acted on.

What may not come in: what a subject is, and what it means to act.

Hazard: a subject may come from outside; only so many are told apart.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

QUIET: Final = 0.25
"""Seconds without a change after which a storm is over; two acts on one subject are never closer."""

LONGEST: Final = 1.0
"""Seconds after which a storm that goes on is acted on."""

MAX_SUBJECTS: Final = 1024
"""Subjects that are told apart at one time; beyond it changes of more count as one of `rest`."""

Contexts = frozenset[bytes] | None
"""Authorization contexts in which something was heard; None is everyone's."""

_Subject = TypeVar("_Subject")


class _Storm:
    __slots__ = ("acted", "contexts", "latest", "timer")

    def __init__(self, acted: float, timer: asyncio.TimerHandle) -> None:
        self.acted = acted
        self.timer = timer
        self.latest: float | None = None
        """When a change came that was not acted on yet."""
        self.contexts: Contexts = frozenset()
        """Where those were heard."""


class Pace(Generic[_Subject]):
    """The pace of one upstream's changes.

    Args:
        act: what to do about a subject, and in which contexts it was heard since it was done last.
        rest: what subjects count as that are one too many.
    """

    def __init__(self, act: Callable[[_Subject, Contexts], None], rest: _Subject) -> None:
        self._act = act
        self._rest = rest
        self._storms: dict[_Subject, _Storm] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        """How many subjects are watched."""
        return len(self._storms)

    def __contains__(self, subject: _Subject) -> bool:
        """Whether it was acted on a moment ago, so that its changes are gathered."""
        return subject in self._storms

    def come(self, subject: _Subject, context: bytes | None) -> None:
        """A change has come."""
        storms, now = self._storms, self._loop.time()
        storm = storms.get(subject)
        if storm is None and len(storms) >= MAX_SUBJECTS:
            subject = self._rest
            storm = storms.get(subject)
        heard = None if context is None else frozenset((context,))
        if storm is None:
            storms[subject] = _Storm(now, self._loop.call_at(now + QUIET, self._look, subject))
            self._act(subject, heard)
            return
        storm.latest = now
        storm.contexts = None if heard is None or storm.contexts is None else storm.contexts | heard

    def flush(self) -> None:
        """Act now on all that was not acted on yet, and watch nothing any more."""
        storms, self._storms = self._storms, {}
        for subject, storm in storms.items():
            storm.timer.cancel()
            if storm.latest is not None:
                self._act(subject, storm.contexts)

    def _look(self, subject: _Subject) -> None:
        storm = self._storms[subject]
        if storm.latest is None:
            del self._storms[subject]
            return
        now = self._loop.time()
        due = min(storm.latest + QUIET, storm.acted + LONGEST)
        if now < due:
            storm.timer = self._loop.call_at(due, self._look, subject)
            return
        contexts = storm.contexts
        storm.acted, storm.latest, storm.contexts = now, None, frozenset()
        storm.timer = self._loop.call_at(now + QUIET, self._look, subject)
        self._act(subject, contexts)
