"""Who listens to what, and what becomes of a change.

The way of a change: its upstream says so; at its pace (`pace`) the cache is told, and after it everyone who
listens to what the change concerns.  The other way, each upstream is told the whole of what is wanted of it,
for each authorization context: the union over all who listen.

What may not come in: what is kept, how an upstream is listened to, how a listener is told.

Hazards:
- Invalidate before relay: a listener that reads again at once must not be given the old copy (invariant 5).
- What one authorization context hears is no affair of another: an event says whose it is.
- A wish comes with each listener and goes with it; an upstream is told only when the union became another
  one, and once for all that became of it within one turn of the loop.
- Listeners outlive upstreams: after a reload their URIs may lead elsewhere, or nowhere.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from mcp_federator.federation.listen import Spellings, concerned, routed
from mcp_federator.federation.prefix import Mapping, Router
from mcp_federator.hub.listener import Listener
from mcp_federator.hub.pace import Contexts, Pace
from mcp_federator.metrics import Metrics
from mcp_federator.model import ANYONE, Caller, Change, Event, Offers, Wanted

TELL_SECONDS: Final = 0.25
"""How long listeners wait at most until other processes have heard."""

KNOW_SECONDS: Final = 1.0
"""How long somebody who begins to listen waits for an upstream of which nothing is known yet."""

MAX_WEIGHT: Final = 32 << 20
"""Of all wishes together: the characters of their URIs, and `_EACH` for each.  About 100,000 URIs."""

_EACH: Final = 256
_NOTHING: Final = Offers()
_ALL: Final = (Change.RESOURCE, None)

_Subject = tuple[Change, str | None]


class Voice(msgspec.Struct, frozen=True, eq=False):
    """One upstream, as the hub has it.

    Attributes:
        name: its configured name.
        mapping: its names.
        want: is told the whole of what a context wants from now on; returns at once.
        offers: what it tells of; None while that is unknown.
        know: finds out what it is, for this caller; may fail.
        partition: whose context a caller's is.
        invalidate: tells the cache before it; after that nobody is given what the event makes stale.
        settle: waits until other processes have heard what this one's cache was told, for ever if need be;
            None where there are none.
    """

    name: str
    mapping: Mapping
    want: Callable[[Caller, Wanted], None]
    offers: Callable[[], Offers | None]
    know: Callable[[Caller], Awaitable[object]]
    partition: Callable[[Caller], bytes]
    invalidate: Callable[[Event], None]
    settle: Callable[[], Awaitable[object]] | None = None


class _Context:
    """Those who listen to one upstream in one authorization context."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.kept = Wanted()
        """What the cache wants besides."""
        self.lists: dict[Listener, None] = {}
        self.uris: dict[str, dict[Listener, tuple[str, ...]]] = {}
        """Native URI -> who wants it -> how he spelt it."""
        self.told = Wanted()
        """What the upstream knows of it."""

    @property
    def wanted(self) -> Wanted:
        kept = self.kept
        return Wanted(bool(self.lists) or kept.lists, frozenset(self.uris) | kept.uris)

    def join(self, listener: Listener, spellings: Spellings) -> None:
        self.caller = listener.caller
        if listener.wanted.lists:
            self.lists[listener] = None
        for native, spelt in spellings.items():
            self.uris.setdefault(native, {})[listener] = spelt

    def leave(self, listener: Listener, spellings: Spellings) -> None:
        self.lists.pop(listener, None)
        for native in spellings:
            listeners = self.uris[native]
            del listeners[listener]
            if not listeners:
                del self.uris[native]


class _Channel:
    """An upstream in force, with all who listen to it."""

    def __init__(self, voice: Voice, act: "_Act", tell: "_Act") -> None:
        self.voice = voice
        self.contexts: dict[bytes, _Context] = {}
        self.pace: Pace[_Subject] = Pace(lambda subject, contexts: act(self, subject, contexts), _ALL)
        self.elsewhere: Pace[_Subject] = Pace(lambda subject, contexts: tell(self, subject, contexts), _ALL)
        """That of changes which other processes heard, and told our cache of."""

    def heard_in(self, contexts: Contexts) -> Iterable[_Context]:
        """Those among whom something is told that was heard in these contexts."""
        if contexts is None:
            return tuple(self.contexts.values())
        return tuple(self.contexts[one] for one in contexts if one in self.contexts)


_Act = Callable[[_Channel, _Subject, Contexts], None]
_Part = tuple[_Channel, bytes, Spellings]


