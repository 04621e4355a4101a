"""A cache on a stage: an upstream that answers what and when the test says, and a clock the test sets."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from time import monotonic
from typing import Any, TypeVar

from mcp_federator.cache.memory_store import MemoryStore
from mcp_federator.cache.readthrough import ReadThrough
from mcp_federator.cache.redis_tier import RedisTier
from mcp_federator.config import Cache, Duration, Redis
from mcp_federator.errors import McpError, Reason, UpstreamFailure
from mcp_federator.federation.partition import Credentials
from mcp_federator.metrics import Metrics
from mcp_federator.model import (
    ANYONE,
    Answer,
    Caller,
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

T = TypeVar("T")
Script = Callable[[Query, Caller], Answer]

BARRED = UpstreamFailure("alpha", Reason.REFUSED, "401", personal=True, stale_ok=False)
HELD = UpstreamFailure("alpha", Reason.REFUSED, "429", personal=True)
BROKEN = UpstreamFailure("alpha", Reason.BAD_REPLY, "500")
LATE = UpstreamFailure("alpha", Reason.TIMEOUT)
SHUT = UpstreamFailure("alpha", Reason.UNREACHABLE, "the breaker is open", asked=False)
ABSENT = McpError(-32602, "no such resource")
INCAPABLE = McpError(-32021, "needs elicitation")


def run(body: Coroutine[Any, Any, T]) -> T:
    """Run a test's body to its end."""
    return asyncio.run(body)


async def settle() -> None:
    """Let everything that can go on go on; time stands still meanwhile."""
    for _ in range(20):
        await asyncio.sleep(0)


def read(uri: str = "x://1", *, refresh: bool = False) -> Query:
    return Query(Method.READ, uri=uri, refresh=refresh)


def page(cursor: str | None = None, method: Method = Method.LIST) -> Query:
    return Query(method, cursor=cursor)


def by_alpha(outcome: Outcome, tier: Tier = Tier.NONE, **named: Any) -> Served:
    """How an answer of the stage's upstream came about."""
    return Served(outcome, tier, upstreams=("alpha",), **named)


def bearer(token: str) -> Caller:
    return Caller(headers={"authorization": token})


def public(text: str, ttl_ms: int = 60_000) -> Answer:
    return Answer(text.encode(), Hint(ttl_ms, Scope.PUBLIC), count=1)


def private(text: str, ttl_ms: int = 60_000) -> Answer:
    return Answer(text.encode(), Hint(ttl_ms, Scope.PRIVATE), count=1)


def numbered(make: Callable[[str], Answer] = public) -> Script:
    """Answers `v1`, `v2`, ... in turn."""
    count = 0

    def script(_query: Query, _caller: Caller) -> Answer:
        nonlocal count
        count += 1
        return make(f"v{count}")

    return script


def raising(error: Exception) -> Script:
    """Fails like this, each time."""

    def script(_query: Query, _caller: Caller) -> Answer:
        raise error

    return script


INTERIM = Answer(b'"inputRequests":{}', Hint(0, Scope.PRIVATE), interim=True)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class GoingClock(Clock):
    """Goes by itself, for waits that really end; what a test adds to `now` is added."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return monotonic() + self.now


class Call:
    """One query that reached the upstream; it ends when the test, or its canceller, says so."""

    def __init__(self, query: Query, caller: Caller) -> None:
        self.query = query
        self.caller = caller
        self.cancelled = False
        self._end: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    @property
    def pending(self) -> bool:
        return not self._end.done()

    async def wait(self) -> Answer:
        try:
            return await self._end
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    def land(self, outcome: Answer | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self._end.set_exception(outcome)
        else:
            self._end.set_result(outcome)


class Upstream(Source):
    """Answers by its script at once; without one it holds each call until the test lands it."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script
        self.calls: list[Call] = []

    async def fetch(self, query: Query, caller: Caller) -> Answer:
        call = Call(query, caller)
        self.calls.append(call)
        if self.script is not None:
            return self.script(query, caller)
        return await call.wait()


class Stage:
    """A `ReadThrough` named alpha and all it stands on."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        forward: tuple[str, ...] = (),
        memory: int = 1 << 20,
        max_ttl: float = 3600,
        stale_if_error: float = 300,
        redis: Redis | None = None,
        secret: bytes = b"0123456789abcdef",
    ) -> None:
        self.clock = Clock() if redis is None else GoingClock()
        self.upstream = Upstream(script)
        self.metrics = Metrics("0")
        self.heard: list[Event] = []
        self.tier = None if redis is None else RedisTier(redis, [secret], self.metrics, self.clock)
        self.memory = MemoryStore(memory, self.clock)
        self.cache = ReadThrough(
            self.upstream,
            name="alpha",
            identity=b"alpha".ljust(32),
            credentials=Credentials(b"secret", forward, ()),
            cache=Cache(max_ttl=Duration(max_ttl), stale_if_error=Duration(stale_if_error)),
            memory=self.memory,
            metrics=self.metrics,
            clock=self.clock,
            redis=self.tier,
            heard=self.heard.append,
        )

    def ask(self, query: Query, caller: Caller = ANYONE) -> "asyncio.Task[Answer]":
        """Ask in a task of its own, as each request does."""
        return asyncio.create_task(self.cache.fetch(query, caller))

    @property
    def calls(self) -> list[Call]:
        return self.upstream.calls

    @property
    def outcomes(self) -> dict[Outcome, int]:
        """How many queries fell in each outcome, those with none left out."""
        counts: dict[Outcome, int] = {}
        for (_, _, _, outcome, _), count in self.metrics._cache_requests.items():
            counts[Outcome(outcome)] = counts.get(Outcome(outcome), 0) + count
        return counts

    @property
    def labels(self) -> Mapping[tuple[str, ...], int]:
        """Counts by (upstream, method, scope, outcome, tier)."""
        return self.metrics._cache_requests

    @property
    def tiers(self) -> list[tuple[Outcome, Tier]]:
        """Each outcome and tier that was counted, once."""
        return [(Outcome(outcome), Tier(tier)) for *_, outcome, tier in self.metrics._cache_requests]
