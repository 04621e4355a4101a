"""The tier all replicas share: how Redis is reached, and what becomes of its failures.

Every failure of Redis ends here as "no answer": it is counted, the breaker is told, and nothing is raised.
While the breaker is open no command is tried; a request is never the one that finds out whether Redis is back
(`probe` is, from a task of its own), so an outage costs requests nothing.

One URL says how: `redis://`, `rediss://`, `unix://`,
`redis+sentinel://[user:password@]host:port,.../service/db`, `redis+cluster://[user:password@]host:port,...`,
`rediss+sentinel://` and `rediss+cluster://`; options stand in the query.

The only room that knows `redis`.

Hazards:
- A command that was given up leaves a reply on its way; its connection must be dropped, never used again.
- The client loses cancellations (`asyncio.wait_for` of Python 3.11 does, where what it waits for has just
  ended): whoever calls it looks afterwards whether there was one.
- The client would try again by itself: that is switched off, for each try costs its asker time.  That it
  reconnects by itself cannot be; so a subscription goes below it, and its end tells that Redis went.
- Pools of the client do not wait alike (Sentinel's and Cluster's fail at once): the limit on commands at a
  time is ours.
- An answer "not enough memory" or "no such script" comes from a Redis in good health.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from time import monotonic
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from redis import exceptions
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from mcp_federator.breaker import Breaker, State, Ticket
from mcp_federator.cache.channel import Lost, Subscription
from mcp_federator.cache.scripts import Script

T = TypeVar("T")

TIMEOUT: Final = 0.25
"""Seconds a request waits for Redis at most, connecting included."""

CONNECTIONS: Final = 32
"""Commands at a time, each on a connection of its own."""

FAILURES: Final = 3
OPEN_FOR: Final = 0.5
MAX_OPEN_FOR: Final = 10.0
"""Failures in a row that open the breaker, and seconds it stays open at first and at most."""

_WRITE_PATIENCE: Final = 4
# Changes are written in batches, by tasks of their own: they may take longer than a request may.

_QUERY: Final = frozenset(
    {
        "db",
        "sentinel_password",
        "sentinel_username",
        "ssl_ca_certs",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_keyfile",
    }
)

_FORMS: Final = (
    "redis://, rediss://, unix://, redis+sentinel://HOST:PORT,.../SERVICE, redis+cluster://HOST:PORT,..., "
    "rediss+sentinel:// or rediss+cluster://"
)

Command: TypeAlias = tuple[str | bytes | int, ...]
Client: TypeAlias = "Redis | RedisCluster"


class Fault(StrEnum):
    """Why there was no answer; for metrics."""

    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    DENIED = "denied"
    """Wrong credentials, or a command or key the user may not touch."""
    READONLY = "readonly"
    UNREADY = "unready"
    """It is loading, failing over, or busy with a script."""
    BUSY = "busy"
    """All our connections were in use."""
    OOM = "oom"
    """It has no memory left, and may not make room."""
    REFUSED = "refused"
    """Any other error it answered."""


_HEALTHY: Final = frozenset({Fault.OOM, Fault.REFUSED})

Observe: TypeAlias = Callable[[str, float, str], None]
"""Is told each operation, its seconds, and its `Fault`, or `""`."""


class RedisStore:
    """Commands to one Redis, however it is deployed.

    Args:
        url: see above.
        key_prefix: what all our keys begin with.
        timeout: seconds a command may take, waiting for a connection and connecting included.
        connections: commands at a time.
        observe: counts.
        clock: seconds, never backwards.

    Raises:
        ValueError: the URL; says what was expected, and nothing that may be secret.
    """

    def __init__(
        self,
        url: str,
        *,
        key_prefix: str = "mcpf:",
        timeout: float = TIMEOUT,
        connections: int = CONNECTIONS,
        observe: Observe = lambda *_: None,
        clock: Callable[[], float] = monotonic,
        breaker: Breaker | None = None,
    ) -> None:
        self._client, self._sentinels, self._places = _client(url, timeout)
        _share_context(self._client)
        self._prefix = key_prefix
        self._timeout = timeout
        self._slots = asyncio.Semaphore(connections)
        self._observe = observe
        self._troubled: Callable[[], None] = lambda: None
        self._clock = clock
        self._breaker = breaker or Breaker(FAILURES, OPEN_FOR, MAX_OPEN_FOR)

    @property
    def state(self) -> State:
        """What the next command meets."""
        return self._breaker.state(self._clock())

    def on_trouble(self, troubled: Callable[[], None]) -> None:
        """Be told of each failure that may mean that Redis is another one, or not what it was."""
        self._troubled = troubled

    async def run(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str | int]) -> Any:
        """What a script gives, or None for no answer."""
        rest = (len(keys), *keys, *arguments)

        async def call() -> Any:
            try:
                return await self._client.execute_command("EVALSHA", script.sha, *rest)
            except exceptions.NoScriptError:
                return await self._client.execute_command("EVAL", script.text, *rest)

        return await self._ask(script.operation, call, self._timeout)

    async def write(self, operation: str, commands: Sequence[Command]) -> bool | None:
        """Send commands together, of any keys; None for no answer, False if one of them was refused."""

        async def call() -> bool:
            pipeline = self._client.pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            errors = [
                result
                for result in await pipeline.execute(raise_on_error=False)
                if isinstance(result, Exception)
            ]
            for error in errors:
                if _fault(error) not in _HEALTHY:
                    raise error
            return not errors

        answer = await self._ask(operation, call, self._timeout * _WRITE_PATIENCE)
        return None if answer is None else bool(answer)

    async def publish(self, channel: bytes, messages: Sequence[bytes]) -> bool:
        """Say something to all who listen; True once Redis has taken all of it."""

        async def call() -> bool:
            for message in messages:
                await self._client.execute_command("PUBLISH", channel, message)
            return True

        return await self._ask("publish", call, self._timeout * _WRITE_PATIENCE) is True

    async def probe(self) -> bool:
        """Find out whether Redis is back, once it is time; True if commands may be sent."""
        match self.state:
            case State.CLOSED:
                return True
            case State.OPEN:
                return False
        ticket = self._breaker.admit(self._clock())
        if ticket is None:
            return False

        async def call() -> Any:
            if isinstance(self._client, Redis):
                await self._client.connection_pool.disconnect(inuse_connections=False)
            # Only who can be written to is of use; deleting works where memory is short.
            key = f"{self._prefix}probe:{random.randrange(1 << 30)}"
            return await self._client.execute_command("DEL", key)

        # As many places may have to be tried before one answers.
        return await self._try("probe", call, self._timeout * (2 + self._places), ticket) is not None

    async def subscribe(self, channel: bytes) -> Subscription:
        """A connection of its own that listens.

        Raises:
            Lost: there is none to be had.
        """
        started = self._clock()
        subscription: _Subscription | None = None
        try:
            with _heedful():
                async with asyncio.timeout(self._timeout * (2 + self._places)):
                    subscription = _Subscription(await self._connection())
                    await subscription.open(channel)
        except Exception as error:
            self._observe("subscribe", self._clock() - started, _fault(error))
            if subscription is not None:
                await subscription.close()
            raise Lost from error
        self._observe("subscribe", self._clock() - started, "")
        return subscription

    async def close(self) -> None:
        """Let go of all connections."""
        for client in (self._client, *self._sentinels):
            with suppress(Exception):
                async with asyncio.timeout(self._timeout):
                    await client.aclose()

    async def _connection(self) -> AbstractConnection:
        client = self._client
        if isinstance(client, Redis):
            made: AbstractConnection = client.connection_pool.make_connection()  # type: ignore[no-untyped-call]  # theirs
            return made
        await client.initialize()
        node = random.choice(client.get_nodes())
        return node.connection_class(**node.connection_kwargs)

    async def _ask(self, operation: str, call: Callable[[], Awaitable[T]], patience: float) -> T | None:
        now = self._clock()
        if self._breaker.state(now) is not State.CLOSED:
            return None
        ticket = self._breaker.admit(now)
        return None if ticket is None else await self._try(operation, call, patience, ticket)

    async def _try(
        self, operation: str, call: Callable[[], Awaitable[T]], patience: float, ticket: Ticket
    ) -> T | None:
        started = self._clock()
        fault: Fault
        waiting = True
        try:
            with _heedful():
                async with asyncio.timeout(patience), self._slots:
                    waiting = False
                    answer = await call()
        except Exception as error:  # noqa: BLE001 - whatever its client meets is trouble with Redis
            fault = Fault.BUSY if waiting else _fault(error)
        except BaseException:
            self._breaker.release(ticket)
            raise
        else:
            self._breaker.succeed(ticket)
            self._observe(operation, self._clock() - started, "")
            return answer
        self._observe(operation, self._clock() - started, fault)
        if fault is Fault.BUSY:
            self._breaker.release(ticket)
        elif fault in _HEALTHY:
            self._breaker.succeed(ticket)
        else:
            self._breaker.fail(ticket, self._clock())
            self._troubled()
            if fault is Fault.READONLY:
                await self._reconnect()
        return None

    async def _reconnect(self) -> None:
        """Forget idle connections: they lead to who was in charge before."""
        if isinstance(self._client, Redis):
            with suppress(Exception):
                async with asyncio.timeout(self._timeout):
                    await self._client.connection_pool.disconnect(inuse_connections=False)


class _Subscription(Subscription):
    """One connection, below the client's own `PubSub`: that one comes back by itself, and nobody knows."""

    def __init__(self, connection: AbstractConnection) -> None:
        self._connection = connection
        self.run_id = b""
        self.uptime = 0.0

    async def open(self, channel: bytes) -> None:
        await self._connection.connect()  # type: ignore[no-untyped-call]  # theirs
        await self._connection.send_command("INFO", "server")
        with suppress(exceptions.NoPermissionError):
            told = await self._connection.read_response()
            facts = dict(line.split(b":", 1) for line in told.split(b"\r\n") if b":" in line)
            self.run_id = facts.get(b"run_id", b"")
            self.uptime = float(facts.get(b"uptime_in_seconds", b"0"))
        await self._connection.send_command("SUBSCRIBE", channel)
        await self._connection.read_response()

    async def read(self, seconds: float) -> bytes | None:
        try:
            with _heedful():
                reply = await self._connection.read_response(timeout=seconds)
        except Exception as error:
            raise Lost from error
        if reply is None:
            return None
        if isinstance(reply, list) and len(reply) == 3 and reply[0] == b"message":  # noqa: PLR2004
            return bytes(reply[2])
        return b""

    async def ping(self) -> None:
        if not self._connection.is_connected:
            raise Lost
        try:
            with _heedful():
                await self._connection.send_command("PING", check_health=False)
        except Exception as error:
            raise Lost from error

    async def close(self) -> None:
        with suppress(Exception):
            await self._connection.disconnect(nowait=True)


