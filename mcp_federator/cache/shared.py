"""One upstream's answers in the tier that all replicas share.

    look = await shared.look(query, public, partition)
    if look is None:              Redis has no say: fly as if there were none
    elif look.found:              a fresh answer, with what is left of its life
    else:                         go upstream, then end `look.lease`, in each case:
        await shared.admit(look.lease, answer)    it is to be kept, if its hint gives it a life
        await shared.overrule(look.lease)         the upstream says something that is not kept
        await shared.land(look.lease)             it said nothing
        shared.abandon(look.lease)                whoever asked has gone

Between replicas there is at most one flight in a lane, as within a process: whoever finds nothing leads, and
the others wait for the word that it landed, `PATIENCE` at most.  What is kept they find then; if nothing was,
each goes upstream by itself, for the answer was the leader's.  Answers that may never be kept are remembered
as such for a while: nobody waits for another's flight only to fly after it.

Redis' generations judge only what is in Redis.  An answer found there gets, in memory, the stamp that was
read there before the look-up.

What may not come in: memory, the upstream, Redis' client.

Hazard: nothing here raises, whatever Redis says; and nothing that Redis says is believed before the envelope
says that it is ours, and what was asked for.
"""

from collections.abc import Callable
from hashlib import sha256
from math import inf
from secrets import token_bytes
from typing import Any, Final

import msgspec

from mcp_federator.aside import aside
from mcp_federator.cache import envelope, freshness
from mcp_federator.cache import notice as notices
from mcp_federator.cache.envelope import MARK, RANDOM_BYTES, Closure, Envelope, Flaw, Stamp
from mcp_federator.cache.generations import Generations
from mcp_federator.cache.key import Key, private
from mcp_federator.cache.names import Names, Site
from mcp_federator.cache.notice import Kind, Landed, Notice, Verdict
from mcp_federator.cache.replicas import LEASE, Member, Replicas
from mcp_federator.cache.scripts import LAND, LOOK
from mcp_federator.cache.unkept import Unkept
from mcp_federator.cache.worth import Found, better, worth
from mcp_federator.model import Answer, Event, Method, Query, Scope

PATIENCE: Final = 3.0
"""Seconds anyone waits for another replica's flight at most."""

POLL: Final = 0.1
"""Seconds after which a waiter looks by itself: a word may be missed, and a leader may die."""

_LEASE_MS: Final = int(LEASE * 1000)
_BIRTH_MS: Final = 300_000
# How long a new generation lasts; longer than any fetch.  An entry that names it makes it last on.
_NO_MARK: Final = b"-" * len(MARK)
# No envelope begins with it: nothing is found then.


class Lease(msgspec.Struct, frozen=True):
    """What was read before a fetch, and whether others wait for it.

    Attributes:
        site, public, partition: whose fetch it is.
        stamp: see `envelope.Stamp`.
        lane: the flight's; meaningless without a token.
        token: `b""` where no other replica waits.
    """

    site: Site
    public: Key
    partition: bytes
    stamp: Stamp
    lane: bytes = b""
    token: bytes = b""


class Look(msgspec.Struct, frozen=True):
    """What a look-up gave: a fresh answer, or else the lease to fetch one.

    `spare` may stand in if that fails: a stale answer, or a fresh one that was not to be used.
    """

    found: Found | None
    spare: Found | None = None
    lease: Lease | None = None


