"""What is wanted to be heard of one upstream, and how it is asked to tell: one holder for each context.

A modern upstream is asked by `subscriptions/listen`, whose filter cannot be changed in place: the stream with
the new filter is open before the old one ends (basic/patterns/subscriptions).  A legacy one is asked URI by
URI within the session of the context, and tells on that session's stream (2025-11-25, server/resources,
"Subscriptions").  What may not come in: who wants it, and what becomes of what is heard.

Hazards:
- Wishes change many times a second, and each change of a filter costs the upstream a request: they are
  gathered, and there is at most one swap a second.
- While no stream is open changes pass unheard.  Who opens the next one says so, once, with a gap.
- An upstream that refuses must not be asked again and again, nor may what it refused once stay refused.
- A stream is no call: it is none of `max_connections`, and says nothing of the upstream's health.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from msgspec.structs import replace

from mcp_federator.errors import FederatorError, Reason, UpstreamFailure
from mcp_federator.log import clean
from mcp_federator.model import Caller, Change, Era, Event, Offers, Wanted
from mcp_federator.protocol.legacy import SUBSCRIBE, UNSUBSCRIBE, change_of
from mcp_federator.protocol.modern import Discovered
from mcp_federator.protocol.subscriptions import decode_heard
from mcp_federator.upstream.discovery import Known
from mcp_federator.upstream.restarts import Restarts
from mcp_federator.upstream.sessions import Session
from mcp_federator.upstream.transport import PASSING, Call, Changed, Exchange, Transport

MAX_CONTEXTS: Final = 256
"""Contexts that are listened to at one time; beyond it, the one whose wishes are the oldest is left."""

MAX_URIS: Final = 10_000
"""URIs that one context can want of one upstream; the others are not heard of."""

GATHER: Final = 0.2
"""Seconds in which wishes are gathered before the upstream is asked anew."""

BETWEEN_SWAPS: Final = 1.0
"""Seconds between two streams with other filters, at least."""

ACKNOWLEDGE: Final = 10.0
"""Seconds that an upstream may take to acknowledge."""

OVERLAP: Final = 0.1
"""Seconds that the old stream stays open beside the new one: what was said on it may still be on its way."""

ASK_AGAIN: Final = 60.0
"""Seconds after which is looked whether an upstream that refused has become another."""

KEEP: Final = 240.0
"""Seconds after which a session is used, so that it does not end for want of calls meanwhile."""

_PARALLEL: Final = 8

_log = logging.getLogger(__name__)


def offered(discovered: Discovered | None) -> Offers:
    """What an upstream tells of that says this of itself."""
    if discovered is None or not discovered.resources:
        return Offers()
    return Offers(lists=discovered.list_changed, resources=discovered.subscribe)


class _Context:
    """One authorization context, and what is held open for it.

    Attributes:
        key: its partition.
        caller: whose credentials go along; the last one who wanted something.
        wanted: all that is wanted now.
        news: set when that has changed, or something that is held has ended.
        refused: what the upstream was when it refused to tell; it is not asked again while it is that.
        missed: something was open that is not, and since then nothing began to replace it.
        session, subscribed, declined: of a legacy upstream, what was asked for within which session.
        open: a stream is open, or a session is subscribed in.
    """

    def __init__(self, key: bytes, caller: Caller, wanted: Wanted) -> None:
        self.key = key
        self.caller = caller
        self.wanted = wanted
        self.news = asyncio.Event()
        self.refused: Known | None = None
        self.missed = False
        self.session: Session | None = None
        self.subscribed: set[str] = set()
        self.declined: set[str] = set()
        self.open = False

    async def wait(self, seconds: float) -> None:
        """Wait for news, not for longer than that."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.news.wait()


