"""The Redis tier of one process: made of its settings, started and ended once, shared by all upstreams.

What may not come in: what is looked up, and when; that is `readthrough`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from mcp_federator.breaker import State
from mcp_federator.cache.envelope import Flaw
from mcp_federator.cache.generations import Generations
from mcp_federator.cache.names import Names
from mcp_federator.cache.notice import Notice
from mcp_federator.cache.redis_client import connect
from mcp_federator.cache.redis_store import RedisStore
from mcp_federator.cache.replicas import Replicas
from mcp_federator.cache.secrecy import Secrecy
from mcp_federator.cache.shared import Shared
from mcp_federator.config import Cache, Redis
from mcp_federator.errors import ConfigError
from mcp_federator.metrics import Metrics
from mcp_federator.model import Method

FLAWED: Final = "entry"
"""The operation under which entries that cannot be used are counted as errors."""

QUIET: Final = 60.0
"""Seconds in which the log says of one operation at most once that it fails."""

_log = logging.getLogger(__name__)


def check(settings: Redis) -> None:
    """Raise `ConfigError` where the URL cannot be used; nobody is connected to."""
    with _explained():
        connect(settings.url, settings.timeout)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except ValueError as problem:
        raise ConfigError("cache.redis.url", str(problem)) from None


class RedisTier:
    """See above.  Needs no running loop until it is started.

    Args:
        settings: `cache.redis`.
        secrets: the server's, at least one.
        metrics: counts commands and their failures.
        clock: seconds, never going back.

    Raises:
        ConfigError: the URL cannot be used.
    """

    def __init__(
        self, settings: Redis, secrets: Sequence[bytes], metrics: Metrics, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._closure = Secrecy(secrets, encrypt=settings.encrypt_private)
        with _explained():
            self._store = RedisStore(
                settings.url,
                key_prefix=settings.key_prefix,
                timeout=settings.timeout,
                observe=self._observe,
                clock=clock,
            )
        self._replicas = Replicas(self._store, key_prefix=settings.key_prefix, clock=clock)
        self._failing: dict[str, str] = {}
        self._warned: set[str] = set()
        self._quiet_until: dict[str, float] = {}
        self._flaws: Counter[Flaw] = Counter()
        metrics.watch_redis(lambda: self.up)

    def start(self) -> None:
        """Begin to listen to the other replicas."""
        self._replicas.start()

    async def close(self) -> None:
        """Write what waits, and let go."""
        await self._replicas.close()

    async def tell(self) -> bool:
        """Write and tell the changes that wait, now; whether all were."""
        return await self._replicas.tell()

    async def settle(self) -> bool:
        """Tell the changes that wait, and wait until every process has heard them; see `Replicas.settle`."""
        return await self._replicas.settle()

    @property
    def up(self) -> bool:
        """Whether it answers, and the other replicas are heard."""
        return self._store.state is State.CLOSED and self._replicas.channel.up

    @property
    def failing(self) -> str:
        """Which operations failed when they were last tried, and why."""
        return ", ".join(f"{operation} ({fault})" for operation, fault in self._failing.items())

    def share(
        self,
        name: str,
        *,
        identity: bytes,
        context: bytes,
        cache: Cache,
        generations: Generations,
        heard: Callable[[Notice], None] = lambda _: None,
        private: Callable[[Method, float], None] = lambda *_: None,
    ) -> Shared:
        """The part of one upstream; see `Shared`.

        `identity` is equal for configurations that make the same of the same server's answers, `context` for
        those that show it the same credentials.
        """
        return Shared(
            self._replicas,
            names=Names(self._settings.key_prefix, name, identity),
            closure=self._closure,
            generations=generations,
            max_ttl=cache.max_ttl,
            stale_window=cache.stale_if_error,
            max_value_bytes=self._settings.max_value_bytes,
            clock=self._clock,
            flawed=self._note,
            heard=heard,
            private=private,
            outage_freshness=self._settings.outage_freshness,
            context=context,
        )

    def status(self) -> Mapping[str, Any]:
        """What `/status` tells of it."""
        return {
            "up": self.up,
            "breaker": self._store.state,
            "listening": self._replicas.channel.up,
            "changes_to_tell": self._replicas.untold,
            "failing": dict(self._failing),
            "flawed_entries": dict(self._flaws),
        }

    def _observe(self, operation: str, seconds: float, fault: str) -> None:
        """Count an operation.  The log says when it begins to fail and when it works again, not too often."""
        self._metrics.redis(operation, seconds, fault)
        if fault:
            self._failing[operation] = fault
            now = self._clock()
            if now >= self._quiet_until.get(operation, now):
                self._quiet_until[operation] = now + QUIET
                self._warned.add(operation)
                _log.warning(
                    "redis: %s failed (%s); answers come from memory and upstreams", operation, fault
                )
        elif self._failing.pop(operation, None) and operation in self._warned:
            self._warned.discard(operation)
            _log.warning("redis: %s works again", operation)

    def _note(self, flaw: Flaw) -> None:
        self._flaws[flaw] += 1
        self._metrics.redis(FLAWED, None, flaw)