class Hub:
    """The hub of one process.  `metrics` counts what was heard."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._channels: dict[str, _Channel] = {}
        self._router = Router([])
        self._listeners: dict[Listener, tuple[_Part, ...]] = {}
        self._weight = 0
        self._dirty: dict[tuple[_Channel, bytes], None] = {}
        self._relays: set[asyncio.Task[None]] = set()
        metrics.watch_listeners(lambda: len(self._listeners))

    def __len__(self) -> int:
        """How many listen."""
        return len(self._listeners)

    # Upstreams.

    def adopt(self, voices: Sequence[Voice]) -> None:
        """Let these be the upstreams in force; those that were already go on as they are."""
        old = self._channels
        new = {
            voice.name: old[voice.name]
            if voice.name in old and old[voice.name].voice is voice
            else _Channel(voice, self._act, self._relay)
            for voice in voices
        }
        gone = [channel for name, channel in old.items() if new.get(name) is not channel]
        come = [channel for name, channel in new.items() if old.get(name) is not channel]
        for channel in gone:
            channel.pace.flush()
            channel.elsewhere.flush()
            self._keep(channel, Wanted())
        listeners = list(self._listeners)
        for listener in listeners:
            self._leave(listener)
        self._channels = new
        self._router = Router([voice.mapping for voice in voices])
        for listener in listeners:
            self._join(listener)
        self._tell_wishes()
        if not old:
            return
        # What a URI led to before may have been something else.
        for channel in come:
            self._relay(channel, (Change.GAP, None), None)
        if gone and not come:
            for listener in listeners:
                if listener.wanted.lists:
                    listener.tell(None)

    def keep(self, voice: Voice, wanted: Wanted) -> None:
        """What the cache before an upstream in force wants to hear of from now on, in native URIs."""
        channel = self._channels.get(voice.name)
        if channel is not None and channel.voice is voice:
            self._keep(channel, wanted)

    def _keep(self, channel: _Channel, wanted: Wanted) -> None:
        partition = channel.voice.partition(ANYONE)
        context = channel.contexts.get(partition)
        if context is None:
            context = channel.contexts[partition] = _Context(ANYONE)
        context.kept = wanted
        self._wishes_changed(((channel, partition, {}),))

    @property
    def offers(self) -> Offers:
        """What is told of by some upstream, as far as it is known."""
        known = [channel.voice.offers() or _NOTHING for channel in self._channels.values()]
        return Offers(any(one.lists for one in known), any(one.resources for one in known))

    def heard(self, voice: Voice, event: Event) -> None:
        """An upstream says so."""
        self._metrics.notification(voice.name, event.change)
        channel = self._channels.get(voice.name)
        if channel is None or channel.voice is not voice:
            # It was replaced; but what began with it still goes by its cache.
            voice.invalidate(event)
            return
        channel.pace.come((event.change, event.uri), event.context)

    def heard_elsewhere(self, voice: Voice, event: Event) -> None:
        """An upstream told another process so, and our cache was told by that."""
        channel, subject = self._channels.get(voice.name), (event.change, event.uri)
        # What it told us too is acted on already, or will be.
        if channel is not None and channel.voice is voice and subject not in channel.pace:
            channel.elsewhere.come(subject, None)

    def _act(self, channel: _Channel, subject: _Subject, contexts: Contexts) -> None:
        voice = channel.voice
        voice.invalidate(Event(voice.name, *subject))
        if voice.settle is None or not self._listeners:
            self._relay(channel, subject, contexts)
            return
        task = asyncio.get_running_loop().create_task(
            self._relay_later(voice.settle, channel, subject, contexts), name="relay"
        )
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)

    async def _relay_later(
        self,
        settle: Callable[[], Awaitable[object]],
        channel: _Channel,
        subject: _Subject,
        contexts: Contexts,
    ) -> None:
        """Tell whoever listens once the other processes know, or do not answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TELL_SECONDS):
                await settle()
        self._relay(channel, subject, contexts)

    def _relay(self, channel: _Channel, subject: _Subject, contexts: Contexts) -> None:
        """Tell whoever listens; of a gap all that may have been missed."""
        change, uri = subject
        for context in channel.heard_in(contexts):
            if change is not Change.RESOURCE:
                for listener in context.lists:
                    listener.tell(None)
            if change is not Change.LIST:
                _relay_uri(channel.voice.mapping, context, uri)

    # Listeners.

    def has_room(self, wanted: Wanted) -> bool:
        """Whether one more may want all this."""
        return self._weight + _weight(wanted) <= MAX_WEIGHT

    async def offered(self, wanted: Wanted, caller: Caller) -> Wanted:
        """What of a wish can be granted: what upstreams tell of, and this caller may see.

        An upstream that is still unknown after `KNOW_SECONDS` counts as one that tells nothing.
        """
        routes = self._routes(wanted, caller)
        asked = {name: self._channels[name].voice for name in routes}
        seen = [channel.voice for channel in self._seen_by(caller)]
        if wanted.lists and not any((voice.offers() or _NOTHING).lists for voice in seen):
            asked |= {voice.name: voice for voice in seen}
        unknown = [voice for voice in asked.values() if voice.offers() is None]
        if unknown:
            with suppress(TimeoutError):
                async with asyncio.timeout(KNOW_SECONDS):
                    await asyncio.gather(*(voice.know(caller) for voice in unknown), return_exceptions=True)
        return Wanted(
            wanted.lists and any((voice.offers() or _NOTHING).lists for voice in seen),
            frozenset(
                uri
                for name, spellings in routes.items()
                if (asked[name].offers() or _NOTHING).resources
                for spelt in spellings.values()
                for uri in spelt
            ),
        )

    def knows(self, uri: str) -> bool:
        """Whether an upstream has the prefix of this URI."""
        return self._router.route(uri) is not None

    def open(self, wanted: Wanted, caller: Caller, wake: Callable[[], None]) -> Listener:
        """Begin to listen; the arguments are those of `Listener`."""
        listener = Listener(wanted, caller, wake)
        self._weight += _weight(wanted)
        self._join(listener)
        return listener

    def close(self, listener: Listener) -> None:
        """End it, if it has not ended; what nobody else wants of its upstreams is wanted no more."""
        if listener in self._listeners:
            self._leave(listener)
            self._weight -= _weight(listener.wanted)

    async def end(self) -> None:
        """Let all who listen know that nothing will be told any more."""
        for listener in tuple(self._listeners):
            self.close(listener)
            listener.end()
        self._tell_wishes()
        for task in tuple(self._relays):
            task.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def change(self, listener: Listener, wanted: Wanted) -> None:
        """Let it want something else from now on."""
        self._leave(listener)
        self._weight += _weight(wanted) - _weight(listener.wanted)
        listener.become(wanted)
        self._join(listener)

    def _join(self, listener: Listener) -> None:
        routes = self._routes(listener.wanted, listener.caller)
        parts: list[_Part] = []
        for channel in self._seen_by(listener.caller):
            spellings = routes.get(channel.voice.name, {})
            if not spellings and not listener.wanted.lists:
                continue
            partition = channel.voice.partition(listener.caller)
            context = channel.contexts.get(partition)
            if context is None:
                context = channel.contexts[partition] = _Context(listener.caller)
            context.join(listener, spellings)
            parts.append((channel, partition, spellings))
        self._listeners[listener] = tuple(parts)
        self._wishes_changed(parts)

    def _leave(self, listener: Listener) -> None:
        parts = self._listeners.pop(listener)
        for channel, partition, spellings in parts:
            channel.contexts[partition].leave(listener, spellings)
        self._wishes_changed(parts)

    def _routes(self, wanted: Wanted, caller: Caller) -> dict[str, Spellings]:
        routes = routed(wanted.uris, self._router.route)
        if caller.upstreams is not None:
            routes = {name: found for name, found in routes.items() if name in caller.upstreams}
        return routes

    def _seen_by(self, caller: Caller) -> Iterable[_Channel]:
        seen = caller.upstreams
        return [one for name, one in self._channels.items() if seen is None or name in seen]

    # What upstreams are told.

    def _wishes_changed(self, parts: Iterable[_Part]) -> None:
        for channel, partition, _ in parts:
            if not self._dirty:
                asyncio.get_running_loop().call_soon(self._tell_wishes)
            self._dirty[channel, partition] = None

    def _tell_wishes(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for channel, partition in dirty:
            context = channel.contexts[partition]
            wanted = context.wanted
            if wanted != context.told:
                context.told = wanted
                channel.voice.want(context.caller, wanted)
            if not wanted:
                del channel.contexts[partition]


def _relay_uri(mapping: Mapping, context: _Context, uri: str | None) -> None:
    """Tell of one resource whoever wants it or what it is a part of, or of all that anybody wants."""
    for native in context.uris if uri is None else concerned(uri, context.uris):
        part = None if uri is None or native == uri else mapping.public(uri)
        for listener, spelt in context.uris[native].items():
            for each in spelt:
                listener.tell(each, part)


def _weight(wanted: Wanted) -> int:
    return sum(map(len, wanted.uris)) + _EACH * len(wanted.uris)
