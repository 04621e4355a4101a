"""The other replicas, as far as one process deals with them: changes told and heard, flights led and awaited.

One of these serves all upstreams of a process.  It owns the tasks that the Redis tier needs: one listens, one
writes changes and finds out whether Redis is back, one makes leases last while their flights go on.

Redis is trusted with an upstream only when it has been told every change of that upstream (`ready`).  A
change waits in the outbox from the moment it is declared, so no look-up after it can bring back what was
before; what was written or heard lately is written again whenever Redis may have become another one.

What may not come in: entries and answers (that is `shared`); Redis' client.

Hazards:
- A change is told to others only after it was written; otherwise they would find the old answer again.
- A waiter must be on the list before it learns that there is something to wait for.
- What is published by one process is heard in its order: who answers has heard all that was said before.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from secrets import token_bytes
from typing import Any, Final

import msgspec

from mcp_federator.breaker import State
from mcp_federator.cache import notice as notices
from mcp_federator.cache.channel import Channel
from mcp_federator.cache.envelope import RANDOM_BYTES
from mcp_federator.cache.names import RESOURCES, Names
from mcp_federator.cache.notice import Asked, Heard, Kind, Landed, Notice, Told, Verdict
from mcp_federator.cache.outbox import Outbox, Waiting
from mcp_federator.cache.redis_store import Command, RedisStore
from mcp_federator.cache.scripts import HOLD, LEFT, TURN
from mcp_federator.federation.listen import reach
from mcp_federator.model import Method

LEASE: Final = 1.0
"""Seconds after which a flight whose leader died may be led by another; less than anyone waits."""

_HOLD_EVERY: Final = LEASE / 4
# Three tries before a lease ends.

_BATCH: Final = 100
_LOOK_EVERY: Final = 0.1
_REST: Final = 0.5
_MAX_TASKS: Final = 1000
_LANDING: Final = "mcp-federator redis landing"

_log = logging.getLogger(__name__)


class Waiter:
    """Somebody who waits for flights of others."""

    __slots__ = ("_arrived", "_verdicts")

    def __init__(self) -> None:
        self._verdicts: dict[bytes, Verdict] = {}
        self._arrived = asyncio.Event()

    def tell(self, lane: bytes, verdict: Verdict) -> None:
        """A flight in this lane has ended."""
        self._verdicts[lane] = verdict
        self._arrived.set()

    async def wait(self, lane: bytes, seconds: float) -> Verdict | None:
        """How the flight in a lane ended, or None if nothing was heard of it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while lane not in self._verdicts and (left := end - loop.time()) > 0:
            self._arrived.clear()
            try:
                async with asyncio.timeout(left):
                    await self._arrived.wait()
            except TimeoutError:
                break
        return self._verdicts.pop(lane, None)


class _Answers:
    """How many have answered a question."""

    def __init__(self) -> None:
        self.count = 0
        self._more = asyncio.Event()

    def add(self) -> None:
        self.count += 1
        self._more.set()

    async def come(self, count: int) -> None:
        """Wait until so many have."""
        while self.count < count:
            self._more.clear()
            await self._more.wait()


class Member(msgspec.Struct, frozen=True, eq=False):
    """One upstream's part.

    Attributes:
        names: the upstream's.
        hear: is handed what another replica declared.
        hearing: is told when the channel went (False) and when it came back (True): changes may have been
            missed then.
    """

    names: Names
    hear: Callable[[Notice], None]
    hearing: Callable[[bool], None]


