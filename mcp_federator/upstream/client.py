"""One upstream, as the rest of the house sees it: the `Source` that asks it.

Here is decided in which words the upstream is asked, and what follows when these turn out to be the wrong
ones.  What they are is the dialect's affair, what the upstream is the introduction's, whether it may be asked
at all the sender's, how bytes get there the transport's, and what an answer means the door's.

Hazards:
- One deadline covers a whole fetch: the probe before it, the wait for a connection, a second try, a walk.
- An upstream may become another while we run.  Who notices asks again in the words of what it is now: once,
  or two servers behind one address would make us ask for ever.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from mcp_federator.config import Lists, Upstream
from mcp_federator.errors import McpError, Reason, UpstreamError, UpstreamFailure
from mcp_federator.federation.partition import Credentials
from mcp_federator.federation.prefix import Mapping
from mcp_federator.log import clean
from mcp_federator.metrics import Metrics
from mcp_federator.model import ANYONE, Answer, Caller, Era, Hint, Method, Offers, Query, Scope, Wanted
from mcp_federator.protocol import legacy, modern
from mcp_federator.protocol.era import is_doubtful, is_session_lost
from mcp_federator.protocol.modern import Discovered
from mcp_federator.protocol.vocabulary import Code
from mcp_federator.upstream.dialect import Dialect
from mcp_federator.upstream.discovery import Known
from mcp_federator.upstream.door import Door, Passed
from mcp_federator.upstream.introduction import Introduction
from mcp_federator.upstream.left_out import LeftOut
from mcp_federator.upstream.limits import Budget, FullError, Slots
from mcp_federator.upstream.listening import Listening, offered
from mcp_federator.upstream.resolution import Resolver
from mcp_federator.upstream.sender import Sender
from mcp_federator.upstream.sessions import LostError, Session
from mcp_federator.upstream.stdio import Stdio
from mcp_federator.upstream.streamable_http import StreamableHttp
from mcp_federator.upstream.transport import Call, Changed, Exchange, StrangerError, Transport, unheard

_Known = TypeVar("_Known")

_RESULTS: Final = {Era.MODERN: modern.decode_result, Era.LEGACY: legacy.decode_result}

_log = logging.getLogger(__name__)


class _DoubtError(Exception):
    """What the upstream says does not fit its era; `problem` is what it means if that is right after all."""

    def __init__(self, problem: McpError | UpstreamFailure) -> None:
        super().__init__(str(problem))
        self.problem = problem


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
        completions: whether it declares that it completes arguments, likewise.
        up: it answered when it was asked last.
        breaker: `closed`, `open`, `half-open`.
        in_flight: queries under way.
        listening: contexts in which its changes are heard by request.
        left_out: items in its answers that nobody was shown.
        error: why it last failed, in our words, or `""` when it answered since.
    """

    name: str
    address: str
    transport: str
    era: Era | None
    version: str
    server: str
    resources: bool | None
    completions: bool | None
    up: bool
    breaker: str
    in_flight: int
    listening: int
    left_out: int
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
        changed: is told of what the upstream says of changes.

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
        changed: Changed = unheard,
    ) -> None:
        self._name = name
        self._timeout = settings.timeout
        self._credentials = credentials
        self._slots = slots.share(settings.max_in_flight)
        self._scope_of_nothing = Scope.PUBLIC if settings.cache.trust_public else Scope.PRIVATE
        budget = budget.share(settings.max_response_bytes)
        self._transport: Transport = (
            Stdio(name, settings, budget=budget, clock=clock, changed=changed)
            if settings.kind == "stdio"
            else StreamableHttp(name, settings, changed)
        )
        self._door = Door(mapping, settings.cache, max_ttl)
        self._dialect = Dialect(name, settings, credentials)
        self._left_out = LeftOut(name, clock)
        self._resolver = Resolver(mapping, lists, clock, metrics)
        self._sender = Sender(name, settings, self._transport, metrics=metrics, clock=clock, budget=budget)
        self._introduction = Introduction(
            name,
            settings,
            transport=self._transport,
            sender=self._sender,
            dialect=self._dialect,
            door=self._door,
            credentials=credentials,
            max_ttl=max_ttl,
            metrics=metrics,
            clock=clock,
            changed=changed,
        )
        self._discovery = self._introduction.discovery
        self._sessions = self._introduction.sessions
        self._listening = Listening(
            name,
            self._transport,
            know=self._know_to_listen,
            listen=self._dialect.listen,
            session=lambda caller: self._sessions.get(caller, self._deadline()),
            subscribe=self._subscribe,
            partition=credentials.partition,
            changed=changed,
        )
        self._introduction.on_over(self._listening.over)

    async def start(self) -> None:
        """Make ready, and begin to probe in the background; an upstream that is down does not matter here."""
        await self._transport.start()
        self._discovery.refresh(ANYONE)

    async def close(self) -> None:
        """Cancel the probes, end the sessions and close every connection; what is under way fails."""
        await self._listening.close()
        await self._introduction.close()
        await self._transport.close()

    async def probe(self, caller: Caller = ANYONE) -> Discovered:
        """Ask the upstream now what it is; raises `UpstreamFailure`."""
        known = await self._in_time(self._discovery.probe(caller, self._deadline()), "probe")
        return self._askable(known)

    def forget(self) -> None:
        """The upstream's list changed: what was learnt from it for resolution is void."""
        self._resolver.forget()

    def adopt(self, lists: Lists, max_ttl: float) -> None:
        """Take over what changed for all upstreams, from now on; the arguments are those of the class."""
        self._door.adopt(max_ttl)
        self._discovery.max_life = max_ttl
        self._resolver.lists = lists

    def want(self, caller: Caller, wanted: Wanted) -> None:
        """All that this caller's context wants to hear of from now on; returns at once."""
        self._listening.want(caller, wanted)

    @property
    def offers(self) -> Offers | None:
        """What the upstream says that it tells of; None until a probe has told."""
        known = self._discovery.known
        return None if known is None else offered(known.discovered)

    @property
    def completes(self) -> bool | None:
        """Whether the upstream completes arguments; None until a probe has told."""
        known = self._discovery.known
        if known is None:
            return None
        return known.discovered is not None and known.discovered.completions

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
            version="" if known is None else known.version,
            server=clean(server),
            resources=None if discovered is None else discovered.resources,
            completions=self.completes,
            up=self._sender.up,
            breaker=self._sender.state,
            in_flight=self._slots.taken,
            listening=len(self._listening),
            left_out=self._left_out.total,
            error=self._sender.error or ("" if known is None else known.problem),
        )

    async def fetch(self, query: Query, caller: Caller) -> Answer:
        """Answer a list, a read or a completion with native URI, in public URIs, with hints to be believed.

        Raises:
            UpstreamError: the upstream's answer is an error.
            UpstreamFailure: it gave none, or was not asked.
        """
        try:
            with self._slots:
                return await self._fetch(query, caller)
        except FullError as full:
            raise self._sender.failure(Reason.OVERLOADED, str(full), asked=False) from full

    async def _fetch(self, query: Query, caller: Caller) -> Answer:
        deadline = self._deadline()
        known = await self._know(caller, deadline)
        offered = self._askable(known)
        if query.method is Method.COMPLETE:
            # Never sent undeclared (basic/lifecycle of the legacy revisions, "Operation").
            if not offered.completions:
                return self._door.no_suggestions().answer
            return await self._ask(known, query, caller, deadline)
        # What was declared to one caller says nothing of what another may have.
        if not offered.resources and not self._credentials.forwards:
            if query.uri is not None:
                raise self._door.not_found(query.uri)
            return self._door.empty(self._nothing()).answer
        try:
            return await self._ask(known, query, caller, deadline)
        except UpstreamError as error:
            original = await self._original(query, caller, deadline) if error.not_found else None
            if original is None:
                raise
        known = await self._know(caller, deadline)
        answer = await self._ask(known, replace(query, uri=original), caller, deadline)
        # It is kept as the answer to what was asked, and changes with what was meant.
        return replace(answer, uris=(original, *answer.uris))

    async def _know(self, caller: Caller, deadline: float) -> Known:
        return await self._in_time(self._discovery.know(caller, deadline), "probe")

    def _askable(self, known: Known) -> Discovered:
        if known.discovered is None:
            raise self._sender.failure(
                Reason.REFUSED,
                known.problem,
                personal=self._credentials.forwards,
                stale_ok=False,
                asked=False,
            )
        return known.discovered

    async def _in_time(self, knowing: Awaitable[_Known], what: str) -> _Known:
        try:
            return await knowing
        except TimeoutError:
            raise self._sender.failure(Reason.TIMEOUT, f"the {what} was not answered in time") from None

    async def _original(self, query: Query, caller: Caller, deadline: float) -> str | None:
        """The listed URI that was meant by one the upstream does not know; None where there is none."""

        async def turn(cursor: str | None) -> Answer:
            turned = self._deadline()
            known = await self._know(caller, turned)
            return await self._ask(known, Query(Method.LIST, cursor=cursor), caller, turned)

        return await self._resolver.resolve(query.uri or "", self._credentials.sent(caller), turn, deadline)

    async def _ask(self, known: Known, query: Query, caller: Caller, deadline: float) -> Answer:
        """Ask in the words of what the upstream is; once more where it turns out to be something else."""
        try:
            return await self._ask_as(known, query, caller, deadline)
        except _DoubtError as doubt:
            now = await self._reconsidered(known, doubt.problem, caller, deadline)
            if now is None:
                raise doubt.problem from None
        try:
            return await self._ask_as(now, query, caller, deadline)
        except _DoubtError as doubt:
            raise doubt.problem from None

    async def _reconsidered(
        self, known: Known, problem: McpError | UpstreamFailure, caller: Caller, deadline: float
    ) -> Known | None:
        """What the upstream is after an answer that did not fit; None where it is worth no second try."""
        try:
            if isinstance(problem, UpstreamFailure) and problem.code == Code.UNSUPPORTED_VERSION:
                return await self._discovery.probe(caller, deadline)
            now = await self._discovery.reconsider(known, caller, deadline)
        except (UpstreamFailure, TimeoutError):
            return None
        return now if now.era is not known.era else None

    async def _ask_as(self, known: Known, query: Query, caller: Caller, deadline: float) -> Answer:
        self._askable(known)
        if known.era is Era.MODERN:
            call = self._dialect.modern(query, caller)
            return await self._exchange(call, query, caller, deadline)
        session = await self._session(caller, deadline)
        try:
            return await self._ask_within(session, query, caller, deadline)
        except UpstreamFailure as failure:
            gone = session.incarnation != self._transport.incarnation and failure.reason is Reason.UNREACHABLE
            if not (gone or isinstance(failure, LostError)):
                raise
        self._sessions.lose(caller, session)
        session = await self._session(caller, deadline)
        try:
            return await self._ask_within(session, query, caller, deadline)
        except LostError:
            self._sessions.lose(caller, session)
            raise

    async def _session(self, caller: Caller, deadline: float) -> Session:
        try:
            return await self._in_time(self._sessions.get(caller, deadline), "handshake")
        except StrangerError as stranger:
            raise _DoubtError(stranger) from stranger

    async def _ask_within(self, session: Session, query: Query, caller: Caller, deadline: float) -> Answer:
        call = self._dialect.legacy(query, caller, session)
        return await self._exchange(call, query, caller, deadline, session)

    async def _exchange(
        self, call: Call, query: Query, caller: Caller, deadline: float, session: Session | None = None
    ) -> Answer:
        """Send a query, and let its answer in."""
        era = Era.MODERN if session is None else Era.LEGACY
        doubtful = False

        def read(exchange: Exchange) -> Passed:
            nonlocal doubtful
            status, reply = exchange.status, exchange.reply
            if session is not None and session.id is not None and is_session_lost(status, reply):
                raise LostError(
                    self._name, Reason.REFUSED, f"HTTP {status}: the session is lost", personal=True
                )
            doubtful = is_doubtful(era, query.method, status, reply)
            return self._door.passed(query, exchange, self._nothing, _RESULTS[era])

        partition = self._credentials.partition(caller)
        try:
            passed = await self._sender.send(call, partition, deadline, read)
        except (UpstreamError, UpstreamFailure) as problem:
            if doubtful:
                raise _DoubtError(problem) from problem
            raise
        self._left_out.add(passed.dropped, query.method)
        if query.method is Method.LIST:
            self._resolver.observe(self._credentials.sent(caller), query.cursor, passed.uris)
        return passed.answer

    async def _know_to_listen(self, caller: Caller) -> Known:
        known = await self._know(caller, self._deadline())
        self._askable(known)
        return known

    async def _subscribe(self, method: str, uri: str, caller: Caller, session: Session) -> bool:
        """Ask to be told of a resource, or no more; whether the upstream agreed."""

        def read(exchange: Exchange) -> bool:
            status, reply = exchange.status, exchange.reply
            if session.id is not None and is_session_lost(status, reply):
                raise LostError(self._name, Reason.REFUSED, "the session is lost", personal=True)
            self._door.check(exchange)
            return reply is not None and reply.error is None

        call = self._dialect.subscribing(method, uri, caller, session)
        partition = self._credentials.partition(caller)
        try:
            return await self._sender.send(call, partition, self._deadline(), read)
        except LostError:
            self._sessions.lose(caller, session)
            raise

    def _nothing(self) -> Hint:
        """The hint of what an upstream does not offer: true for all, as long as what it said of itself.

        Where it is told who asks, it may offer it to others.
        """
        if self._credentials.forwards:
            return Hint(0, Scope.PRIVATE)
        return Hint(int(self._discovery.remaining(ANYONE) * 1000), self._scope_of_nothing)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout
