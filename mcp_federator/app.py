"""The life of the process: what is in force behind two listeners, the signals, the watch on the files.

With `stacks` the only room that knows all rooms.

Hazards, all of order:
- Addresses are taken first, so that a port somebody else has is found before anything is started; connections
  are accepted last.
- At the end the door closes first, then requests run out, then the upstreams go.
"""

import asyncio
import errno
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from mcp_federator import __version__
from mcp_federator.config import Config
from mcp_federator.endpoint.admin import Admin
from mcp_federator.endpoint.exchange import InFlight
from mcp_federator.endpoint.guard import is_loopback
from mcp_federator.endpoint.routes import Endpoint
from mcp_federator.endpoint.wire import Server as Listener
from mcp_federator.errors import ConfigError
from mcp_federator.federation.partition import DEFAULT_CREDENTIAL_HEADERS
from mcp_federator.metrics import Metrics
from mcp_federator.request_log import RequestLog
from mcp_federator.stacks import Federation, needs_restart, redis_of

WATCH_SECONDS: Final = 2.0
"""How often the configuration's files are read again.  They are polled, since a ConfigMap changes by swapping
a symlink, which no watch on a file sees."""

_BACKLOG: Final = 1024
_ADMIN_GRACE: Final = 1.0
_NOT_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""What is no fault where a name has another address: `localhost` has one of IPv6, not so all machines."""

_log = logging.getLogger(__name__)


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
        self._places = InFlight(server.max_in_flight)
        self._redis = redis_of(config, self._metrics, clock)
        self._federation = Federation(
            config, self._metrics, clock, self._places, self._redis, subscribes=True
        )
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
        self._last_reload: dict[str, str] | None = None

    async def run(self, ready: Callable[[str, str], None] | None = None) -> None:
        """Serve until `stop` or a signal says otherwise; `ready` gets the URLs of both listeners.

        Raises:
            ConfigError: the configuration cannot be used, or an address of a listener; then nothing was
                started.
        """
        server = self._config.server
        async with AsyncExitStack() as closing:
            closing.callback(self._request_log.close)
            mcp = _Address("", server.host, server.port)
            admin = _Address("admin_", server.admin_host, server.admin_port)
            taken = closing.enter_context(ExitStack())
            await mcp.take(taken)
            await admin.take(taken)
            # From here to the very end: a signal must not orphan a process that was started.
            closing.enter_context(self._signals())
            if self._redis is not None:
                closing.push_async_callback(self._redis.close)
                self._redis.start()
            closing.push_async_callback(self._federation.close)
            closing.push_async_callback(self._endpoint.close)
            await self._federation.apply(self._config)
            # The listener entered last is left first: the admin one shows the stop to its end.
            admin_url = await admin.accept(closing, Listener(self._admin.handle), _ADMIN_GRACE)
            listener = Listener(self._endpoint.handle, self._endpoint.turned_away)
            url = await mcp.accept(closing, listener, server.grace)
            work = asyncio.create_task(self._keep_current(), name="reload")
            closing.callback(work.cancel)
            for warning in _warnings(self._config):
                _log.warning(warning)
            self._unready = None
            if ready is not None:
                ready(f"{url}{server.path}", admin_url)
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
            self._note_reload("refused", str(error))
            _log.error("the new configuration is refused, the old one stays in force: %s", error)
            return
        except Exception:  # noqa: BLE001 - a reload that fails must not end the service
            self._note_reload("failed", "the log tells why")
            _log.exception("the new configuration could not be put in force, the old one stays")
            return
        self._endpoint.forward(*_forwarded(config))
        waiting = needs_restart(self._config, config)
        self._note_reload("applied", f"after a restart: {', '.join(waiting)}" if waiting else "")
        for key in waiting:
            _log.warning("%s has changed; it takes effect after a restart", key)
        for warning in _warnings(self._federation.config):
            _log.warning(warning)
        _log.info("the new configuration is in force: %s", ", ".join(config.upstreams))

    def _note_reload(self, result: str, message: str) -> None:
        self._metrics.reload(result)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self._last_reload = {"result": result, "at": at, "message": message}

    def _status(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "ready": self._unready is None,
            "uptime_seconds": round(time.time() - self._started, 1),
            "last_reload": self._last_reload,
            "in_flight": self._places.count,
            **self._federation.status(),
        }


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


class _Address:
    """Where one listener listens.

    Args:
        keys: what stands in the configuration before its `host` and `port`.
        host: name or address.
        port: 0 for a free one.
    """

    def __init__(self, keys: str, host: str, port: int) -> None:
        self._keys = keys
        self._host = host
        self._port = port
        self._sockets: list[socket.socket] = []

    async def take(self, closing: ExitStack) -> None:
        """Keep it from others until `closing` closes; nobody is let in yet.  Raises `ConfigError`."""
        with self._explained():
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            missing: OSError | None = None
            for family, kind, protocol, _, address in dict.fromkeys(found):
                try:
                    one = closing.enter_context(socket.socket(family, kind, protocol))
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    if family == socket.AF_INET6:
                        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                    one.bind(address)
                except OSError as problem:
                    if problem.errno not in _NOT_HERE:
                        raise
                    missing = problem
                else:
                    self._sockets.append(one)
            if missing is not None and not self._sockets:
                raise missing

    async def accept(self, closing: AsyncExitStack, listener: Listener, grace: float) -> str:
        """Let clients in until `closing` closes; requests have `grace` seconds to end.  Gives the URL."""
        runner = web.ServerRunner(listener, shutdown_timeout=grace)
        await runner.setup()
        closing.push_async_callback(runner.cleanup)
        with self._explained():  # two that were started at once may both have taken it
            for one in self._sockets:
                await web.SockSite(runner, one, backlog=_BACKLOG).start()
        port = runner.addresses[0][1]
        return f"http://{f'[{self._host}]' if ':' in self._host else self._host}:{port}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except UnicodeError as problem:
            raise ConfigError(
                f"server.{self._keys}host", "expected a host name or an IP address"
            ) from problem
        except OSError as problem:
            if problem.errno == errno.EADDRINUSE:
                wrong, said = "port", f"{self._port} of {self._host} is in use by another program"
            elif problem.errno == errno.EACCES:
                wrong, said = "port", f"{self._port} may not be used without privileges"
            else:
                why = (problem.strerror or "it is no address of this machine").lower()
                wrong, said = "host", f"{self._host} cannot be listened on: {why}"
            raise ConfigError(f"server.{self._keys}{wrong}", said) from problem
