"""How a repository tells of its changes: what it says in whatever thread becomes an event on the loop.

What may not come in: what is made of a change.

Hazards:
- `watch` is code that is not ours: it may return, run for ever, block, or raise; it must hold nobody up.
- It goes on telling after the upstream was closed, for a thread cannot be stopped.
"""

import asyncio
import logging
import threading
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, Final

from mcp_federator.log import clean
from mcp_federator.model import Change, Event, Offers, Wanted
from mcp_federator.upstream.limits import FullError
from mcp_federator.upstream.mounting import Mounted
from mcp_federator.upstream.transport import Changed
from mcp_federator.upstream.workers import RaisedError, Workers

_CLOSE_WAIT: Final = 1.0

_log = logging.getLogger(__name__)


class Telling:
    """What one repository tells.

    Args:
        name: the upstream's.
        mounted: the repository.
        changed: is told of each change.
        workers: run `want`.
        timeout: seconds that `want` may take.

    Attributes:
        wanted: whether anything is wanted.
        offers: what it tells of.
    """

    def __init__(
        self, name: str, mounted: Mounted, changed: Changed, workers: Workers, timeout: float
    ) -> None:
        self._name = name
        self._mounted = mounted
        self._changed = changed
        self._workers = workers
        self._timeout = timeout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wish = Wanted()
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[Any]] = []
        self.wanted = False
        tells = mounted.watch is not None
        self.offers = Offers(lists=tells, resources=tells)

    def start(self) -> None:
        """Let it watch: on the loop where that is async, else in a thread of its own."""
        watch = self._mounted.watch
        if watch is None:
            return
        self._loop = asyncio.get_running_loop()
        name = f"watch {self._name}"
        if iscoroutinefunction(watch):
            self._tasks.append(self._loop.create_task(self._watched(watch(self._tell)), name=name))
        else:
            threading.Thread(target=self._run, args=(watch,), name=name, daemon=True).start()
        if self._mounted.want is not None:
            self._tasks.append(self._loop.create_task(self._pass_on(), name=f"want {self._name}"))

    def want(self, wanted: Wanted) -> None:
        """Let it know what is wanted from now on."""
        self.wanted = bool(wanted) and self._mounted.watch is not None
        self._wish = wanted
        self._news.set()

    async def close(self) -> None:
        """Hear no more."""
        self._loop = None
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_CLOSE_WAIT)

    def _tell(self, uri: str | None = None) -> None:
        """A resource is another one, or the list is; in whatever thread.

        Raises:
            ValueError: it is no URI of the repository's.
        """
        given: Any = uri
        if given is not None and not (isinstance(given, str) and given.startswith(self._mounted.prefix)):
            raise ValueError(f"expected a URI that begins with {self._mounted.prefix}, or None for the list")
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop is closed, nobody hears
                loop.call_soon_threadsafe(self._hear, None if uri is None else str.__str__(uri))

    def _hear(self, uri: str | None) -> None:
        if self._loop is not None:
            change = Change.LIST if uri is None else Change.RESOURCE
            self._changed(Event(self._name, change, uri))

    def _run(self, watch: Any) -> None:
        try:
            watch(self._tell)
        except BaseException as problem:  # noqa: BLE001 - code of theirs
            self._report(problem)

    async def _watched(self, watching: Any) -> None:
        try:
            await watching
        except asyncio.CancelledError:
            raise
        except BaseException as problem:  # noqa: BLE001 - likewise
            self._report(problem)

    def _report(self, problem: BaseException) -> None:
        """It tells no more; what may have been missed is a gap."""
        _log.error("%s: %s.watch raised", self._name, self._mounted.label, exc_info=problem)
        self.offers = Offers()
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._changed, Event(self._name, Change.GAP))

    async def _pass_on(self) -> None:
        """Say what is wanted, the last wish at the latest."""
        want = self._mounted.want
        while want is not None:
            await self._news.wait()
            self._news.clear()
            wish = self._wish
            deadline = asyncio.get_running_loop().time() + self._timeout
            try:
                await self._workers.call(partial(want, wish.lists, wish.uris), deadline)
            except (RaisedError, TimeoutError, FullError) as problem:
                raised = problem.problem if isinstance(problem, RaisedError) else problem
                told = clean(type(raised).__name__)
                _log.warning("%s: %s.want failed: %s", self._name, self._mounted.label, told)
