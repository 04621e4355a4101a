"""Getting to know an upstream: the probe that tells its era, and the handshake of the legacy one.

What may not come in: when to do it, and how old what was learnt is.

Hazards:
- A wrong "legacy" is a handshake that fails, a wrong failure is resources that are missing: what may be a
  passing trouble decides nothing (basic/versioning, "Backward Compatibility").
- A server may hold back all else until the handshake is ended by our notification.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from mcp_federator.config import Upstream
from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.federation.partition import Credentials
from mcp_federator.log import clean
from mcp_federator.metrics import Metrics
from mcp_federator.model import Caller, Era, Method, Query
from mcp_federator.protocol.era import of_probe
from mcp_federator.protocol.legacy import INITIALIZED, SPOKEN, call_headers, decode_initialize, session_id
from mcp_federator.protocol.modern import Discovered, decode_discover
from mcp_federator.protocol.vocabulary import MODERN
from mcp_federator.upstream.dialect import Dialect
from mcp_federator.upstream.discovery import Discovery, Known
from mcp_federator.upstream.door import Door
from mcp_federator.upstream.sender import Sender
from mcp_federator.upstream.sessions import Session, Sessions
from mcp_federator.upstream.streams import Streams
from mcp_federator.upstream.transport import NO_ENDPOINT, Changed, Exchange, StrangerError, Transport

_END_PATIENCE: Final = 2.0
"""Seconds that sessions may take to end when the upstream is closed."""

_CLIENT_ERRORS: Final = range(400, 500)

_NO_SUCH_ENDPOINT: Final = frozenset({404, 405})

_log = logging.getLogger(__name__)


class Introduction:
    """How one upstream is met.

    Args:
        name: its configured name.
        settings: its part of the configuration.
        transport: how it is reached.
        sender: what stands before that.
        dialect: how calls are put.
        door: reads the statuses of what comes in.
        credentials: what of a caller goes along.
        max_ttl: seconds that anything said may be believed.
        metrics: is told what the upstream is.
        clock: seconds, never going back.
        changed: is told of gaps in what the upstream says of changes.

    Attributes:
        discovery: what is known of it.
        sessions: those that are open.
    """

    def __init__(
        self,
        name: str,
        settings: Upstream,
        *,
        transport: Transport,
        sender: Sender,
        dialect: Dialect,
        door: Door,
        credentials: Credentials,
        max_ttl: float,
        metrics: Metrics,
        clock: Callable[[], float],
        changed: Changed,
    ) -> None:
        self._name = name
        self._timeout = settings.timeout
        self._probe_timeout = settings.probe_timeout if settings.kind == "stdio" else None
        self._transport = transport
        self._sender = sender
        self._dialect = dialect
        self._door = door
        self._partition = credentials.partition
        self._metrics = metrics
        self.discovery = Discovery(
            self._discover,
            asker=credentials.sent,
            max_life=max_ttl,
            clock=clock,
            incarnation=lambda: transport.incarnation,
            learnt=self._tell,
        )
        self._last_told = ("", "")
        self._told_over: Callable[[Session], None] = lambda _: None
        self._streams = Streams(name, transport, changed)
        self.sessions = Sessions(
            self._establish,
            self._end,
            used=self._streams.want,
            over=self._over,
            partition=credentials.partition,
            incarnation=lambda: transport.incarnation,
            clock=clock,
        )

    def on_over(self, over: Callable[[Session], None]) -> None:
        """Be told of each session that will not be used again."""
        self._told_over = over

    def _over(self, session: Session) -> None:
        self._streams.end(session)
        self._told_over(session)

    async def close(self) -> None:
        """Cancel the probes, and end the sessions with their streams."""
        await self.discovery.close()
        await self.sessions.close(asyncio.get_running_loop().time() + _END_PATIENCE)
        await self._streams.close()

    async def _discover(self, caller: Caller) -> Known:
        deadline = asyncio.get_running_loop().time() + self._timeout
        known = await self._probed(caller, deadline)
        if known.era is Era.LEGACY:
            try:
                session = await self.sessions.get(caller, deadline)
            except StrangerError as stranger:
                known = replace(known, problem=stranger.detail)
            except TimeoutError:
                raise self._sender.failure(Reason.TIMEOUT, "the handshake was not ended in time") from None
            else:
                known = replace(known, discovered=session.discovered)
        return replace(known, incarnation=self._transport.incarnation)

    def _tell(self) -> None:
        """Tell operators what the upstream is."""
        known = self.discovery.known
        if known is None:
            return
        self._metrics.upstream_info(self._name, known.era, known.version, self._transport.kind)
        now = (known.era, known.version or known.problem)
        if now != self._last_told:
            self._last_told = now
            _log.info("%s: the upstream is %s %s", self._name, *now)

    async def _probed(self, caller: Caller, deadline: float) -> Known:
        """What the answer to `server/discover` says; of a legacy server no more than that it is one."""
        call = self._dialect.modern(Query(Method.DISCOVER), caller)
        if self._probe_timeout is None:
            return await self._sender.send(call, self._partition(caller), deadline, self._read_probe)
        known = self.discovery.known
        if (
            known is not None
            and known.era is Era.LEGACY
            and known.discovered is not None
            and known.incarnation == self._transport.incarnation
        ):
            # A process does not change its era, and some end themselves when they are asked for it.
            return known
        # Over stdio there is no status: a legacy server may well say nothing at all.
        return await self._sender.send(
            call,
            self._partition(caller),
            min(deadline, asyncio.get_running_loop().time() + self._probe_timeout),
            self._read_probe,
            silence=lambda: Known(Era.LEGACY),
        )

    def _read_probe(self, exchange: Exchange) -> Known:
        """What the answer to a probe says (basic/versioning, "Backward Compatibility")."""
        self._door.check(exchange)
        reply = exchange.reply
        if of_probe(exchange.status, reply) is Era.LEGACY:
            return Known(Era.LEGACY)
        if reply is None:
            raise self._refusal(f"HTTP {exchange.status}")
        if reply.error is not None:
            raise self._refusal(f"error {reply.error.code}", code=reply.error.code)
        try:
            discovered = decode_discover(reply.result or b"")
        except ValueError as problem:
            raise self._sender.failure(Reason.BAD_REPLY, str(problem)) from problem
        if MODERN not in discovered.versions:
            raise self._sender.failure(Reason.REFUSED, f"it does not speak {MODERN}", stale_ok=False)
        return Known(Era.MODERN, discovered)

    async def _establish(self, caller: Caller) -> Session:
        """The handshake (2025-11-25, basic/lifecycle, "Initialization")."""
        deadline = asyncio.get_running_loop().time() + self._timeout
        call = self._dialect.initialize(caller)
        number, discovered = await self._sender.send(
            call, self._partition(caller), deadline, self._read_initialize
        )
        headers = call_headers(discovered.versions[0], number) | self._dialect.forwarded(caller)
        context = self._partition(caller) or None
        session = Session(number, discovered, self._transport.incarnation, headers, context)
        await self._transport.notify(INITIALIZED, headers, deadline)
        return session

    def _read_initialize(self, exchange: Exchange) -> tuple[str | None, Discovered]:
        self._door.check(exchange)
        reply = exchange.reply
        if exchange.status in _CLIENT_ERRORS:
            nobody = reply is None and exchange.status in _NO_SUCH_ENDPOINT
            hint = f", {NO_ENDPOINT}" if nobody else ""
            raise self._stranger(f"HTTP {exchange.status} to initialize{hint}")
        if reply is None or reply.result is None:
            code = 0 if reply is None or reply.error is None else reply.error.code
            raise self._stranger(f"error {code} to initialize")
        try:
            number, discovered = session_id(exchange.session), decode_initialize(reply.result)
        except ValueError as problem:
            raise self._sender.failure(Reason.BAD_REPLY, str(problem)) from problem
        if discovered.versions[0] not in SPOKEN:
            raise self._stranger(f"it speaks {clean(discovered.versions[0])}, which we do not")
        return number, discovered

    async def _end(self, session: Session) -> None:
        await self._transport.end(session.headers, asyncio.get_running_loop().time() + self._timeout)

    def _refusal(self, detail: str, code: int | None = None) -> UpstreamFailure:
        return self._sender.failure(Reason.REFUSED, detail, personal=True, stale_ok=False, code=code)

    def _stranger(self, detail: str) -> StrangerError:
        return StrangerError(self._name, Reason.REFUSED, detail, personal=True, stale_ok=False)