class _Stream:
    """One `subscriptions/listen` and its filter."""

    def __init__(self, wanted: Wanted, call: Call) -> None:
        self.wanted = wanted
        self.call = call
        self.acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[Exchange]

    async def end(self) -> None:
        """Close it."""
        self.acknowledged.cancel()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class Listening:
    """The listening to one upstream.

    Args:
        name: its configured name.
        transport: opens streams.
        know: what the upstream is, for this caller; raises `UpstreamFailure` or `TimeoutError`.
        listen: the call for a filter.
        session: the session of this caller's context, which counts as used by it; raises likewise.
        subscribe: asks for a URI in a session, or asks no more: (method, URI, caller, session); whether the
            upstream agreed; raises likewise.
        partition: whose context a caller's is; `b""` where there is one for all.
        changed: is told what is heard, and of gaps.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        *,
        know: Callable[[Caller], Awaitable[Known]],
        listen: Callable[[Caller, Wanted], Call],
        session: Callable[[Caller], Awaitable[Session]],
        subscribe: Callable[[str, str, Caller, Session], Awaitable[bool]],
        partition: Callable[[Caller], bytes],
        changed: Changed,
    ) -> None:
        self._name = name
        self._transport = transport
        self._know = know
        self._listen = listen
        self._session = session
        self._subscribe = subscribe
        self._partition = partition
        self._changed = changed
        self._contexts: OrderedDict[bytes, _Context] = OrderedDict()
        self._tasks: dict[_Context, asyncio.Task[None]] = {}
        self._closed = False
        transport.on_end(self._wake_all)

    def __len__(self) -> int:
        """Contexts that are heard now."""
        return sum(context.open for context in self._contexts.values())

    def want(self, caller: Caller, wanted: Wanted) -> None:
        """All that this caller's context wants from now on; nothing, and it is left in peace."""
        if self._closed:
            return
        if len(wanted.uris) > MAX_URIS:
            _log.warning(
                "%s: of %d resources only %d are listened to", self._name, len(wanted.uris), MAX_URIS
            )
            wanted = Wanted(wanted.lists, frozenset(sorted(wanted.uris)[:MAX_URIS]))
        key = self._partition(caller)
        context = self._contexts.get(key)
        if context is None:
            if wanted:
                self._begin(_Context(key, caller, wanted))
            return
        if wanted:
            context.caller = caller
            self._contexts.move_to_end(key)
        context.wanted = wanted
        context.news.set()

    def over(self, session: Session) -> None:
        """A session will not be used again: what was asked for in it is asked for anew."""
        for context in self._contexts.values():
            if context.session is session:
                context.news.set()

    async def close(self) -> None:
        """End all, and wait until it has."""
        self._closed = True
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, context: _Context) -> None:
        if len(self._contexts) >= MAX_CONTEXTS:
            _, oldest = self._contexts.popitem(last=False)
            self._tasks[oldest].cancel()
            # What it is not told of from here on it cannot know.
            self._tell(oldest, Event(self._name, Change.GAP))
            _log.warning("%s: more than %d callers want to hear of it", self._name, MAX_CONTEXTS)
        self._contexts[context.key] = context
        task = asyncio.get_running_loop().create_task(self._hold(context), name=f"listen {self._name}")
        self._tasks[context] = task
        task.add_done_callback(lambda _: self._tasks.pop(context))

    def _wake_all(self) -> None:
        for context in self._contexts.values():
            context.news.set()

    def _tell(self, context: _Context, event: Event) -> None:
        self._changed(replace(event, context=context.key or None))

    def _tell_gap(self, context: _Context) -> None:
        if context.missed:
            context.missed = False
            _log.info("%s: changes may have passed unheard", self._name)
            self._tell(context, Event(self._name, Change.GAP))

    async def _hold(self, context: _Context) -> None:
        """Keep open what is wanted until nothing is."""
        restarts = Restarts()
        now = asyncio.get_running_loop().time
        try:
            while context.wanted:
                begun = now()
                try:
                    await self._hold_as(context, await self._know(context.caller))
                except (FederatorError, TimeoutError, ValueError) as problem:
                    said = getattr(problem, "detail", "") or str(problem)
                    _log.info("%s: changes cannot be heard now: %s", self._name, clean(said))
                finally:
                    context.open = False
                restarts.ended(now() - begun, now())
                until = now() + restarts.wait(now())
                while context.wanted and (left := until - now()) > 0:
                    context.news.clear()
                    await context.wait(left)
        finally:
            if self._contexts.get(context.key) is context:
                del self._contexts[context.key]

    async def _hold_as(self, context: _Context, known: Known) -> None:
        while context.wanted and context.refused is known:
            # Nothing was open, so nothing was missed that anybody was promised.
            self._tell_gap(context)
            context.news.clear()
            await context.wait(ASK_AGAIN)
            known = await self._know(context.caller)
        if known.era is Era.MODERN:
            await self._hold_streams(context, known)
        else:
            await self._hold_session(context)

    # Modern upstreams.

    async def _hold_streams(self, context: _Context, known: Known) -> None:
        """Hold one stream after the other; returns when one ended, or nothing is wanted any more."""
        offers = offered(known.discovered)
        now = asyncio.get_running_loop().time
        stream: _Stream | None = None
        try:
            while context.wanted:
                context.news.clear()
                wanted = Wanted(
                    context.wanted.lists and offers.lists,
                    context.wanted.uris if offers.resources else frozenset(),
                )
                stream = await self._swapped(context, stream, wanted, known)
                if stream is None:
                    # Nothing of it is told of; that may change with what the upstream is.
                    await context.wait(ASK_AGAIN)
                    if await self._know(context.caller) is not known:
                        return
                    continue
                swapped = now()
                stream.task.add_done_callback(lambda _: context.news.set())
                await context.news.wait()
                if stream.task.done():
                    self._look(stream.task.result(), context, known)
                    return
                await asyncio.sleep(max(GATHER, swapped + BETWEEN_SWAPS - now()))
        finally:
            if stream is not None:
                # What was heard till now is heard no more.
                context.missed = True
                await stream.end()

    async def _swapped(
        self, context: _Context, stream: _Stream | None, wanted: Wanted, known: Known
    ) -> _Stream | None:
        """The stream that tells what is wanted, in place of another; None where nothing is."""
        if stream is not None and stream.wanted == wanted:
            return stream
        fresh = await self._opened(context, wanted, known) if wanted else None
        context.open = fresh is not None
        if fresh is not None:
            self._tell_gap(context)
        if stream is not None:
            await asyncio.sleep(OVERLAP)
            await stream.end()
        return fresh

    async def _opened(self, context: _Context, wanted: Wanted, known: Known) -> _Stream:
        """A stream with this filter, once the upstream has acknowledged it.

        Raises:
            UpstreamFailure: it has not.
        """
        stream = _Stream(wanted, self._listen(context.caller, wanted))

        def hear(message: bytes) -> None:
            heard = decode_heard(message)
            if heard.subscription != b"%d" % stream.call.id:
                return
            if heard.acknowledged:
                if not stream.acknowledged.done():
                    stream.acknowledged.set_result(None)
            elif (event := change_of(self._name, message)) is not None:
                self._tell(context, event)

        work = self._transport.subscribe(stream.call, hear)
        stream.task = asyncio.get_running_loop().create_task(work, name=f"stream {self._name}")
        try:
            await asyncio.wait(
                (stream.task, stream.acknowledged), timeout=ACKNOWLEDGE, return_when=asyncio.FIRST_COMPLETED
            )
            if stream.acknowledged.done() and not stream.task.done():
                return stream
            if stream.task.done():
                self._look(stream.task.result(), context, known)
        except BaseException:
            await stream.end()
            raise
        await stream.end()
        raise UpstreamFailure(self._name, Reason.TIMEOUT, "subscriptions/listen was not acknowledged")

    def _look(self, ended: Exchange, context: _Context, known: Known) -> None:
        """What an end says: an error, or a status that is none that passes, is a refusal."""
        error = None if ended.reply is None else ended.reply.error
        refused = HTTPStatus.BAD_REQUEST <= ended.status < HTTPStatus.INTERNAL_SERVER_ERROR
        if error is not None or (refused and ended.status not in PASSING):
            context.refused = known
            why = f"HTTP {ended.status}" if error is None else f"error {error.code}"
            raise UpstreamFailure(self._name, Reason.REFUSED, f"{why} to subscriptions/listen")
        if ended.status != HTTPStatus.OK:
            raise UpstreamFailure(self._name, Reason.BAD_REPLY, f"HTTP {ended.status}")

    # Legacy upstreams.

    async def _hold_session(self, context: _Context) -> None:
        """Keep the session of a context alive, and subscribed as is wanted."""
        while True:
            context.news.clear()
            if not context.wanted:
                break
            session = await self._session(context.caller)
            if session is not context.session:
                # Of a session over HTTP its stream tells the gap; a process has none.
                context.missed |= context.session is not None and session.id is None
                context.session, context.subscribed, context.declined = session, set(), set()
                self._tell_gap(context)
            context.open = True
            uris = context.wanted.uris if offered(session.discovered).resources else frozenset()
            await self._ask_each(context, session, SUBSCRIBE, uris - context.subscribed - context.declined)
            await self._ask_each(context, session, UNSUBSCRIBE, context.subscribed - uris)
            if not context.news.is_set():
                await context.wait(KEEP)
            await asyncio.sleep(GATHER)
        if context.session is not None and context.session.incarnation == self._transport.incarnation:
            await self._ask_each(context, context.session, UNSUBSCRIBE, set(context.subscribed))

    async def _ask_each(
        self, context: _Context, session: Session, method: str, uris: frozenset[str] | set[str]
    ) -> None:
        """Ask for each of these, a few at a time; what the upstream will not have is not asked again."""
        left = sorted(uris)

        async def ask() -> None:
            while left:
                uri = left.pop()
                agreed = await self._subscribe(method, uri, context.caller, session)
                if method == UNSUBSCRIBE:
                    context.subscribed.discard(uri)
                elif agreed:
                    context.subscribed.add(uri)
                else:
                    context.declined.add(uri)

        asking = [asyncio.ensure_future(ask()) for _ in range(min(_PARALLEL, len(left)))]
        try:
            await asyncio.gather(*asking)
        finally:
            for one in asking:
                one.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
