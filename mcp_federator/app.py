"""Wires the rooms together and runs them; the only room that knows all rooms.

`Federation` is all upstreams of the configuration in force, each with its client and its cache, and the
federator over them.  `App` gives it the two listeners, the signals and the watch on the files.

Hazards, all of order:
- A reload builds everything that is new before it takes anything away; what fails leaves the old in force.
- What is replaced goes on for the grace time, since requests that began with it are still under way.
- At the end the door closes first, then requests run out, then the upstreams go.
"""

import asyncio
import hashlib
import hmac
import logging
import secrets
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from functools import partial
from typing import Any, Final

import msgspec
from aiohttp import web

from mcp_federator import __version__
from mcp_federator.cache.memory_store import MemoryStore
from mcp_federator.cache.readthrough import ReadThrough
from mcp_federator.config import Cache, Config, Lists, Server, Upstream
from mcp_federator.endpoint.admin import Admin
from mcp_federator.endpoint.exchange import InFlight
from mcp_federator.endpoint.guard import is_loopback
from mcp_federator.endpoint.routes import Endpoint
from mcp_federator.endpoint.wire import Server as Listener
from mcp_federator.errors import ConfigError
from mcp_federator.federation.capabilities import capabilities
from mcp_federator.federation.cursor import Seal
from mcp_federator.federation.partition import DEFAULT_CREDENTIAL_HEADERS, Credentials
from mcp_federator.federation.prefix import Mapping as UriMapping
from mcp_federator.federation.scopes import ListScopes
from mcp_federator.federator import Federator, Member
from mcp_federator.log import RequestLog
from mcp_federator.metrics import Metrics
from mcp_federator.model import Method
from mcp_federator.upstream.client import Client
from mcp_federator.upstream.limits import Budget, Slots
from mcp_federator.upstream.repository import AnyClient, Repository, opened

DISCOVER_TTL_MS: Final = 60_000
"""How long clients may keep our discover result, once every upstream was reached."""

ANSWER_BYTES: Final = 256 << 20
"""What all answers being received may hold together."""

WATCH_SECONDS: Final = 2.0
"""How often the configuration's files are read again.  They are polled, since a ConfigMap changes by swapping
a symlink, which no watch on a file sees."""

_log = logging.getLogger(__name__)


class Stack(msgspec.Struct, frozen=True):
    """One upstream with all that belongs to it."""

    settings: Upstream
    cache: Cache
    lists: Lists
    client: AnyClient
    cached: ReadThrough
    member: Member

    async def close(self) -> None:
        """End its work and its connections."""
        self.cached.close()
        await self.client.close()