class Shared:
    """One upstream.

    Args:
        replicas: the others.
        names: the upstream's.
        closure: makes entries ours.
        generations: the upstream's in this process; changes that others declare are declared here too.
        max_ttl, stale_window: seconds, as configured.
        max_value_bytes: larger entries are not written.
        clock: seconds, never backwards.
        flawed: is told what was wrong with an entry.
        heard: is told what others declared, after `generations`.
        private: is told of lists that others know to be private, and for how many seconds at least.
        outage_freshness: seconds, as configured.
        context: a digest of what we send of our own that says who asks; `b""` where nothing does.  It splits
            private answers as a caller's partition does, for another process may send something else.
    """

    def __init__(
        self,
        replicas: Replicas,
        *,
        names: Names,
        closure: Closure,
        generations: Generations,
        max_ttl: float,
        stale_window: float,
        max_value_bytes: int,
        clock: Callable[[], float],
        flawed: Callable[[Flaw], None] = lambda _: None,
        heard: Callable[[Notice], None] = lambda _: None,
        private: Callable[[Method, float], None] = lambda *_: None,
        outage_freshness: float = inf,
        context: bytes = b"",
    ) -> None:
        self._replicas = replicas
        self._store = replicas.store
        self._names = names
        self._closure = closure
        self._generations = generations
        self._max_ttl = max_ttl
        self._window_ms = int(stale_window * 1000)
        self._max_value_bytes = max_value_bytes
        self._clock = clock
        self._flawed = flawed
        self._heard = heard
        self._private = private
        self._outage_freshness = outage_freshness
        self._context = context
        self._unkept = Unkept(clock)
        self._member = Member(names, self._hear, self._hearing)
        replicas.join(self._member)
        self._trust(up=replicas.channel.up)
        if replicas.channel.up:
            replicas.later(self._learn())

    def adopt(self, max_ttl: float, stale_window: float) -> None:
        """Keep answers that come from now on by these settings."""
        self._max_ttl = max_ttl
        self._window_ms = int(stale_window * 1000)

    def close(self) -> None:
        """Take part no longer."""
        self._replicas.leave(self._member)

    # Answers.

    async def look(
        self, query: Query, public: Key, partition: bytes, *, lead: bool = True, refresh: bool = False
    ) -> Look | None:
        """A fresh answer, or the lease to fetch one; None where Redis has no say.

        Waits while another replica fetches it, unless `lead` is off.  With `refresh` what is kept is no more
        than a spare, and nobody is waited for.
        """
        if not await self._replicas.ready(self._names):
            return None
        if self._context:
            partition = sha256(self._context + partition).digest()
        site = self._names.site(query, public, partition)
        if refresh or not lead or self._unkept.knows(site.shared_lane) or self._unkept.knows(site.own_lane):
            return await self._look(site, public, partition, refresh=refresh)
        return await self._look_or_wait(site, public, partition)

    async def _look_or_wait(self, site: Site, public: Key, partition: bytes) -> Look | None:
        """Look until there is a fresh answer, or a lease, or enough time has passed."""
        with self._replicas.waiting(site.shared_lane, site.own_lane) as waiter:
            end = self._clock() + PATIENCE
            mark, own = MARK, False
            spare: Found | None = None
            first = True
            while True:
                look = await self._look(site, public, partition, mark=mark, lead=True, own=own, stale=first)
                if look is None or look.lease is None:
                    return look
                spare = look.spare or spare
                lease = look.lease
                if lease.token:
                    self._replicas.hold(lease.lane, lease.token)
                    return Look(None, spare, lease)
                if not lease.lane:
                    # An entry that Redis took for a fresh one, and we do not: without it.
                    mark = _NO_MARK
                    continue
                first = False
                left = end - self._clock()
                verdict = await waiter.wait(lease.lane, min(POLL, left)) if left > 0 else None
                mark = MARK
                alone = verdict is Verdict.UNKEPT or verdict is Verdict.FAILED
                if verdict is Verdict.UNKEPT:
                    self._unkept.note(lease.lane)
                if alone and not own and site.own_lane != lease.lane:
                    # It was the leader's answer; ours may still serve all who ask as we do.
                    own = True
                elif alone or self._clock() >= end:
                    return Look(None, spare, msgspec.structs.replace(lease, lane=b""))

    async def admit(self, lease: Lease, answer: Answer) -> bool:
        """End a flight with an answer to keep; false where it was not."""
        ttl_ms = freshness.clamp(answer.hint.ttl_ms, self._max_ttl)
        own = private(lease.public, lease.partition)
        is_public = answer.hint.scope is Scope.PUBLIC
        kept = b""
        if ttl_ms > 0:
            written = Envelope(
                key=lease.public if is_public else own,
                partition=b"" if is_public else lease.partition,
                scope=answer.hint.scope,
                stamp=lease.stamp,
                ttl_ms=ttl_ms,
                window_ms=self._window_ms,
                body=answer.body,
                next_cursor=answer.next_cursor,
                count=answer.count,
                extra=answer.extra,
                meta=answer.meta,
                uris=answer.uris,
            )
            size = len(answer.body)
            if size <= self._max_value_bytes:
                kept = await aside(size, lambda written: envelope.write(written, self._closure), written)
        if not kept or len(kept) > self._max_value_bytes:
            await self.overrule(lease)
            return False
        self._unkept.forget(lease.site.shared_lane)
        self._unkept.forget(lease.site.own_lane)
        target, other = lease.site.public, lease.site.own
        if not is_public:
            target, other = other, target
        outcome = await self._land(
            lease,
            "store",
            target,
            other,
            kept=kept,
            life_ms=ttl_ms + self._window_ms,
            any_resource=lease.stamp.any_resource if answer.uris else b"",
        )
        return bool(outcome == b"stored")

    async def overrule(self, lease: Lease, *, public: bool = True) -> None:
        """End a flight with an answer that is not kept; no older one may be served in its stead.

        Not `public`: it was said to this partition alone; what all may be given stays, and the next of them
        may well bring what can be kept.
        """
        site = lease.site
        if public:
            self._unkept.note(lease.lane or site.own_lane)
            await self._land(lease, "drop", site.public, site.own, on_not=Verdict.UNKEPT)
        else:
            await self._land(lease, "drop", site.own, site.own)

    async def land(self, lease: Lease) -> None:
        """End a flight that brought no answer."""
        if lease.token:
            await self._land(lease, "keep", lease.site.public, lease.site.own)

    def abandon(self, lease: Lease) -> None:
        """End a flight whose askers have all gone; returns at once."""
        if lease.token:
            self._replicas.let_go(lease.token)
            self._replicas.later(self.land(lease))

    # Changes.

    def invalidate(self, event: Event) -> None:
        """Tell Redis and the other replicas; `generations` have been told."""
        for one in notices.notices(event):
            self._replicas.declare(self._names, one)

    def drop_pages(self, method: Method) -> None:
        """Forget all pages of one list, on every replica."""
        self._replicas.declare(self._names, notices.pages(method))

    def invalidate_all(self) -> None:
        """Forget everything of the upstream, on every replica."""
        self._replicas.declare(self._names, notices.ALL)

    def tell_private(self, method: Method, seconds: float) -> None:
        """A list has a private page, which counts for so long on every replica; returns at once."""
        self._replicas.later(self._replicas.tell_private(self._names, method, int(seconds * 1000)))

    async def _learn(self) -> None:
        """What was told of private lists while nobody listened here."""
        for method in notices.PRIVATE:
            seconds = await self._replicas.private_for(self._names, method)
            if seconds:
                self._private(method, seconds)

    def _hear(self, heard: Notice) -> None:
        known = self._generations
        match heard.kind:
            case Kind.RESOURCE if heard.uri is not None:
                known.change_resource(heard.uri)
            case Kind.LIST:
                known.change_lists((Method.LIST,))
            case Kind.TEMPLATES:
                known.change_lists((Method.TEMPLATES,))
            case Kind.GAP:
                # Another replica may have missed changes.  We hear the upstream ourselves.
                pass
            case Kind.RESOURCE | Kind.RESOURCES:
                known.change_all_resources()
            case Kind.ALL:
                known.change_all_resources()
                known.change_lists((Method.LIST, Method.TEMPLATES))
            case Kind.PRIVATE_LIST | Kind.PRIVATE_TEMPLATES:
                # For how long stands in Redis.
                self._replicas.later(self._learn())
        self._heard(heard)

    def _hearing(self, up: bool) -> None:
        self._trust(up=up)
        # What was told while nobody listened was missed.  Until it is known that somebody listens again, what
        # is kept is trusted for a while, so that an outage does not send everybody upstream at once.
        alive_at = self._replicas.channel.alive_at
        self._generations.gap(self._clock() if up else alive_at + self._outage_freshness)
        if up:
            self._replicas.later(self._learn())

    def _trust(self, *, up: bool) -> None:
        self._generations.trust = inf if up else self._outage_freshness

    # Redis.

    async def _look(
        self,
        site: Site,
        public: Key,
        partition: bytes,
        *,
        mark: bytes = MARK,
        lead: bool = False,
        own: bool = False,
        stale: bool = True,
        refresh: bool = False,
    ) -> Look | None:
        """One round trip.  Of the lease, a token says that we lead; a lane alone that another does."""
        keys = (
            site.common,
            site.generation,
            site.public,
            site.own,
            site.shared_lane,
            site.own_lane,
        )
        flags = ("1" if stale else "", "1" if own else "")
        chance = token_bytes(2 * RANDOM_BYTES)
        random, token = chance[:RANDOM_BYTES], chance[RANDOM_BYTES:] if lead else b""
        reply = await self._store.run(
            LOOK, keys, (mark, site.whole, random, _BIRTH_MS, token, _LEASE_MS, *flags)
        )
        if reply is None:
            return None
        randoms, ended, now, common, common_ms, mine, mine_ms, led = reply
        stamp = Stamp(*(randoms[at : at + RANDOM_BYTES] for at in range(0, len(randoms), RANDOM_BYTES)))
        if mark is _NO_MARK:
            common = mine = b""
        opened = await self._open(common, public, b"")
        if opened is not None and partition and opened.scope is not Scope.PUBLIC:
            # Under the public key a private answer may be given only where all share one partition.
            opened = None
        found = worth(opened, common_ms, stamp, ended, now)
        if found is None or found.left <= 0:
            opened = await self._open(mine, private(public, partition), partition)
            found = better(worth(opened, mine_ms, stamp, ended, now), found)
        if found is not None and found.left > 0 and not refresh:
            return Look(found)
        lane = site.own_lane if led.endswith(b"own") else site.shared_lane
        return Look(
            None,
            found,
            Lease(
                site,
                public,
                partition,
                stamp,
                lane if led else b"",
                token if led.startswith(b"lead") else b"",
            ),
        )

    async def _open(self, kept: bytes, key: Key, partition: bytes) -> Envelope | None:
        if not kept:
            return None
        read = await aside(len(kept), lambda kept: envelope.read(kept, key, partition, self._closure), kept)
        if isinstance(read, Flaw):
            self._flawed(read)
            return None
        return read

    async def _land(
        self,
        lease: Lease,
        act: str,
        target: bytes,
        other: bytes,
        *,
        kept: bytes = b"",
        life_ms: int = 0,
        any_resource: bytes = b"",
        on_not: Verdict = Verdict.FAILED,
    ) -> Any:
        site, stamp = lease.site, lease.stamp
        lane = lease.lane or site.own_lane
        said = [notices.write(Landed(lane, verdict)) for verdict in (Verdict.LOOK, on_not, Verdict.LOOK)]
        outcome = None
        if await self._replicas.ready(self._names):
            outcome = await self._store.run(
                LAND,
                (site.common, site.generation, target, other, lane),
                (
                    MARK,
                    site.whole,
                    stamp.generation,
                    stamp.whole,
                    any_resource,
                    stamp.epoch,
                    act,
                    kept,
                    life_ms,
                    lease.token,
                    self._replicas.channel_name,
                    *said,
                ),
            )
        if lease.token:
            self._replicas.let_go(lease.token)
        return outcome
