"""The cache before one upstream: answer from a copy, or let one load answer all who ask the same.

The order of a look-up (design, section 6): a fresh public copy; a fresh copy of the caller's partition; then
a flight, and what that does (`load`): memory once more, Redis, the upstream.  `peek` is the first two and has
no way to wait.

Who may take what a flight brings.  Until an answer is known to be public, each partition flies alone.  Once
it is, all share a flight, and a follower from another partition than the leader's takes only a complete
public answer, or a failure that meets everyone alike.  Anything else was said to the leader: the follower
flies again, in his own partition's lane.

What may not come in: merging, rewriting, retries, the protocol's bytes.

Hazards:
- Between a look and a start nothing may be awaited.
- An answer is judged by the generation that was read before its fetch, never by the present one.
- An error that a flight brings is one object for all its waiters: nobody may change it.
- Each query is counted exactly once, whichever way it ends.
"""

from collections.abc import Callable

from msgspec.structs import replace

from mcp_federator.cache import freshness
from mcp_federator.cache import notice as notices
from mcp_federator.cache.copies import Copies, Found, Place
from mcp_federator.cache.entry import Entry
from mcp_federator.cache.flight import Flight, Flights, Grounded
from mcp_federator.cache.key import Key
from mcp_federator.cache.load import Landing, Loads, bare
from mcp_federator.cache.memory_store import MemoryStore
from mcp_federator.cache.notice import Notice
from mcp_federator.cache.redis_tier import RedisTier
from mcp_federator.cache.watched import Watched
from mcp_federator.config import Cache
from mcp_federator.errors import McpError, Reason, UpstreamFailure
from mcp_federator.federation.partition import Credentials
from mcp_federator.metrics import Metrics
from mcp_federator.model import (
    Answer,
    Caller,
    Change,
    Event,
    Hint,
    Method,
    Outcome,
    Query,
    Scope,
    Served,
    Source,
    Tier,
)

REFRESH_INTERVAL = 1.0
"""Seconds in which one copy is refreshed at most once, however many ask for it."""

_MAX_REFRESHED = 10_000

_NOT_ASKED = {Reason.UNREACHABLE: "breaker", Reason.OVERLOADED: "overloaded"}

# Members cost more through their class than as globals, and these are used on each hit.
_DISCOVER = Method.DISCOVER
_UNSHARED = frozenset({Method.DISCOVER, Method.COMPLETE})
_HIT, _STALE = Outcome.HIT, Outcome.STALE
_MEMORY, _NOWHERE = Tier.MEMORY, Tier.NONE