class Federation:
    """The upstreams of the configuration in force.

    Args:
        config: the first one; `server.secret` and `cache.memory` stay as they are in it.
        metrics: counts what happens.
        clock: seconds, never going back.

    Attributes:
        federator: the source over all upstreams; another one after a reload.
        config: what is in force.
        in_flight: the requests of clients that wait for upstreams.
    """

    federator: Federator
    config: Config

    def __init__(self, config: Config, metrics: Metrics, clock: Callable[[], float] = time.monotonic) -> None:
        self._metrics = metrics
        self._clock = clock
        self._secrets = [secret.encode() for secret in config.server.secret] or [secrets.token_bytes(32)]
        self._seal = Seal(self._secrets)
        self._memory = MemoryStore(config.cache.memory, clock)
        self._scopes = ListScopes(config.cache.max_ttl)
        self._budget = Budget(ANSWER_BYTES)
        self._slots = Slots(config.server.max_in_flight)
        self.in_flight: Final = InFlight(config.server.max_in_flight)
        self._stacks: dict[str, Stack] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        metrics.watch_cache(lambda: (self._memory.bytes, self._memory.entries, self._memory.evictions))

    async def apply(self, config: Config) -> None:
        """Put a configuration in force; upstreams whose settings did not change go on untouched.

        Raises:
            ConfigError: it cannot be; what was in force still is.
        """
        stacks: dict[str, Stack] = {}
        async with AsyncExitStack() as undo:
            for name, settings in config.upstreams.items():
                old = self._stacks.get(name)
                made_of = (settings, config.cache, config.lists)
                if old is not None and (old.settings, old.cache, old.lists) == made_of:
                    stacks[name] = old
                    continue
                stacks[name] = await self._build(name, *made_of)
                undo.push_async_callback(stacks[name].client.close)
            federator = Federator(
                [stack.member for stack in stacks.values()],
                lists=config.lists,
                request_timeout=config.server.request_timeout,
                seals=self._seal,
                scopes=self._scopes,
                metrics=self._metrics,
                clock=self._clock,
                places=self.in_flight,
            )
            undo.pop_all()
        old_stacks, self._stacks = self._stacks, stacks
        if old_stacks:
            self._retire(self.federator.close)
        self.federator = federator
        grace = config.server.grace
        for name, old in old_stacks.items():
            if stacks.get(name) is not old:
                self._retire(old.close, after=grace)
            if name not in stacks:
                self._metrics.forget_upstream(name)
        self.config = config
        for name, stack in stacks.items():
            if old_stacks.get(name) is not stack:
                await stack.client.start()

    async def _build(self, name: str, settings: Upstream, cache: Cache, lists: Lists) -> Stack:
        mapping = UriMapping(name, settings.prefix, settings.native_prefix)
        credentials = Credentials(self._secrets[0], settings.forward, settings.credential_headers)
        identity = _identity(name, settings, mapping.fingerprint, self._secrets[0])
        make: Callable[..., AnyClient] = Client
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
            identity=identity,
            credentials=credentials,
            cache=cache,
            memory=self._memory,
            metrics=self._metrics,
            clock=self._clock,
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
            drop_pages=drop_pages,
        )
        return Stack(settings, cache, lists, client, cached, member)

    def _retire(self, close: Callable[[], Awaitable[None]], after: float = 0.0) -> None:
        async def retire() -> None:
            try:
                await asyncio.sleep(after)
            finally:
                await close()

        task = asyncio.get_running_loop().create_task(retire(), name="retire")
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    @property
    def clients(self) -> Mapping[str, AnyClient]:
        """The upstreams, by name, in configuration order."""
        return {name: stack.client for name, stack in self._stacks.items()}

    def discover(self) -> tuple[bytes, int]:
        """Our capabilities, and for how many milliseconds clients may keep them."""
        known = all(client.status.era is not None for client in self.clients.values())
        return capabilities(), DISCOVER_TTL_MS if known else 0

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
                "requests": self._metrics.hit_rates(),
            },
        }

    async def close(self) -> None:
        """End all work and all connections."""
        for task in tuple(self._retiring):
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        if self._stacks:
            await self.federator.close()
        # All at once: each may take its time, to end sessions or a process.
        await asyncio.gather(*(stack.close() for stack in self._stacks.values()))
        self._stacks = {}


