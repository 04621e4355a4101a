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
from mcp_federator.cache import redis_tier
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
from mcp_federator.hub import Hub, Voice
from mcp_federator.metrics import Metrics
from mcp_federator.model import Caller, Change, Era, Event, Method, Offers, Wanted
from mcp_federator.upstream.client import Client
from mcp_federator.upstream.limits import Budget, Slots
from mcp_federator.upstream.repository import AnyClient, Repository, opened

DISCOVER_TTL_MS: Final = 60_000
"""How long clients may keep our discover result, once every upstream was reached."""

LAST_WORDS: Final = 1.0
"""How long, in seconds, requests may go on to be counted after the upstream they wait for was closed."""

_NO_BOUND: Final = nullcontext()
_NOTHING: Final = Offers()

_FIXED: Final[dict[str, tuple[str, ...]]] = {
    "server": Server.__struct_fields__,
    "cache": ("memory", "redis", "client_refresh"),
}
"""Keys, by section, that stay what they were when the process was started."""


def load(path: Path, environ: Mapping[str, str]) -> Config:
    """Read a file; raises `ConfigError` with all that is wrong in it, names that collide included."""
    given = config.load(
        path, environ, names=lambda names: problems([UriMapping(*of_one) for of_one in names])
    )
    if given.cache.redis is not None:
        try:
            redis_tier.check(given.cache.redis)
        except ConfigError as error:
            raise ConfigError(error.path, error.problem, source=str(path)) from None
    return given


class Stack(msgspec.Struct, frozen=True):
    """One upstream with all that belongs to it."""

    settings: Upstream
    client: AnyClient
    cached: ReadThrough
    member: Member
    voice: Voice

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
        subscribes: upstreams are listened to for the sake of what is kept of them (`cache.subscribe`).

    Attributes:
        federator: the source over all upstreams; another one after a reload.
        hub: where their changes are listened to.
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
        *,
        subscribes: bool = False,
    ) -> None:
        self._first = config
        self.hub = Hub(metrics)
        self._metrics = metrics
        self._clock = clock
        self._redis = redis
        self._secrets = secrets_of(config) or [secrets.token_bytes(32)]
        self._seal = Seal(self._secrets)
        self._memory = MemoryStore(config.cache.memory, clock)
        self._scopes = ListScopes(config.cache.max_ttl, self._tell_private)
        self._budget = Budget(config.server.max_response_bytes_in_flight)
        self._slots = Slots(config.server.max_in_flight)
        self._places = places
        self._subscribes = subscribes
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
        fresh = [stack for name, stack in stacks.items() if old_stacks.get(name) is not stack]
        for stack in fresh:
            await stack.client.start()
        # Who listens is handed on to those that can listen.
        self.hub.adopt([stack.voice for stack in stacks.values()])
        for stack in fresh:
            self._subscribe(stack)

    def _subscribe(self, stack: Stack) -> None:
        """Listen on behalf of the cache: of nobody, for a caller's credentials are for his own requests."""
        if not self._subscribes or not stack.settings.cache.subscribe or stack.settings.forward:
            return

        def watch(uris: frozenset[str]) -> None:
            self.hub.keep(stack.voice, Wanted(lists=True, uris=uris))

        stack.cached.watch(lambda: (stack.client.offers or _NOTHING).resources, watch)
        watch(frozenset())

    async def _build(self, name: str, settings: Upstream, cache: Cache, lists: Lists) -> Stack:
        mapping = UriMapping(name, settings.prefix, settings.native_prefix)
        credentials = Credentials(self._secrets[0], settings.forward, settings.credential_headers)
        identity = _identity(name, settings, mapping.fingerprint, self._secrets[0])
        making, context = _making(identity, settings, self._secrets[0])

        def changed(event: Event) -> None:
            self.hub.heard(voice, event)

        def invalidate(event: Event) -> None:
            cached.invalidate(event)
            forget(event)

        def heard(event: Event) -> None:
            forget(event)
            # Others do not say in which context they heard it; so it may be told where there is but one.
            if not credentials.forwards:
                self.hub.heard_elsewhere(voice, event)

        def forget(event: Event) -> None:
            if event.change is not Change.RESOURCE:
                client.forget()

        make: Callable[..., AnyClient] = partial(Client, changed=changed)
        if settings.kind in {"repository", "directory"}:
            make = partial(Repository, mounted=await opened(name, settings), changed=changed)
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
            identity=making,
            credentials=credentials,
            cache=cache,
            memory=self._memory,
            metrics=self._metrics,
            clock=self._clock,
            redis=self._redis,
            context=context,
            heard=heard,
            private=lambda method, seconds: self._scopes.hear(name, method, seconds, self._clock()),
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
        voice = Voice(
            name=name,
            mapping=mapping,
            want=client.want,
            offers=lambda: client.offers,
            know=client.probe,
            partition=credentials.partition,
            invalidate=invalidate,
            settle=None if self._redis is None else self._redis.settle,
        )
        return Stack(settings, client, cached, member, voice)

    def _tell_private(self, name: str, method: Method, seconds: float) -> None:
        stack = self._stacks.get(name)
        if stack is not None:
            stack.cached.tell_private(method, seconds)

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

    @property
    def alone(self) -> bool:
        """Whether no other process serves the same clients: where there are others, all share one Redis."""
        return self._redis is None

    def discover(self, era: Era) -> tuple[bytes, int]:
        """Our capabilities toward clients of an era, and for how many milliseconds they may keep them."""
        clients = self.clients.values()
        known = all(client.status.era is not None for client in clients)
        offers = self.hub.offers
        if era is Era.LEGACY and not self.alone:
            # What a session subscribes to is known to one process, and its stream may be at another.
            offers = replace(offers, resources=False)
        declared = capabilities(offers, completions=any(client.completes for client in clients))
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
            "listeners": len(self.hub),
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
        await self.hub.end()
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
    making, context = _making(_identity(name, settings, mapping.fingerprint, key), settings, key)
    shared = redis.share(
        name,
        identity=making,
        context=context,
        cache=config.cache,
        generations=Generations(),
    )
    try:
        if native is None:
            shared.invalidate_all()
        else:
            shared.invalidate(Event(name, Change.RESOURCE, native))
        if not await redis.tell():
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


def _making(identity: bytes, settings: Upstream, key: bytes) -> tuple[bytes, bytes]:
    """What makes an upstream's answers what they are, beside who asks: two digests.

    The first is equal wherever the same server is asked in the same way and its hints are judged alike: it
    tells answers apart that another process, or another configuration, keeps in Redis.  The second says which
    credentials of our own go along, `b""` for none: it tells private answers apart.  Neither depends on the
    server's secret where no header field is configured, so a new secret leaves what is kept readable.
    """
    fields = {name.lower(): value for name, value in sorted(settings.headers.items())}
    own, sender = Credentials(key, tuple(fields), ()), Caller(headers=fields)
    told = msgspec.json.encode(
        (
            *(tuple(fields), settings.forward, settings.credential_headers, settings.tls.cert_file),
            *(settings.client_capabilities, settings.baggage),
            *(settings.cache.default_ttl, settings.cache.default_scope, settings.cache.trust_public),
        ),
        order="deterministic",
        enc_hook=repr,
    )
    whole = hashlib.sha256(identity + told + own.variant(sender), usedforsecurity=False).digest()
    return whole, own.partition(sender)


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