def _share_context(client: Client) -> None:
    """Let all connections of a client have one TLS context.

    Theirs makes one for each, which takes some 50 ms of the loop's time: that of two hundred look-ups.
    """
    contexts: list[Any] = []

    def sharing(kind: type[Any]) -> type[Any]:
        class Sharing(kind):  # type: ignore[misc]  # which class it is, is known at run time
            ssl_context: Any

            def __init__(self, **named: Any) -> None:
                super().__init__(**named)
                if not contexts:
                    self.ssl_context.get()
                    contexts.append(self.ssl_context)
                self.ssl_context = contexts[0]

        return Sharing

    if isinstance(client, Redis):
        pool: Any = client.connection_pool
        if issubclass(pool.connection_class, SSLConnection):
            pool.connection_class = sharing(pool.connection_class)
            pool.make_connection()
    else:
        options = client.nodes_manager.connection_kwargs
        if options["connection_class"] is SSLConnection:
            options["connection_class"] = sharing(SSLConnection)
            for node in client.nodes_manager.startup_nodes.values():
                node.connection_class = options["connection_class"]


@contextmanager
def _heedful() -> Iterator[None]:
    """A block that ends cancelled if its task was cancelled in it, however else it would have ended."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        yield
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


_BY_TYPE: Final[tuple[tuple[type[Exception], Fault], ...]] = (
    (exceptions.AuthenticationError, Fault.DENIED),
    (exceptions.AuthorizationError, Fault.DENIED),
    (exceptions.NoPermissionError, Fault.DENIED),
    (exceptions.TimeoutError, Fault.TIMEOUT),
    (TimeoutError, Fault.TIMEOUT),
    (exceptions.ReadOnlyError, Fault.READONLY),
    (exceptions.OutOfMemoryError, Fault.OOM),
    (exceptions.BusyLoadingError, Fault.UNREADY),
    (exceptions.ClusterDownError, Fault.UNREADY),
    (exceptions.AskError, Fault.UNREADY),
    (exceptions.TryAgainError, Fault.UNREADY),
)

# An error inside a script has a type of its own only in its text.
_BY_WORD: Final = {
    "OOM ": Fault.OOM,
    "READONLY": Fault.READONLY,
    "NOPERM": Fault.DENIED,
    "NOAUTH": Fault.DENIED,
    "WRONGPASS": Fault.DENIED,
    "BUSY ": Fault.UNREADY,
    "LOADING": Fault.UNREADY,
    "MASTERDOWN": Fault.UNREADY,
    "CLUSTERDOWN": Fault.UNREADY,
    "NOREPLICAS": Fault.UNREADY,
    "MISCONF": Fault.UNREADY,
}


def _fault(error: Exception) -> Fault:
    for kind, fault in _BY_TYPE:
        if isinstance(error, kind):
            return fault
    if isinstance(error, exceptions.ResponseError):
        text = str(error)
        return next((fault for word, fault in _BY_WORD.items() if word in text), Fault.REFUSED)
    return Fault.UNREACHABLE


def _client(url: str, timeout: float) -> tuple[Client, Sequence[Redis], int]:
    """The client a URL asks for, those of its sentinels, and how many places may have to be asked."""
    scheme, _, rest = url.partition("://")
    base, _, form = scheme.partition("+")
    forms = {"redis": _CLUSTERED, "rediss": _CLUSTERED, "unix": {""}}
    if not rest or form not in forms.get(base, ()):
        raise ValueError(f"expected {_FORMS}")
    parts, query = _split(base, rest)
    if base != "unix" and not parts.hostname:
        raise ValueError(f"expected {_FORMS}")
    watcher = {name: query.pop(name) for name in ("sentinel_username", "sentinel_password") if name in query}
    common: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        # The limit is ours; theirs does not wait.
        "max_connections": 1 << 16,
    }
    user, _, hosts = parts.netloc.rpartition("@")
    options = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    path = [unquote(part) for part in parts.path.split("/") if part]
    if not form:
        database = f"/{path[0]}" if path and base != "unix" else parts.path
        named = _named(f"{base}://{parts.netloc}{database}?{options}")
        if base != "unix" and (len(path) > 1 or not all(part.isdecimal() for part in path)):
            raise ValueError(f"expected {base}://HOST:PORT/DATABASE")
        return Redis(**named, **common), (), 1
    named = _named(f"{base}://{user and user + '@'}host/?{options}")
    del named["host"]
    places = [_place(host, 26379 if form == "sentinel" else 6379) for host in hosts.split(",")]
    if form == "cluster":
        if path or "db" in named:
            raise ValueError("expected no database: a cluster has one")
        nodes = [ClusterNode(*place) for place in places]
        return RedisCluster(startup_nodes=nodes, **named, **common), (), len(places)
    service, database = {1: (*path, "0"), 2: path}.get(len(path), ("", ""))
    if not database.isdecimal():
        raise ValueError("expected redis+sentinel://HOST:PORT,.../SERVICE or .../SERVICE/DATABASE")
    secure = {name: value for name, value in named.items() if name.startswith("ssl")}
    login = {name.removeprefix("sentinel_"): value for name, value in watcher.items()}
    sentinel = Sentinel(  # type: ignore[no-untyped-call]  # theirs
        places, sentinel_kwargs={**common, **secure, **login}
    )
    client: Redis = sentinel.master_for(service, **{"db": int(database), **named, **common})
    return client, sentinel.sentinels, len(places)


_CLUSTERED: Final = frozenset({"", "sentinel", "cluster"})


def _split(base: str, rest: str) -> tuple[SplitResult, dict[str, str]]:
    try:
        parts = urlsplit(f"{base}://{rest}")
        query = {
            name: values[0]
            for name, values in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()
        }
    except ValueError:
        # The message would tell the URL, and so the password.
        raise ValueError(f"expected {_FORMS}") from None
    if unknown := set(query) - _QUERY:
        raise ValueError(f"unknown option {min(unknown)!r}; known are {', '.join(sorted(_QUERY))}")
    return parts, query


def _named(url: str) -> dict[str, Any]:
    """What a simple URL says, as parameters of any client."""
    try:
        named: dict[str, Any] = {**parse_url(url)}
    except ValueError:
        raise ValueError(f"expected {_FORMS}") from None
    if named.pop("connection_class", None) is not None and "path" not in named:
        named["ssl"] = True
    if "path" in named:
        named["unix_socket_path"] = named.pop("path")
    return named


def _place(text: str, default: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host:
        raise ValueError("expected HOST:PORT,HOST:PORT")
    return host, port or default