class App:
    """The server.

    Args:
        config: what to serve.
        reload: reads the configuration anew, or raises `ConfigError`; None where there is no file.
        watch: a digest of all files that a configuration was read from; None where there are none.
        clock: seconds, never going back; by it answers age and upstreams are left alone.
    """

    def __init__(
        self,
        config: Config,
        *,
        reload: Callable[[], Config] | None = None,
        watch: Callable[[Config], bytes] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        server = config.server
        self._config = config
        self._read = reload
        self._watch = watch
        self._metrics = Metrics(__version__)
        self._request_log = RequestLog(server.log.format, server.log.level)
        self._federation = Federation(config, self._metrics, clock)
        self._endpoint = Endpoint(
            self._federation,
            server,
            config.cache,
            forwarded_headers=_forwarded(config)[0],
            credential_headers=_forwarded(config)[1],
            metrics=self._metrics,
            request_log=self._request_log,
            discover=self._federation.discover,
            clock=time.perf_counter,
        )
        self._metrics.watch_sessions(lambda: self._endpoint.sessions)
        self._admin = Admin(server, self._metrics, lambda: self._unready, self._status)
        self._unready: str | None = "starting"
        self._stopping = asyncio.Event()
        self._started = time.time()
        self._reloads: asyncio.Queue[None] = asyncio.Queue(maxsize=1)

    async def run(self, ready: Callable[[str, str], None] | None = None) -> None:
        """Serve until `stop` or a signal says otherwise; `ready` gets the URLs of both listeners.

        Raises:
            ConfigError: the configuration cannot be used.
            OSError: an address cannot be bound.
        """
        server = self._config.server
        async with AsyncExitStack() as closing:
            closing.callback(self._request_log.close)
            # From here to the very end: a signal must not orphan a process that was started.
            closing.enter_context(self._signals())
            closing.push_async_callback(self._federation.close)
            closing.push_async_callback(self._endpoint.close)
            await self._federation.apply(self._config)
            # The listener entered last is left first: the admin one shows the stop to its end.
            admin = await _listen(closing, self._admin.handle, server.admin_host, server.admin_port, 1.0)
            mcp = await _listen(closing, self._endpoint.handle, server.host, server.port, server.grace)
            work = asyncio.create_task(self._keep_current(), name="reload")
            closing.callback(work.cancel)
            for warning in _warnings(self._config):
                _log.warning(warning)
            self._unready = None
            if ready is not None:
                ready(f"{mcp}{server.path}", admin)
            await self._stopping.wait()
            self._unready = "draining"
            self._endpoint.drain()
            _log.info("stopping; requests under way may take %g s more", server.grace)

    def stop(self) -> None:
        """Begin to end: unready at once, no new connections, requests under way get the grace time."""
        self._stopping.set()

    def reload(self) -> None:
        """Read the configuration anew, soon; several calls in a row are one."""
        with suppress(asyncio.QueueFull):
            self._reloads.put_nowait(None)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        actions = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGHUP: self.reload}
        for number, act in actions.items():
            loop.add_signal_handler(number, act)
        try:
            yield
        finally:
            for number in actions:
                loop.remove_signal_handler(number)

    async def _keep_current(self) -> None:
        """Reload when told to, and when a file is not what it was."""
        # Nothing was seen yet: what changed since the configuration was read is found at the first look.
        seen = b""
        while True:
            told = False
            with suppress(TimeoutError):
                await asyncio.wait_for(self._reloads.get(), WATCH_SECONDS)
                told = True
            now = (
                b"" if self._watch is None else await asyncio.to_thread(self._watch, self._federation.config)
            )
            if told or now != seen:
                # A file caught half written is read again: it will differ from what was seen.
                seen = now
                await self._apply_anew(told=told)

    async def _apply_anew(self, *, told: bool) -> None:
        if self._read is None:
            _log.warning("no configuration file to read anew")
            return
        try:
            config = await asyncio.to_thread(self._read)
            if config == self._federation.config and not told:
                return
            await self._federation.apply(config)
        except ConfigError as error:
            self._metrics.reload("refused")
            _log.error("the new configuration is refused, the old one stays in force: %s", error)
            return
        except Exception:  # noqa: BLE001 - a reload that fails must not end the service
            self._metrics.reload("failed")
            _log.exception("the new configuration could not be put in force, the old one stays")
            return
        self._endpoint.forward(*_forwarded(config))
        self._metrics.reload("applied")
        for key in _needs_restart(self._config, config):
            _log.warning("%s has changed; it takes effect after a restart", key)
        for warning in _warnings(config):
            _log.warning(warning)
        _log.info("the new configuration is in force: %s", ", ".join(config.upstreams))

    def _status(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "ready": self._unready is None,
            "uptime_seconds": round(time.time() - self._started, 1),
            "in_flight": self._federation.in_flight.count,
            **self._federation.status(),
        }


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


def _forwarded(config: Config) -> tuple[frozenset[str], frozenset[str]]:
    """Lower-case names of the headers that some upstream gets from the caller, and of extra credentials."""
    upstreams = config.upstreams.values()
    return (
        frozenset(name.lower() for one in upstreams for name in one.forward),
        frozenset(name.lower() for one in upstreams for name in one.credential_headers),
    )


def _warnings(config: Config) -> Iterator[str]:
    """What is allowed, and should be meant; and what was left out."""
    yield from config.notes
    if not is_loopback(config.server.host):
        yield (
            f"server.host is {config.server.host}: whoever reaches it may read everything (server.auth is"
            " none); let something that checks callers stand before it"
        )
    for name, upstream in config.upstreams.items():
        for header in upstream.forward:
            if header in DEFAULT_CREDENTIAL_HEADERS or header in upstream.credential_headers:
                yield (
                    f"upstreams.{name}.forward sends the caller's {header} on; MCP forbids that for tokens"
                    " that were not issued for this upstream"
                )


def _needs_restart(running: Config, new: Config) -> list[str]:
    """Names of changed keys that a reload does not put in force."""
    changed = [
        f"server.{key}"
        for key in Server.__struct_fields__
        if getattr(running.server, key) != getattr(new.server, key)
    ]
    fixed = ("memory", "client_refresh")
    return changed + [
        f"cache.{key}" for key in fixed if getattr(running.cache, key) != getattr(new.cache, key)
    ]


async def _listen(
    closing: AsyncExitStack,
    handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
    host: str,
    port: int,
    grace: float,
) -> str:
    """Accept connections until `closing` closes; requests have `grace` seconds to end.  Gives its URL."""
    runner = web.ServerRunner(Listener(handle), shutdown_timeout=grace)
    await runner.setup()
    closing.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, host, port, backlog=1024).start()
    bound = runner.addresses[0][1]
    return f"http://{f'[{host}]' if ':' in host else host}:{bound}"
