"""All upstreams of the configuration in force: each a client under its cache, and the federator over them.

What may not come in: listeners, signals, files; `app` says when there is another configuration.

Hazards, all of order:
- A reload builds everything that is new before it takes anything away; what fails leaves the old in force.
- What is replaced goes on, for the grace time at most, while requests are under way that began before: with
  any of the federators that had it, for a list may come to it in a later round.
"""

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mcp_federator import config
from mcp_federator.cache.generations import Generations
from mcp_federator.cache.memory_store import MemoryStore
from mcp_federator.cache.readthrough import ReadThrough
from mcp_federator.cache.redis_tier import RedisTier
from mcp_federator.config import Cache, Config, Lists, Server, Upstream
from mcp_federator.errors import ConfigError, FederatorError
from mcp_federator.federation.capabilities import capabilities
from mcp_federator.federation.cursor import Seal
from mcp_federator.federation.partition import Credentials
from mcp_federator.federation.prefix import Mapping as UriMapping
from mcp_federator.federation.prefix import problems
from mcp_federator.federation.scopes import ListScopes
from mcp_federator.federator import Federator, Member
from mcp_federator.metrics import Metrics
from mcp_federator.model import Change, Event, Method
from mcp_federator.upstream.client import Client
from mcp_federator.upstream.limits import Budget, Slots
from mcp_federator.upstream.repository import AnyClient, Repository, opened

DISCOVER_TTL_MS: Final = 60_000
"""How long clients may keep our discover result, once every upstream was reached."""

LAST_WORDS: Final = 1.0
"""How long, in seconds, requests may go on to be counted after the upstream they wait for was closed."""

_NO_BOUND: Final = nullcontext()

_FIXED: Final[dict[str, tuple[str, ...]]] = {
    "server": Server.__struct_fields__,
    "cache": ("memory", "client_refresh", "redis"),
}
"""Keys, by section, that stay what they were when the process was started."""


def load(path: Path, environ: Mapping[str, str]) -> Config:
    """Read a file; raises `ConfigError` with all that is wrong in it, names that collide included."""
    return config.load(path, environ, names=lambda names: problems([UriMapping(*of_one) for of_one in names]))


class Stack(msgspec.Struct, frozen=True):
    """One upstream with all that belongs to it."""

    settings: Upstream
    client: AnyClient
    cached: ReadThrough
    member: Member

    def adopt(self, cache: Cache, lists: Lists) -> None:
        """Take over what holds for all upstreams, from now on."""
        self.client.adopt(lists, cache.max_ttl)
        self.cached.adopt(cache)

    async def close(self) -> None:
        """End its work and its connections."""
        self.cached.close()
        await self.client.close()


