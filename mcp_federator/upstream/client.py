"""One upstream, as the rest of the house sees it: the `Source` that asks it.

Here is decided whether the upstream is asked at all, and what follows from what it says: probe, bulkheads,
breaker, holds, retries, resolution.  How bytes get there is the transport's affair, what an answer means the
door's.

Hazards:
- One deadline covers a whole fetch: the probe before it, the wait for a connection, a second try, a walk.
- Each ticket of the breaker goes back, whatever happens, our own cancellation included.
- Only what was sent is counted in the metrics, each request once, by how it ended.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from mcp_federator.config import Lists, Upstream
from mcp_federator.errors import Reason, UpstreamError, UpstreamFailure
from mcp_federator.federation.partition import Credentials
from mcp_federator.federation.prefix import Mapping
from mcp_federator.log import clean
from mcp_federator.metrics import Metrics
from mcp_federator.model import ANYONE, Answer, Caller, Era, Hint, Method, Query, Scope
from mcp_federator.protocol.era import of_probe
from mcp_federator.protocol.jsonrpc import encode_call
from mcp_federator.protocol.modern import Discovered, call_headers, call_params, decode_discover
from mcp_federator.protocol.vocabulary import MODERN, Code
from mcp_federator.upstream.breaker import Breaker, State, Ticket
from mcp_federator.upstream.discovery import DOUBT, Discovery, Known
from mcp_federator.upstream.door import Door, Passed
from mcp_federator.upstream.hold import Holds
from mcp_federator.upstream.limits import Budget, FullError, Slots, TooLargeError
from mcp_federator.upstream.resolution import Resolver
from mcp_federator.upstream.streamable_http import StreamableHttp
from mcp_federator.upstream.transport import Call, Exchange, Transport

_Read = TypeVar("_Read")

_SICK: Final = frozenset({Reason.UNREACHABLE, Reason.TIMEOUT, Reason.BAD_REPLY})
"""What the breaker counts."""

_DOUBTFUL: Final = frozenset({400, 404, 405})
"""With these statuses a server says that it is not what we took it for."""

_log = logging.getLogger(__name__)


class UpstreamStatus(msgspec.Struct, frozen=True):
    """What `/status` and `check` tell of an upstream.

    Attributes:
        name: its configured name.
        address: scheme, host and port; the rest of the URL may be a secret.
        transport: how it is reached.
        era: None until a probe has told.
        version: the protocol version spoken with it, `""` where none is.
        server: name and version of its software, as it says; cleaned.
        resources: whether it declares resources; None until a probe has told.
        up: it answered when it was asked last.
        breaker: `closed`, `open`, `half-open`.
        in_flight: queries under way.
        error: why it last failed, in our words, or `""` when it answered since.
    """

    name: str
    address: str
    transport: str
    era: Era | None
    version: str
    server: str
    resources: bool | None
    up: bool
    breaker: str
    in_flight: int
    error: str


class Client:
    """The client of one upstream.

    Args:
        name: its configured name.
        settings: its part of the configuration.
        mapping: its names.
        credentials: what of a caller goes along.
        max_ttl: seconds that any answer may be kept.
        metrics: counts requests by how they ended.
        clock: seconds, never going back.
        budget: bytes of answers under way, of the whole process.
        slots: queries under way, of the whole process.
        lists: how far this client may walk a list by itself.

    Raises:
        ConfigError: the URL, the TLS files or the proxy cannot be used.
    """

    def __init__(
        self,
        name: str,
        settings: Upstream,
        *,
        mapping: Mapping,
        credentials: Credentials,
        max_ttl: float,
        metrics: Metrics,
        clock: Callable[[], float],
        budget: Budget,
        slots: Slots,
        lists: Lists = Lists(),  # noqa: B008 - frozen
    ) -> None:
        self._name = name
        self._settings = settings
        self._credentials = credentials
        self._metrics = metrics
        self._clock = clock
        self._budget = budget
        self._process_slots = slots
        self._slots = Slots(settings.max_in_flight)
        self._transport: Transport = StreamableHttp(name, settings)
        self._door = Door(mapping, settings.cache, max_ttl)
        self._breaker = Breaker(
            settings.breaker.failures, settings.breaker.open_for, settings.breaker.max_open_for
        )
        self._holds = Holds()
        self._resolver = Resolver(mapping, lists, clock)
        self._discovery = Discovery(
            self._discover, partition=credentials.partition, max_life=max_ttl, clock=clock
        )
        self._ids = count(1)
        self._capabilities = msgspec.json.encode(settings.client_capabilities)
        self._up = False
        self._error = ""

    async def start(self) -> None:
        """Make ready, and begin to probe in the background; an upstream that is down does not matter here."""
        await self._transport.start()
        self._discovery.refresh(ANYONE)

    async def close(self) -> None:
        """Cancel the probes and close every connection; what is under way fails."""
        await self._discovery.close()
        await self._transport.close()

    async def probe(self) -> Discovered:
        """Ask the upstream now what it is; raises `UpstreamFailure`."""
        return await self._in_time(self._discovery.probe(ANYONE, self._deadline()))

    def forget(self) -> None:
        """The upstream's list changed: what was learnt from it for resolution is void."""
        self._resolver.forget()

    @property
    def status(self) -> UpstreamStatus:
        """What may be told of this upstream now."""
        known = self._discovery.known
        discovered = None if known is None else known.discovered
        server = "" if discovered is None else f"{discovered.server_name} {discovered.server_version}".strip()
        return UpstreamStatus(
            name=self._name,
            address=self._transport.address,
            transport=self._transport.kind,
            era=None if known is None else known.era,
            version="" if discovered is None else MODERN,
            server=clean(server),
            resources=None if discovered is None else discovered.resources,
            up=self._up,
            breaker=self._breaker.state(self._clock()),
            in_flight=self._slots.taken,
            error=self._error,
        )

    async def fetch(self, query: Query, caller: Caller) -> Answer:
        """Answer a list or a read with native URI, in public URIs and with a hint that can be believed.

        Raises:
            UpstreamError: the upstream's answer is an error.
            UpstreamFailure: it gave none, or was not asked.
        """
        try:
            with self._process_slots, self._slots:
                return await self._fetch(query, caller)
        except FullError as full:
            raise self._failure(Reason.OVERLOADED, str(full), asked=False) from full

    async def _fetch(self, query: Query, caller: Caller) -> Answer:
        deadline = self._deadline()
        known = await self._in_time(self._discovery.know(caller, deadline))
        # What was declared to one caller says nothing of what another may have.
        if not known.resources and not self._credentials.forwards:
            if query.uri is not None:
                raise self._door.not_found(query.uri)
            return self._door.empty(self._nothing()).answer
        try:
            return await self._ask(query, caller, deadline)
        except UpstreamFailure as failure:
            if failure.code != Code.UNSUPPORTED_VERSION:
                raise
            await self._in_time(self._discovery.probe(caller, deadline))
        except UpstreamError as error:
            original = await self._original(query, caller, deadline) if error.not_found else None
            if original is None:
                raise
            answer = await self._ask(replace(query, uri=original), caller, deadline)
            # It is kept as the answer to what was asked, and changes with what was meant.
            return replace(answer, uris=(original, *answer.uris))
        return await self._ask(query, caller, deadline)

    async def _in_time(self, knowing: Awaitable[Known]) -> Discovered:
        """What the upstream is, if it becomes known in time and is something we can ask."""
        try:
            known = await knowing
        except TimeoutError:
            raise self._failure(Reason.TIMEOUT, "the probe was not answered in time") from None
        if known.discovered is None:
            raise self._failure(Reason.REFUSED, "a legacy server, which is not supported yet", stale_ok=False)
        return known.discovered

    async def _ask(self, query: Query, caller: Caller, deadline: float) -> Answer:
        """Send a list or a read, and let its answer in."""

        def read(exchange: Exchange) -> Passed:
            try:
                return self._door.passed(query, exchange, self._nothing)
            except UpstreamFailure as failure:
                if failure.reason is Reason.REFUSED and exchange.status in _DOUBTFUL:
                    self._discovery.refresh(ANYONE, pause=DOUBT)
                raise

        passed = await self._send(query, caller, deadline, read)
        if passed.dropped:
            _log.info(
                "%s: %d items in an answer to %s are left out: not published, or not as the schema has them",
                self._name,
                passed.dropped,
                query.method,
            )
        if query.method is Method.LIST:
            self._resolver.observe(self._lists_of(caller), query.cursor, passed.uris)
        return passed.answer

    async def _original(self, query: Query, caller: Caller, deadline: float) -> str | None:
        """The listed URI that was meant by one the upstream does not know; None where there is none."""

        async def turn(cursor: str | None) -> Answer:
            return await self._ask(Query(Method.LIST, cursor=cursor), caller, self._deadline())

        return await self._resolver.resolve(query.uri or "", self._lists_of(caller), turn, deadline)

    async def _discover(self, caller: Caller) -> Known:
        known = await self._send(Query(Method.DISCOVER), caller, self._deadline(), self._read_discover)
        version = "" if known.discovered is None else MODERN
        self._metrics.upstream_info(self._name, known.era, version, self._transport.kind)
        if self._discovery.known is None or self._discovery.known.era is not known.era:
            _log.info("%s: the upstream is %s", self._name, known.era)
        return known

    def _read_discover(self, exchange: Exchange) -> Known:
        """What the answer to a probe says (basic/versioning, "Backward Compatibility")."""
        self._door.check(exchange)
        reply = exchange.reply
        if of_probe(exchange.status, reply) is Era.LEGACY:
            return Known(Era.LEGACY)
        if reply is None:
            raise self._failure(Reason.REFUSED, f"HTTP {exchange.status}", personal=True, stale_ok=False)
        if reply.error is not None:
            code = reply.error.code
            raise self._failure(Reason.REFUSED, f"error {code}", personal=True, stale_ok=False, code=code)
        try:
            discovered = decode_discover(reply.result or b"")
        except ValueError as problem:
            raise self._failure(Reason.BAD_REPLY, str(problem)) from problem
        if MODERN not in discovered.versions:
            raise self._failure(Reason.REFUSED, f"it does not speak {MODERN}", stale_ok=False)
        return Known(Era.MODERN, discovered)

    async def _send(
        self, query: Query, caller: Caller, deadline: float, read: Callable[[Exchange], _Read]
    ) -> _Read:
        """One request to the upstream, if it may be asked now; `read` says what came of it."""
        begun = self._clock()
        partition = self._credentials.partition(caller)
        wait = self._holds.remaining(partition, begun)
        if wait:
            raise self._failure(
                Reason.REFUSED, "it asked us to wait", personal=True, retry_after=wait, asked=False
            )
        call = self._call(query, caller)
        ticket = self._breaker.admit(begun)
        if ticket is None:
            raise self._failure(Reason.UNREACHABLE, "the breaker is open", asked=False)
        outcome = ""
        try:
            with self._budget.lease(self._settings.max_response_bytes) as lease:
                answer = read(await self._transport.exchange(call, lease, deadline))
        except UpstreamFailure as failure:
            outcome = failure.reason
            self._note_failure(failure, query, partition, ticket)
            raise
        except UpstreamError:
            outcome = "error"
            self._note_answer(ticket)
            raise
        except TooLargeError as problem:
            # Well-formed for all we know: one large resource must not close the upstream to all.
            outcome = Reason.BAD_REPLY
            self._note_answer(ticket)
            raise self._failure(Reason.BAD_REPLY, str(problem)) from problem
        except FullError as full:
            raise self._failure(Reason.OVERLOADED, str(full), asked=False) from full
        else:
            outcome = "ok"
            self._note_answer(ticket)
            return answer
        finally:
            self._breaker.release(ticket)
            if outcome:
                self._metrics.upstream_request(self._name, query.method, outcome, self._clock() - begun)

    def _call(self, query: Query, caller: Caller) -> Call:
        # A retry answers what was asked of this caller, with his capabilities.
        own = query.alone or query.retry is not None
        capabilities = caller.capabilities if own else self._capabilities
        baggage = self._settings.baggage
        number = next(self._ids)
        body = encode_call(
            number, query.method, call_params(query, capabilities, caller.trace, baggage=baggage)
        )
        headers = call_headers(query, caller.trace, baggage)
        for name, value in self._credentials.forwarded(caller):
            if not _is_text(value):
                raise self._failure(
                    Reason.REFUSED, "a forwarded header is no text", personal=True, stale_ok=False
                )
            headers[name] = value
        return Call(number, query.method, body, headers, repeatable=query.retry is None)

    def _note_answer(self, ticket: Ticket) -> None:
        self._breaker.succeed(ticket)
        self._set_up(up=True)
        self._error = ""

    def _note_failure(self, failure: UpstreamFailure, query: Query, partition: bytes, ticket: Ticket) -> None:
        now = self._clock()
        sick = failure.reason in _SICK
        if sick:
            self._breaker.fail(ticket, now)
        else:
            self._breaker.succeed(ticket)
        if failure.retry_after is not None:
            self._holds.hold(partition, failure.retry_after, now)
        self._set_up(up=not sick)
        self._error = clean(f"{failure.reason}: {failure.detail}")
        level = logging.WARNING if sick else logging.INFO
        _log.log(level, "%s: %s failed: %s", self._name, query.method, self._error)
        if sick and self._breaker.state(now) is State.OPEN:
            _log.warning("%s: the breaker opens", self._name)

    def _set_up(self, *, up: bool) -> None:
        self._up = up
        self._metrics.upstream_up(self._name, up)

    def _nothing(self) -> Hint:
        """The hint of what an upstream does not offer: true for all, as long as what is known of it.

        Where it is told who asks, it may offer it to others.
        """
        if self._credentials.forwards:
            return Hint(0, Scope.PRIVATE)
        trusted = self._settings.cache.trust_public
        return Hint(int(self._discovery.remaining() * 1000), Scope.PUBLIC if trusted else Scope.PRIVATE)

    def _lists_of(self, caller: Caller) -> bytes:
        """Whose lists these are: everything forwarded may make them others."""
        return self._credentials.partition(caller) + self._credentials.variant(caller)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._settings.timeout

    def _failure(
        self,
        reason: Reason,
        detail: str,
        *,
        personal: bool = False,
        stale_ok: bool = True,
        code: int | None = None,
        retry_after: float | None = None,
        asked: bool = True,
    ) -> UpstreamFailure:
        return UpstreamFailure(
            self._name,
            reason,
            clean(detail),
            personal=personal,
            stale_ok=stale_ok,
            code=code,
            retry_after=retry_after,
            asked=asked,
        )


def _is_text(value: str) -> bool:
    """Bytes beyond UTF-8 come as surrogates, and cannot be sent."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