class ReadThrough(Source):
    """A `Source` before a `Source`: the same verb, with a memory.

    Args:
        source: the upstream; answers in public URIs with a normalised hint.
        name: the upstream's, for metrics and failures.
        identity: a digest of the upstream's name, place and mapping, and of what else makes its answers.
        credentials: tells partitions and variants apart.
        cache: `max_ttl` and `stale_if_error` are used here.
        memory: the tier in this process, shared by all upstreams.
        metrics: where outcomes are counted.
        clock: seconds, never backwards; the same as the store's.
        redis: the tier that all replicas share; None is none.
        context: see `Shared`.
        heard: is told of changes that other replicas declared, once they hold here.
        private: is told of lists that other replicas know to be private, for how many seconds at least.
    """

    def __init__(
        self,
        source: Source,
        *,
        name: str,
        identity: bytes,
        credentials: Credentials,
        cache: Cache,
        memory: MemoryStore,
        metrics: Metrics,
        clock: Callable[[], float],
        redis: RedisTier | None = None,
        context: bytes = b"",
        heard: Callable[[Event], None] = lambda _: None,
        private: Callable[[Method, float], None] = lambda *_: None,
    ) -> None:
        self._source = source
        self._name = name
        self._names = (name,)
        self._alone = Served(Outcome.BYPASS, upstreams=self._names)
        self._copies = Copies(
            identity=identity, credentials=credentials, cache=cache, memory=memory, clock=clock
        )
        self._generations = self._copies.generations
        self._max_ttl = cache.max_ttl
        self._metrics = metrics
        self._clock = clock
        self._flights: Flights[Landing] = Flights()
        self._refreshes = _Refreshes()
        self._heard = heard
        self._holds = memory.holds
        self._watched: Watched | None = None
        self._uses: dict[str, int] = {}
        self._shared = None
        if redis is not None:
            self._shared = redis.share(
                name,
                identity=identity,
                context=context,
                cache=cache,
                generations=self._generations,
                heard=self._hear,
                private=private,
            )
        self._loads = Loads(source, self._copies, self._shared)

    def peek(self, query: Query, caller: Caller) -> Answer | None:
        """A fresh copy out of memory, counted as a hit, or None, counted as nothing."""
        if query.refresh or query.alone or query.retry is not None or query.method is _DISCOVER:
            return None
        found = self._copies.find(self._copies.place(query, caller))
        return None if found is None else self._serve(query, found)

    def still(self, query: Query, caller: Caller, copy: Answer) -> int | None:
        """What is left of a peeked copy in ms, counted as a hit; None, uncounted, if that is another one."""
        found = self._copies.find(self._copies.place(query, caller))
        if found is None or not found.entry.gave(copy):
            return None
        self._metrics.cache_request(self._name, query.method, found.entry.scope, _HIT, _MEMORY)
        return freshness.remaining_ms(found.left)

    async def fetch(self, query: Query, caller: Caller) -> Answer:
        """Answer from a copy, from a flight, or from the upstream.

        `query` has the native URI or the upstream's own cursor.  `ttl_ms` of the answer is the life that
        remains; `served` says how the answer came about.

        Raises:
            McpError: the upstream's answer is an error.
            UpstreamFailure: the upstream gave none, and no copy may stand in.
        """
        if not _is_shared(query):
            return await self._fetch_alone(query, caller)
        place = self._copies.place(query, caller)
        own_lane = False
        while True:
            found = self._copies.find(place)
            refresh = query.refresh and self._may_refresh(place, found)
            if found is not None and not refresh:
                return self._serve(query, found)
            flight, led = self._board(place, caller, own_lane=own_lane, refresh=refresh)
            landing = await self._wait(query, flight, led=led)
            if landing.look_again:
                continue
            if flight.partition == place.partition or landing.for_anyone:
                break
            own_lane = True
        outcome = Outcome.MISS if led else Outcome.COALESCED
        if landing.entry is not None:
            # Without a copy the answer would have been fetched in any case.
            refreshed = refresh and led and (found is not None or landing.spare is not None)
            return self._share(query, landing, landing.entry, outcome, refreshed=refreshed)
        if landing.error is not None:
            spare = landing.spare
            if spare is not None and spare.scope is not Scope.PUBLIC and flight.partition != place.partition:
                spare = None
            return self._stand_in(place, landing.error, spare, outcome)
        return await self._fetch_alone(replace(query, alone=True), caller)

    def invalidate(self, event: Event, reason: str = "") -> None:
        """Declare entries gone, or stale for a gap; `reason` is the metric's word, else the change's."""
        match event.change:
            case Change.GAP:
                self._generations.gap(self._clock())
            case Change.LIST:
                self._generations.change_lists((Method.LIST, Method.TEMPLATES))
            case Change.RESOURCE if event.uri is not None:
                self._generations.change_resource(event.uri)
            case Change.RESOURCE:
                self._generations.change_all_resources()
        if self._shared is not None:
            self._shared.invalidate(event)
        self._metrics.invalidation(self._name, reason or event.change.value)

    def drop_pages(self, method: Method) -> None:
        """Forget all pages of one list, for every caller: they do not belong together any more."""
        self._generations.change_lists((method,))
        if self._shared is not None:
            self._shared.drop_pages(method)

    def tell_private(self, method: Method, seconds: float) -> None:
        """Tell the other replicas that a list has a private page, which counts for so many seconds."""
        if self._shared is not None:
            self._shared.tell_private(method, seconds)

    def adopt(self, cache: Cache) -> None:
        """Keep answers that come from now on by these settings; the memory's size is the store's."""
        self._max_ttl = cache.max_ttl
        self._copies.adopt(cache)
        if self._shared is not None:
            self._shared.adopt(cache.max_ttl, cache.stale_if_error)

    def watch(self, offered: Callable[[], bool], watch: Callable[[frozenset[str]], None]) -> None:
        """Say from now on what to listen to, so that what is kept is never old; arguments as of `Watched`."""
        self._watched = Watched(self._holds, offered, watch)
        self._uses = self._watched.uses
        self._copies.kept = self._watched.kept

    def close(self) -> None:
        """Cancel what is under way; whoever waits for it gets a failure."""
        self._flights.close()
        if self._watched is not None:
            self._watched.close()
        if self._shared is not None:
            self._shared.close()

    def _hear(self, notice: Notice) -> None:
        """Another replica has declared a change, and it holds here by now."""
        for event in notices.events(self._name, notice):
            self._metrics.invalidation(self._name, "replica")
            self._heard(event)

    # Flights.

    def _board(
        self, place: Place, caller: Caller, *, own_lane: bool, refresh: bool
    ) -> tuple[Flight[Landing], bool]:
        """The flight to wait for, and whether this query leads it."""
        stamp = self._generations.stamp(place.query)
        # Whoever asks after a change must not be given what was asked for before it.
        shared = (place.public, None, stamp.generation, stamp.epoch)
        own = (place.public, place.partition, stamp.generation, stamp.epoch)
        flight = None if own_lane else self._flights.running(shared)
        # Where no credential goes along, all are of one partition.
        if flight is None and place.partition:
            flight = self._flights.running(own)
        if flight is not None:
            return flight, False
        lane = shared if not own_lane and (not place.partition or self._copies.is_public(place)) else own
        load = self._loads.load(place, caller, stamp, refresh=refresh)
        return self._flights.start(lane, place.partition, load), True

    async def _wait(self, query: Query, flight: Flight[Landing], *, led: bool) -> Landing:
        try:
            return await self._flights.wait(flight)
        except Grounded:
            return Landing(error=UpstreamFailure(self._name, Reason.UNREACHABLE, "cancelled"))
        except BaseException:
            # The caller has gone, or there is a fault in our own house: a query all the same.
            self._count(query, Scope.PRIVATE, Outcome.MISS if led else Outcome.COALESCED)
            raise

    # Answers.

    def _serve(
        self, query: Query, found: Found, failure: UpstreamFailure | None = None, tier: Tier = _MEMORY
    ) -> Answer:
        """A copy; where it stands in for a failure it may be a stale one."""
        entry, left = found.entry, found.left
        uses = self._uses
        if uses and (uri := query.uri) in uses:
            uses[uri] += 1
        outcome = _HIT if left > 0 else _STALE
        self._metrics.cache_request(self._name, query.method, entry.scope, outcome, tier)
        detail = "" if failure is None else _detail(failure)
        # Positional, as in `Entry.answer`.
        served = Served(outcome, tier, freshness.fresh_for(left), left <= 0, detail, self._names)
        return entry.answer(freshness.remaining_ms(left), served)

    def _share(
        self, query: Query, landing: Landing, entry: Entry, outcome: Outcome, *, refreshed: bool
    ) -> Answer:
        """What a flight brought, as one of its waiters gets it; all of them, if it was a copy, have a hit."""
        # Of an answer that was overtaken by a change, no life is left to tell.
        left = max(self._copies.life(entry, query), 0.0)
        if landing.tier is _NOWHERE:
            self._count(query, entry.scope, outcome)
            served = Served(
                outcome,
                found_stale=landing.found_stale,
                stored=landing.stored,
                refreshed=refreshed,
                upstreams=self._names,
            )
        else:
            self._metrics.cache_request(self._name, query.method, entry.scope, _HIT, landing.tier)
            served = Served(_HIT, landing.tier, int(left), upstreams=self._names)
        return entry.answer(freshness.remaining_ms(left), served)

    def _stand_in(
        self, place: Place, error: McpError | UpstreamFailure, spare: Entry | None, outcome: Outcome
    ) -> Answer:
        """A copy instead of a failure, where the failure allows it and there is one; else the failure."""
        if isinstance(error, UpstreamFailure) and error.stale_ok:
            # Fresh, if it was a refresh that failed.
            found = self._copies.find(place, stale=True)
            left = freshness.GONE if spare is None else self._copies.life(spare, place.query)
            if spare is not None and left > (freshness.GONE if found is None else found.left):
                return self._serve(place.query, Found(spare, left), error, Tier.REDIS)
            if found is not None:
                return self._serve(place.query, found, error)
        self._count(place.query, Scope.PRIVATE, outcome)
        raise error.with_traceback(None)

    async def _fetch_alone(self, query: Query, caller: Caller) -> Answer:
        """Ask for this caller, past the cache: nothing is looked up, stored or shared."""
        self._count(query, Scope.PRIVATE, Outcome.BYPASS)
        try:
            answer = await self._source.fetch(query, caller)
        except (McpError, UpstreamFailure) as error:
            raise bare(error) from None
        if query.method is _DISCOVER:
            return replace(answer, served=self._alone)
        # The answer to a retry depends on what is in no key: nobody after us may keep it either.
        kept_ms = 0 if query.retry is not None else freshness.clamp(answer.hint.ttl_ms, self._max_ttl)
        return replace(answer, hint=Hint(kept_ms, Scope.PRIVATE), served=self._alone)

    def _may_refresh(self, place: Place, found: Found | None) -> bool:
        if found is None and self._shared is None:
            return False
        key = place.public if found is not None and found.entry.scope is Scope.PUBLIC else place.private
        return self._refreshes.allow(key, self._clock())

    def _count(self, query: Query, scope: Scope, outcome: Outcome) -> None:
        self._metrics.cache_request(self._name, query.method, scope, outcome, _NOWHERE)


class _Refreshes:
    """When copies were refreshed, for as long as that matters."""

    def __init__(self) -> None:
        self._at: dict[Key, float] = {}

    def allow(self, key: Key, now: float) -> bool:
        at = self._at
        # Keys stand in the order of their times.
        while at and now - at[oldest := next(iter(at))] >= REFRESH_INTERVAL:
            del at[oldest]
        if key in at or len(at) >= _MAX_REFRESHED:
            return False
        at[key] = now
        return True


def _is_shared(query: Query) -> bool:
    return query.retry is None and not query.alone and query.method not in _UNSHARED


def _detail(failure: UpstreamFailure) -> str:
    """Why a stale copy was served, in one word; all but the first say that nobody was asked."""
    return "stale-if-error" if failure.asked else _NOT_ASKED.get(failure.reason, "held")