class Federation:
    """The upstreams of the configuration in force.

    Args:
        config: the first one; what `needs_restart` may name stays as it is in it.
        metrics: counts what happens.
        clock: seconds, never going back.
        places: see `Federator`.
        redis: the tier that all replicas share, of the same configuration; None is none.

    Attributes:
        federator: the source over all upstreams; another one after a reload.
        config: what is in force.
    """

    federator: Federator
    config: Config

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        places: AbstractContextManager[object] = _NO_BOUND,
        redis: RedisTier | None = None,
    ) -> None:
        self._first = config
        self._metrics = metrics
        self._clock = clock
        self._redis = redis
        self._secrets = secrets_of(config) or [secrets.token_bytes(32)]
        self._seal = Seal(self._secrets)
        self._memory = MemoryStore(config.cache.memory, clock)
        self._scopes = ListScopes(config.cache.max_ttl)
        self._budget = Budget(config.server.max_response_bytes_in_flight)
        self._slots = Slots(config.server.max_in_flight)
        self._places = places
        self._stacks: dict[str, Stack] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._former: set[Federator] = set()
        self._ending = asyncio.Event()
        metrics.watch_cache(lambda: (self._memory.bytes, self._memory.entries, self._memory.evictions))

    async def apply(self, config: Config) -> None:
        """Put a configuration in force; upstreams whose settings did not change go on untouched.

        Raises:
            ConfigError: it cannot be; what was in force still is.
        """
        config = _unless_restarted(self._first, config)
        stacks: dict[str, Stack] = {}
        wrong: list[ConfigError] = []
        async with AsyncExitStack() as undo:
            for name, settings in config.upstreams.items():
                old = self._stacks.get(name)
                if old is not None and old.settings == settings:
                    stacks[name] = old
                    continue
                try:
                    stacks[name] = await self._build(name, settings, config.cache, config.lists)
                except ConfigError as problem:
                    wrong.append(problem)
                    continue
                undo.push_async_callback(stacks[name].close)
            if wrong:
                first, *more = wrong
                source = str(config.files[0]) if config.files else ""
                raise ConfigError(first.path, first.problem, source=source, more=more)
            federator = Federator(
                [stack.member for stack in stacks.values()],
                lists=config.lists,
                request_timeout=config.server.request_timeout,
                seals=self._seal,
                scopes=self._scopes,
                metrics=self._metrics,
                clock=self._clock,
                places=self._places,
            )
            undo.pop_all()
        old_stacks, self._stacks = self._stacks, stacks
        if old_stacks:
            self._former.add(self.federator)
            self._retire(partial(self._run_out, self.federator))
        self.federator = federator
        self.config = config
        self._scopes.adopt(config.cache.max_ttl)
        for name, old in old_stacks.items():
            if stacks.get(name) is old:
                old.adopt(config.cache, config.lists)
            else:
                self._retire(partial(self._leave, name, old), grace=config.server.grace)
        for name, stack in stacks.items():
            if old_stacks.get(name) is not stack:
                await stack.client.start()

    async def _build(self, name: str, settings: Upstream, cache: Cache, lists: Lists) -> Stack:
        mapping = UriMapping(name, settings.prefix, settings.native_prefix)
        credentials = Credentials(self._secrets[0], settings.forward, settings.credential_headers)
        identity = _identity(name, settings, mapping.fingerprint, self._secrets[0])

        def heard(event: Event) -> None:
            if event.change is not Change.RESOURCE:
                client.forget()

        def changed(event: Event) -> None:
            cached.invalidate(event)
            heard(event)

        make: Callable[..., AnyClient] = partial(Client, changed=changed)
        if settings.kind in {"repository", "directory"}:
            make = partial(Repository, mounted=await opened(name, settings))
        client = make(
            name,
            settings,
            mapping=mapping,
            credentials=credentials,
            max_ttl=cache.max_ttl,
            metrics=self._metrics,
            clock=self._clock,
            budget=self._budget,
            slots=self._slots,
            lists=lists,
        )
        cached = ReadThrough(
            client,
            name=name,
            identity=_identity_of_answers(identity, settings, self._secrets[0]),
            credentials=credentials,
            cache=cache,
            memory=self._memory,
            metrics=self._metrics,
            clock=self._clock,
            redis=self._redis,
            heard=heard,
        )

        def drop_pages(method: Method) -> None:
            cached.drop_pages(method)
            client.forget()

        member = Member(
            name=name,
            source=cached,
            mapping=mapping,
            identity=identity,
            required=settings.required,
            list_scope=settings.cache.list_scope,
            peek=cached.peek,
            still=cached.still,
            drop_pages=drop_pages,
            completes=lambda: client.completes,
        )
        return Stack(settings, client, cached, member)

    async def _leave(self, name: str, old: Stack) -> None:
        """Close what was replaced; once nobody waits for it, its name leaves the metrics with it."""
        try:
            await old.close()
            await self._pause(LAST_WORDS)
        finally:
            if name not in self._stacks:
                self._metrics.forget_upstream(name)

    async def _run_out(self, old: Federator) -> None:
        """Let the requests that began with what was replaced come to their ends."""
        await old.close()
        await self._pause(None, old.idle())
        self._former.discard(old)

    def _retire(self, close: Callable[[], Awaitable[None]], grace: float = 0.0) -> None:
        """Close something, `grace` seconds from now or as soon as no request may need it."""
        former = tuple(self._former)

        async def idle() -> None:
            for federator in former:
                await federator.idle()

        async def retire() -> None:
            if grace:
                await self._pause(grace, idle())
            await close()

        task = asyncio.get_running_loop().create_task(retire(), name="retire")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _pause(self, seconds: float | None, until: Coroutine[Any, Any, None] | None = None) -> None:
        """Wait so long, until what is waited for has come, or until all comes to its end."""
        waits: list[Coroutine[Any, Any, object]] = [self._ending.wait()]
        if until is not None:
            waits.append(until)
        tasks = [asyncio.get_running_loop().create_task(wait, name="retire") for wait in waits]
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    @property
    def clients(self) -> Mapping[str, AnyClient]:
        """The upstreams, by name, in configuration order."""
        return {name: stack.client for name, stack in self._stacks.items()}

    def discover(self) -> tuple[bytes, int]:
        """Our capabilities, and for how many milliseconds clients may keep them."""
        clients = self.clients.values()
        known = all(client.status.era is not None for client in clients)
        declared = capabilities(completions=any(client.completes for client in clients))
        return declared, DISCOVER_TTL_MS if known else 0

    def status(self) -> dict[str, Any]:
        """What `/status` tells of the upstreams and the cache."""
        return {
            "upstreams": [
                {
                    "name": name,
                    "prefix": stack.member.mapping.prefix,
                    **msgspec.to_builtins(stack.client.status),
                }
                for name, stack in self._stacks.items()
            ],
            "cache": {
                "memory": {
                    "bytes": self._memory.bytes,
                    "max_bytes": int(self.config.cache.memory),
                    "entries": self._memory.entries,
                    "evictions": self._memory.evictions,
                },
                "redis": None if self._redis is None else self._redis.status(),
                "requests": self._metrics.hit_rates(),
            },
        }

    async def close(self) -> None:
        """End all work and all connections."""
        # Told and not cancelled: what has begun to close goes on to its end.
        self._ending.set()
        if self._stacks:
            await self.federator.close()
        # All at once: each may take its time, to end sessions or a process.
        await asyncio.gather(*self._retiring, *(stack.close() for stack in self._stacks.values()))
        self._stacks = {}


