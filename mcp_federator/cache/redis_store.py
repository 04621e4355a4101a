"""The tier all replicas share: how Redis is reached, and what becomes of its failures.

Every failure of Redis ends here as "no answer": it is counted, the breaker is told, and nothing is raised.
While the breaker is open no command is tried; a request is never the one that finds out whether Redis is back
(`probe` is, from a task of its own), so an outage costs requests nothing.

What may not come in: what is kept, or why; how a URL is read (`redis_client`).

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

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection, ConnectionPool

from mcp_federator.breaker import Breaker, State, Ticket
from mcp_federator.cache.channel import Lost, Subscription
from mcp_federator.cache.redis_client import connect
from mcp_federator.cache.scripts import Script
from mcp_federator.deadline import until

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

Command: TypeAlias = tuple[str | bytes | int, ...]


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
        url: see `redis_client`.
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
        self._client, self._sentinels, self._places = connect(url, timeout)
        self._lines = _Lines(self._client.connection_pool) if isinstance(self._client, Redis) else None
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
                return await self._execute("EVALSHA", script.sha, *rest)
            except exceptions.NoScriptError:
                return await self._execute("EVAL", script.text, *rest)

        return await self._ask(script.operation, call, self._timeout)

    async def _execute(self, *command: str | bytes | int) -> Any:
        if self._lines is not None:
            return await self._lines.execute(command)
        return await self._client.execute_command(*command)

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

    async def reach(self, channel: bytes, message: bytes) -> int:
        """Say something, and to how many; in a cluster only those who listen at the same node are counted."""

        async def call() -> Any:
            return await self._client.execute_command("PUBLISH", channel, message)

        reached = await self._ask("publish", call, self._timeout * _WRITE_PATIENCE)
        return reached if isinstance(reached, int) else 0

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
            await self.renew()
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

    async def renew(self) -> None:
        """Forget idle connections: they may lead to who was in charge before."""
        if self._lines is not None:
            with suppress(Exception):
                async with asyncio.timeout(self._timeout):
                    await self._lines.disconnect()
                    await self._lines.pool.disconnect(inuse_connections=False)

    async def close(self) -> None:
        """Let go of all connections."""
        await self.renew()
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
            with _heedful(), until(asyncio.get_running_loop().time() + patience):
                async with self._slots:
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
                await self.renew()
        return None


class _Lines:
    """Connections of our own, each for one command at a time.

    The client's pool looks, locks, counts and starts tasks around each command, which takes longer than the
    command does.  Whoever calls sees to time-outs and to how many there are.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self.pool = pool
        self._idle: list[AbstractConnection] = []

    async def execute(self, command: Command) -> Any:
        """What a command gives; raises what the client raises."""
        line = self._idle.pop() if self._idle else self._another()
        try:
            if line.is_connected and await line.can_read():
                # It was closed from the other side.
                await line.disconnect(nowait=True)
            if not line.is_connected:
                await line.connect()  # type: ignore[no-untyped-call]  # theirs
            await line.send_packed_command(_packed(command), check_health=False)
            reply = await line.read_response()
        except exceptions.ResponseError:
            # An answer like any other.
            self._idle.append(line)
            raise
        except BaseException:
            # Of what was begun nothing must be left for the next.
            await line.disconnect(nowait=True)
            raise
        self._idle.append(line)
        return reply

    async def disconnect(self) -> None:
        """Let go of those that are idle."""
        idle, self._idle = self._idle, []
        for line in idle:
            await line.disconnect(nowait=True)

    def _another(self) -> AbstractConnection:
        line: AbstractConnection = self.pool.make_connection()  # type: ignore[no-untyped-call]  # theirs
        # With one, each command would be a task of its own.
        line.socket_timeout = None
        return line


def _packed(command: Command) -> bytes:
    """A command as it is sent (the protocol's "array of bulk strings")."""
    parts = [b"*%d\r\n" % len(command)]
    for word in command:
        text = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(text), text))
    return b"".join(parts)


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
        if isinstance(reply, list) and len(reply) == 3 and reply[0] == b"message":  # noqa: PLR2004 - kind, channel, text
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
