"""Replicas on a stage: each has all that a process has of the tier, over one Redis of the test's own."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from time import monotonic
from typing import Any, TypeVar

from mcp_federator.breaker import State
from mcp_federator.cache.envelope import Flaw
from mcp_federator.cache.generations import Generations
from mcp_federator.cache.key import Keys
from mcp_federator.cache.names import Names
from mcp_federator.cache.notice import Notice
from mcp_federator.cache.redis_store import TIMEOUT, RedisStore
from mcp_federator.cache.replicas import Replicas
from mcp_federator.cache.secrecy import Secrecy
from mcp_federator.cache.shared import Lease, Look, Shared
from mcp_federator.model import Answer, Change, Event, Hint, Method, Query, Scope

T = TypeVar("T")

IDENTITY = sha256(b"alpha").digest()
ALICE, BOB = b"a" * 32, b"b" * 32


def run(body: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(body)


def read(uri: str = "x://1") -> Query:
    return Query(Method.READ, uri=uri)


def page(cursor: str | None = None, method: Method = Method.LIST) -> Query:
    return Query(method, cursor=cursor)


def public(text: str = "text", ttl_ms: int = 60_000, **named: Any) -> Answer:
    return Answer(text.encode(), Hint(ttl_ms, Scope.PUBLIC), **named)


def mine(text: str = "text", ttl_ms: int = 60_000) -> Answer:
    return Answer(text.encode(), Hint(ttl_ms, Scope.PRIVATE))


def changed(uri: str | None = "x://1") -> Event:
    return Event("alpha", Change.RESOURCE, uri)


LIST_CHANGED = Event("alpha", Change.LIST)
GAP = Event("alpha", Change.GAP)


class Replica:
    """One process' share in the tier."""

    def __init__(
        self,
        url: str,
        *,
        identity: bytes = IDENTITY,
        key_prefix: str = "mcpf:",
        secrets: tuple[bytes, ...] = (b"secret",),
        encrypt: bool = True,
        stale_window: float = 300,
        max_value_bytes: int = 8 << 20,
        outage_freshness: float = 30,
        **store: Any,
    ) -> None:
        self.operations = Counter[tuple[str, str]]()
        self.flaws = Counter[Flaw]()
        self.heard = list[Notice]()
        self.private = dict[Method, float]()
        self.keys = Keys(identity)
        self.generations = Generations()
        self.names = Names(key_prefix, "alpha", identity)
        self.store = RedisStore(url, key_prefix=key_prefix, observe=self._observe, **store)
        self.replicas = Replicas(self.store, key_prefix=key_prefix, clock=monotonic)
        self.shared = Shared(
            self.replicas,
            names=self.names,
            closure=Secrecy(secrets, encrypt=encrypt),
            generations=self.generations,
            max_ttl=3600,
            stale_window=stale_window,
            max_value_bytes=max_value_bytes,
            clock=monotonic,
            flawed=lambda flaw: self.flaws.update([flaw]),
            heard=self.heard.append,
            private=self.private.__setitem__,
            outage_freshness=outage_freshness,
        )

    def _observe(self, operation: str, _seconds: float, fault: str) -> None:
        self.operations[operation, fault] += 1

    @property
    def tried(self) -> int:
        """Commands that were tried."""
        return sum(self.operations.values())

    @property
    def faults(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        for (_, fault), count in self.operations.items():
            if fault:
                counts[fault] += count
        return counts

    async def look(self, query: Query, partition: bytes = b"", **named: Any) -> Look | None:
        return await self.shared.look(query, self.keys.public(query), partition, **named)

    async def found(self, query: Query, partition: bytes = b"") -> bytes | None:
        """The body of a fresh answer; nobody is waited for, no lease is taken."""
        look = await self.look(query, partition, lead=False)
        return None if look is None or look.found is None else look.found.answer.body

    async def lease(self, query: Query, partition: bytes = b"", **named: Any) -> Lease:
        """The lease to fetch what is not there."""
        look = await self.look(query, partition, **named)
        assert look is not None
        assert look.found is None
        assert look.lease is not None
        return look.lease

    async def put(self, query: Query, answer: Answer, partition: bytes = b"") -> bool:
        """Look, find nothing, fetch and admit."""
        return await self.shared.admit(await self.lease(query, partition), answer)

    async def fetch(
        self, query: Query, upstream: Callable[[], Awaitable[Answer]], partition: bytes = b""
    ) -> str:
        """What a read-through makes of it."""
        look = await self.look(query, partition)
        if look is None or look.lease is None:
            found = None if look is None else look.found
            return (await upstream() if found is None else found.answer).body.decode()
        try:
            answer = await upstream()
        except BaseException:
            self.shared.abandon(look.lease)
            raise
        await self.shared.admit(look.lease, answer)
        return answer.body.decode()


@asynccontextmanager
async def replica(url: str, *, up: bool = True, **named: Any) -> AsyncIterator[Replica]:
    """A replica that listens, unless `up` is off; patient, unless it is told a `timeout`."""
    one = Replica(url, **{"timeout": 5.0, **named})
    one.replicas.start()
    try:
        if up:
            await until(lambda: one.replicas.channel.up)
        yield one
    finally:
        await one.replicas.close()


hasty = partial(replica, timeout=TIMEOUT)
"""A replica as patient as it is by default, for weathers."""


async def until(true: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until it is so.

    Raises:
        TimeoutError: it was not within so many seconds.
    """
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - what is waited for happens in another process as well
            await asyncio.sleep(0.005)


async def trusted(one: Replica) -> None:
    """Wait until a replica uses Redis."""
    await until(lambda: one.store.state is State.CLOSED and not one.replicas._outbox, 15)