def secrets_of(config: Config) -> list[bytes]:
    """The configured secrets, the first one first."""
    return [secret.encode() for secret in config.server.secret]


def redis_of(config: Config, metrics: Metrics, clock: Callable[[], float]) -> RedisTier | None:
    """The Redis tier of a configuration, not started yet; None where it has none.

    Raises:
        ConfigError: the URL cannot be used.
    """
    settings = config.cache.redis
    return None if settings is None else RedisTier(settings, secrets_of(config), metrics, clock)


async def invalidate(config: Config, name: str, uri: str | None) -> None:
    """Make all that is kept of an upstream gone in all processes, or what is kept of one (public) URI.

    Raises:
        ConfigError: there is no Redis, no such upstream, or the URI is none of it.
        FederatorError: Redis was not told.
    """
    redis = redis_of(config, Metrics(""), time.monotonic)
    if redis is None:
        raise ConfigError(
            "cache.redis", "missing: only what processes share through it can be reached from outside"
        )
    settings = config.upstreams.get(name)
    if settings is None:
        raise ConfigError("", f"expected the name of an upstream: {', '.join(config.upstreams)}")
    mapping = UriMapping(name, settings.prefix, settings.native_prefix)
    native = None if uri is None else mapping.native(uri)
    if uri is not None and native is None:
        raise ConfigError("", f"expected a URI of {name} as clients see it: {mapping.prefix}...")
    key = secrets_of(config)[0]
    identity = _identity_of_answers(_identity(name, settings, mapping.fingerprint, key), settings, key)
    shared = redis.share(name, identity, config.cache, Generations())
    try:
        if native is None:
            shared.invalidate_all()
        else:
            shared.invalidate(Event(name, Change.RESOURCE, native))
        if not await redis.told():
            raise FederatorError(f"Redis was not told: {redis.failing or 'no answer'}")
    finally:
        await redis.close()


def _identity(name: str, settings: Upstream, fingerprint: bytes, key: bytes) -> bytes:
    """Which server this is; the same wherever and whenever the configuration means the same one.

    What tells one program from another, or one repository, is its arguments and its environment too, and a
    secret may stand there: they go in under our own key, since bytes of an identity stand in cursors.
    """
    if settings.url is not None:
        place = msgspec.msgpack.encode((name, settings.url, fingerprint))
        return hashlib.sha256(place, usedforsecurity=False).digest()
    where = (
        *(settings.command, settings.args, settings.env, settings.cwd),
        *(settings.repository, settings.options, settings.directory),
    )
    # Options that a program gives may be no JSON; then they are as good as their `repr`.
    place = msgspec.json.encode((name, where, fingerprint.hex()), order="deterministic", enc_hook=repr)
    return hmac.digest(key, place, "sha256")


def _identity_of_answers(identity: bytes, settings: Upstream, key: bytes) -> bytes:
    """The same for configurations that give the same callers the same answers, here and on other replicas.

    Other credentials of ours, or another judgement of hints, make other answers.  Secrets stand among them:
    they go in under our own key.
    """
    shaping = (
        *(settings.headers, settings.forward, settings.credential_headers),
        *(settings.client_capabilities, settings.cache),
    )
    told = msgspec.json.encode(shaping, order="deterministic", enc_hook=repr)
    return hmac.digest(key, identity + told, "sha256")


def needs_restart(running: Config, new: Config) -> list[str]:
    """Names of keys that a reload changes but cannot put in force."""
    return [
        f"{section}.{key}"
        for section, keys in _FIXED.items()
        for key in keys
        if getattr(getattr(running, section), key) != getattr(getattr(new, section), key)
    ]


def _unless_restarted(running: Config, new: Config) -> Config:
    """What of a new configuration can be put in force."""
    sections = {
        section: replace(
            getattr(new, section), **{key: getattr(getattr(running, section), key) for key in keys}
        )
        for section, keys in _FIXED.items()
    }
    return replace(new, **sections)