class Replicas:
    """See above.

    Args:
        store: how Redis is reached.
        key_prefix: what all our keys begin with, and the channel.
        clock: seconds, never backwards.
    """

    def __init__(self, store: RedisStore, *, key_prefix: str, clock: Callable[[], float]) -> None:
        self.store = store
        self.key_prefix = key_prefix
        self.channel_name = f"{key_prefix}channel".encode()
        self._clock = clock
        self._id = token_bytes(RANDOM_BYTES)
        self._outbox = Outbox()
        self._members: dict[str, list[Member]] = {}
        self._names: dict[str, Names] = {}
        self._number = 0
        self._answers: dict[int, _Answers] = {}
        self._others = 0
        self._waiters: dict[bytes, set[Waiter]] = {}
        self._held: dict[bytes, tuple[bytes, float]] = {}
        self._work = asyncio.Event()
        self._holding = asyncio.Event()
        self._flushing: asyncio.Task[bool] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self.channel = Channel(self._subscribe, hear=self._hear, changed=self._turned, clock=clock)
        store.on_trouble(self._distrust)

    def start(self) -> None:
        """Begin to listen, to write and to hold."""
        for name, run in (("channel", self.channel.run), ("changes", self._keep), ("leases", self._hold)):
            self._spawn(run(), f"mcp-federator redis {name}")

    async def close(self) -> None:
        """Write what waits, once, and let go of everything."""
        if self._outbox and self.store.state is State.CLOSED:
            await self._flush()
        # Those who wait for flights of ours need not wait until their leases end.
        landing = [task for task in self._tasks if task.get_name() == _LANDING]
        await asyncio.gather(*landing, return_exceptions=True)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.store.close()

    # Upstreams.

    def join(self, member: Member) -> None:
        """Take part for an upstream, beside whoever does already: what is replaced goes on a while."""
        # Names outlast their members for as long as a change of theirs may have to be written.
        self._names = {
            tag: names
            for tag, names in self._names.items()
            if tag in self._members or self._outbox.remembers(tag)
        }
        self._names[member.names.tag] = member.names
        self._members.setdefault(member.names.tag, []).append(member)

    def leave(self, member: Member) -> None:
        """Take part no longer.  Whoever has joined under the same names stays."""
        members = self._members.get(member.names.tag, [])
        if member in members:
            members.remove(member)
        if not members:
            self._members.pop(member.names.tag, None)

    def declare(self, names: Names, notice: Notice) -> None:
        """A change: written in Redis, then told to the others, as soon as may be."""
        self._outbox.put(names.tag, notice, self._clock())
        self._work.set()

    async def tell_private(self, names: Names, method: Method, ms: int) -> None:
        """A list has a private page: noted for so long, and told; what is lost of it is told again."""
        if await self.store.write("private", [("SET", names.private_mark(method), b"1", "PX", ms)]):
            told = Told(self._id, names.tag, notices.PRIVATE[method])
            await self.store.publish(self.channel_name, [notices.write(told)])

    async def private_for(self, names: Names, method: Method) -> float:
        """Seconds for which a list is known to be private, none where it is not."""
        left = await self.store.run(LEFT, (names.private_mark(method),), ())
        return max(left or 0, 0) / 1000

    async def ready(self, names: Names) -> bool:
        """Whether Redis may be asked about an upstream; waits for its changes to be written, not for long."""
        while self.store.state is State.CLOSED:
            if not self._outbox.waits(names.tag):
                return True
            if not await self._flush():
                return False
        return False

    async def tell(self) -> bool:
        """Write and tell what waits, now; whether all of it was."""
        return self.store.state is State.CLOSED and await self._flush()

    async def settle(self) -> bool:
        """Tell what waits, and wait until the others have heard it; the caller is not to wait for ever.

        False where it could not be told.
        """
        if not await self.tell():
            return False
        self._number += 1
        number, answers = self._number, _Answers()
        self._answers[number] = answers
        try:
            reached = await self.store.reach(self.channel_name, notices.write(Asked(self._id, number)))
            # We hear ourselves.  A cluster does not count all: as many as answered before will answer.
            await answers.come(max(reached - self.channel.up, self._others))
        finally:
            del self._answers[number]
            self._others = answers.count
        return True

    @property
    def untold(self) -> int:
        """Changes that wait to be written."""
        return len(self._outbox)

    # Flights.

    @contextmanager
    def waiting(self, *lanes: bytes) -> Iterator[Waiter]:
        """Somebody who hears of flights in these lanes until the end of the block."""
        waiter = Waiter()
        for lane in lanes:
            self._waiters.setdefault(lane, set()).add(waiter)
        try:
            yield waiter
        finally:
            for lane in lanes:
                waiters = self._waiters.get(lane)
                if waiters is not None:
                    waiters.discard(waiter)
                    if not waiters:
                        del self._waiters[lane]

    def hold(self, lane: bytes, token: bytes) -> None:
        """Make a lease last until it is let go."""
        self._held[token] = (lane, self._clock())
        self._holding.set()

    def let_go(self, token: bytes) -> None:
        """A lease need not last any more."""
        self._held.pop(token, None)

    def later(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something that nobody waits for; not at all if too much of that is under way."""
        if len(self._tasks) < _MAX_TASKS:
            self._spawn(work, _LANDING)
        else:
            work.close()

    # What the tasks do.

    async def _subscribe(self) -> Any:
        return await self.store.subscribe(self.channel_name)

    async def _keep(self) -> None:
        while True:
            if self.store.state is not State.CLOSED:
                await asyncio.sleep(_LOOK_EVERY)
                await self.store.probe()
            elif not self._outbox:
                self._work.clear()
                await self._work.wait()
            elif not await self._flush():
                await asyncio.sleep(_REST)

    async def _hold(self) -> None:
        while True:
            await asyncio.sleep(_HOLD_EVERY)
            if not self._held:
                self._holding.clear()
                await self._holding.wait()
                continue
            before = self._clock() - _HOLD_EVERY / 2
            due = [(token, lane) for token, (lane, at) in self._held.items() if at <= before]
            lease = int(LEASE * 1000)
            kept = await asyncio.gather(
                *(self.store.run(HOLD, (lane,), (token, lease)) for token, lane in due)
            )
            for (token, _), still_ours in zip(due, kept, strict=True):
                if still_ours == 0:
                    self.let_go(token)

    async def _flush(self) -> bool:
        task = self._flushing
        if task is None or task.done():
            task = self._flushing = self._spawn(self._write(), "mcp-federator redis flush")
        await asyncio.wait((task,))
        return not task.cancelled() and task.result()

    async def _write(self) -> bool:
        while batch := self._outbox.batch(_BATCH):
            commands = dict.fromkeys(command for one in batch for command in self._commands(one))
            written = await self.store.write("invalidate", list(commands))
            if written is False:
                # Something else stands under a key of ours.  Common values can be deleted whatever they are.
                tags = {one.upstream for one in batch}
                gone = [("DEL", key) for tag in tags for key in self._names[tag].commons()]
                written = await self.store.write("invalidate", gone)
            told = [self._told(one) for one in batch if one.tell]
            if not written or (told and not await self.store.publish(self.channel_name, told)):
                return False
            self._outbox.written(batch)
        return True

    def _commands(self, one: Waiting) -> Iterator[Command]:
        names = self._names[one.upstream]
        kind, uri = one.notice.kind, one.notice.uri
        reached = reach(uri) if uri is not None else None
        if kind is Kind.RESOURCE and reached is None:
            kind = Kind.RESOURCES
        match kind:
            case Kind.RESOURCE:
                yield from (("DEL", names.generation_of(each)) for each in sorted(reached or ()))
                yield from (("HDEL", key, "any") for key in names.commons())
            case Kind.RESOURCES:
                yield from (("HDEL", key, RESOURCES, "any") for key in names.commons())
            case Kind.LIST:
                yield ("DEL", names.generation_of_list(Method.LIST))
            case Kind.TEMPLATES:
                yield ("DEL", names.generation_of_list(Method.TEMPLATES))
            case Kind.GAP:
                random = token_bytes(RANDOM_BYTES)
                yield from (("EVAL", TURN.text, 1, key, random) for key in names.commons())
            case Kind.ALL:
                yield from (("DEL", key) for key in names.commons())
            case Kind.PRIVATE_LIST | Kind.PRIVATE_TEMPLATES:
                pass

    def _told(self, one: Waiting) -> bytes:
        return notices.write(Told(self._id, one.upstream, one.notice.kind, one.notice.uri))

    def _hear(self, payload: bytes) -> None:
        match notices.read(payload):
            case Landed(lane, verdict):
                for waiter in self._waiters.get(lane, ()):
                    waiter.tell(lane, verdict)
            case Asked(by, number) if by != self._id:
                # All that came before is done.
                heard_all = notices.write(Heard(by, number))
                self.later(self.store.publish(self.channel_name, [heard_all]))
            case Heard(by, number) if by == self._id and number in self._answers:
                self._answers[number].add()
            case Told(by, upstream, kind, uri) if by != self._id:
                heard = Notice(kind, uri)
                if upstream in self._members and kind not in notices.PRIVATE.values():
                    self._outbox.hear(upstream, heard, self._clock())
                for member in self._members.get(upstream, ()):
                    member.hear(heard)

    def _turned(self, up: bool) -> None:
        self._distrust()
        self.later(self.store.renew())
        if up and self.channel.restarted:
            # It may have read what it holds from a disk, as it was long before `outbox.MEMORY`.
            for tag in self._members:
                self._outbox.put(tag, notices.ALL, self._clock(), tell=False)
        for members in self._members.values():
            for member in members:
                member.hearing(up)

    def _distrust(self) -> None:
        self._outbox.again(self._clock())
        self._work.set()

    def _spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            # A fault in our own house: whoever relied on the task finds Redis less of use, and no worse.
            _log.error("%s ended", task.get_name(), exc_info=problem)
