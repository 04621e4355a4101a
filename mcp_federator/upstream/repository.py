"""A repository, as the rest of the house sees it: the `Source` that asks an object in our own process.

Here is decided what is called, for how long it is waited for, and what follows from what it does.  Answers
go through the same door as those of servers.  There is no breaker: calls that do not end have a limit of
their own, and one resource that fails says nothing about the others.

Hazards:
- The code is not ours.  Nothing it does may cost more than an answer of its own.
- One deadline covers a whole fetch, walks for resolution excepted, which have one for each page.
"""

import asyncio
import logging
from collections.abc import Callable
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from mcp_federator.config import Lists, Upstream
from mcp_federator.errors import ConfigError, Reason, UpstreamError, UpstreamFailure
from mcp_federator.federation.partition import Credentials
from mcp_federator.federation.prefix import Mapping
from mcp_federator.log import clean
from mcp_federator.metrics import Metrics
from mcp_federator.model import ANYONE, Answer, Caller, Era, Hint, Method, Offers, Query, Scope, Wanted
from mcp_federator.protocol.jsonrpc import ErrorObject, Reply
from mcp_federator.protocol.modern import Discovered
from mcp_federator.protocol.vocabulary import Code
from mcp_federator.repository import Invalid, NotFound, Unavailable
from mcp_federator.upstream.client import Client, UpstreamStatus
from mcp_federator.upstream.directory import Directory
from mcp_federator.upstream.door import Door, Passed
from mcp_federator.upstream.given import control, largest, listing, reading, said
from mcp_federator.upstream.left_out import LeftOut
from mcp_federator.upstream.limits import Budget, FullError, Slots, TooLargeError
from mcp_federator.upstream.mounting import Mounted, examine, mount
from mcp_federator.upstream.resolution import Resolver
from mcp_federator.upstream.telling import Telling
from mcp_federator.upstream.transport import Changed, Exchange, unheard
from mcp_federator.upstream.workers import RaisedError, Workers

_T = TypeVar("_T")

_OK: Final = 200
_REPORT_SECONDS: Final = 10.0
_MAX_MESSAGE: Final = 250
"""Characters; escaped, each may take four bytes of the 1 KiB that a message may have."""

_SICK: Final = frozenset({Reason.UNREACHABLE, Reason.TIMEOUT, Reason.BAD_REPLY})

_log = logging.getLogger(__name__)


class _BadError(Exception):
    """What a method gave breaks the rules; the message says how."""


async def opened(name: str, settings: Upstream) -> Mounted:
    """The repository that a configuration names, made in a thread of its own.

    Raises:
        ConfigError: see `mount` and `Directory`; or it took longer than the upstream's `timeout`.
    """
    path = f"upstreams.{name}.{settings.kind}"

    def make() -> Mounted:
        if settings.directory is not None:
            made = Directory(settings.directory, settings.max_response_bytes, settings.timeout)
            problem = made.problem()
            if problem:
                raise ConfigError(path, problem)
            return examine(made, f"directory {clean(settings.directory)}", path)
        return mount(path, settings.repository or "", settings.options)

    workers = Workers(f"mount {name}", 1)
    deadline = asyncio.get_running_loop().time() + settings.timeout
    try:
        made: Mounted = await workers.call(make, deadline)
    except RaisedError as raised:
        raise raised.problem from None
    except TimeoutError:
        where = settings.directory or settings.repository or ""
        raise ConfigError(path, f"{clean(where)} was not ready within {settings.timeout:g} s") from None
    finally:
        await workers.close()
    return made


class Repository:
    """The client of one repository; the face is that of `upstream.client.Client`.

    Args:
        name: its configured name.
        settings: its part of the configuration.
        mounted: what is asked.
        mapping: its names.
        credentials: whose lists are whose, for resolution.
        max_ttl: seconds that any answer may be kept.
        metrics: counts queries by how they ended.
        clock: seconds, never going back.
        budget: bytes of answers under way, of the whole process.
        slots: queries under way, of the whole process.
        lists: how far this client may walk a list by itself.
        changed: is told of what the repository tells of changes.
    """

    def __init__(
        self,
        name: str,
        settings: Upstream,
        *,
        mounted: Mounted,
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
        self._settings = settings
        self._mounted = mounted
        self._credentials = credentials
        self._max_ttl_ms = int(max_ttl * 1000)
        self._metrics = metrics
        self._clock = clock
        self._budget = budget.share(settings.max_response_bytes)
        self._slots = slots.share(settings.max_in_flight)
        self._door = Door(mapping, settings.cache, max_ttl)
        self._left_out = LeftOut(name, clock)
        self._resolver = Resolver(mapping, lists, clock, metrics)
        self._workers = Workers(name)
        self._telling = Telling(name, mounted, changed, self._workers, settings.timeout)
        self._up = False
        self._error = ""
        self._report_after = 0.0

    async def start(self) -> None:
        """Say that it is there."""
        self._set_up(up=True)
        self._metrics.upstream_info(self._name, Era.MODERN, "", self._settings.kind)
        self._telling.start()

    async def close(self) -> None:
        """Let it close, and end the threads; what hangs is left behind."""
        close = self._mounted.close
        await self._telling.close()
        try:
            if close is not None:
                await self._workers.call(close, self._deadline())
        except (RaisedError, TimeoutError, FullError) as problem:
            told = _told(problem.problem if isinstance(problem, RaisedError) else problem)
            _log.warning("%s: %s.close failed: %s", self._name, self._mounted.label, told)
        finally:
            await self._workers.close()

    async def probe(self, caller: Caller = ANYONE) -> Discovered:  # noqa: ARG002 - a client's signature
        """What it is; there is nothing to ask."""
        return Discovered(versions=(), resources=True)

    def adopt(self, lists: Lists, max_ttl: float) -> None:
        """Take over what changed for all upstreams, from now on; the arguments are those of the class."""
        self._max_ttl_ms = int(max_ttl * 1000)
        self._door.adopt(max_ttl)
        self._resolver.lists = lists

    def forget(self) -> None:
        """The list changed: what was learnt from it for resolution is void."""
        self._resolver.forget()

    def want(self, caller: Caller, wanted: Wanted) -> None:
        """All that is wanted to be heard from now on: of a repository, all callers are one."""
        del caller
        self._telling.want(wanted)

    @property
    def offers(self) -> Offers:
        """What it tells of by itself."""
        return self._telling.offers

    @property
    def completes(self) -> bool:
        """Whether it completes arguments: there is nothing to call for that."""
        return False

    @property
    def status(self) -> UpstreamStatus:
        """What may be told of this upstream now."""
        return UpstreamStatus(
            name=self._name,
            address=self._mounted.label,
            transport=self._settings.kind,
            era=Era.MODERN,
            version="",
            server="",
            resources=True,
            completions=self.completes,
            up=self._up,
            breaker="closed",
            in_flight=self._slots.taken,
            listening=int(self._telling.wanted),
            left_out=self._left_out.total,
            error=self._error,
        )

    async def fetch(self, query: Query, caller: Caller) -> Answer:
        """Answer a list or a read with native URI, in public URIs and with a hint that can be believed.

        Raises:
            UpstreamError: the answer is an error.
            UpstreamFailure: there is none, or nothing was called.
        """
        try:
            with self._slots:
                return await self._fetch(query, caller)
        except FullError as full:
            raise self._failure(Reason.OVERLOADED, str(full), asked=False) from full

    async def _fetch(self, query: Query, caller: Caller) -> Answer:
        if query.method is Method.COMPLETE:
            return self._door.no_suggestions().answer
        deadline = self._deadline()
        try:
            return await self._ask(query, caller, deadline)
        except UpstreamError as error:
            # A directory understands each spelling of a path by itself.
            known = self._settings.directory is not None
            original = (
                await self._original(query, caller, deadline) if error.not_found and not known else None
            )
            if original is None:
                raise
        answer = await self._ask(replace(query, uri=original), caller, deadline)
        # It is kept as the answer to what was asked, and changes with what was meant.
        return replace(answer, uris=(original, *answer.uris))

    async def _original(self, query: Query, caller: Caller, deadline: float) -> str | None:
        """The listed URI that was meant by one there is not; None where there is none."""

        async def turn(cursor: str | None) -> Answer:
            return await self._ask(Query(Method.LIST, cursor=cursor), caller, self._deadline())

        return await self._resolver.resolve(query.uri or "", self._lists_of(caller), turn, deadline)

    async def _ask(self, query: Query, caller: Caller, deadline: float) -> Answer:
        begun = self._clock()
        outcome = ""
        try:
            with self._budget.lease(largest(self._settings.max_response_bytes)) as lease:
                result = await self._result(query, deadline)
                lease.take(len(result))
                passed = self._passed(query, result)
        except UpstreamError:
            outcome = "error"
            self._note("")
            raise
        except UpstreamFailure as failure:
            outcome = failure.reason
            self._note(f"{failure.reason}: {failure.detail}", sick=failure.reason in _SICK)
            raise
        except TooLargeError as problem:
            outcome = Reason.BAD_REPLY
            detail = f"{self._mounted.label}: {problem} (`max_response_bytes`)"
            # One resource that cannot be read says nothing of the others.
            self._note(f"{outcome}: {detail}")
            raise self._failure(Reason.BAD_REPLY, detail) from problem
        else:
            outcome = "ok"
            self._note("")
        finally:
            if outcome:
                self._metrics.upstream_request(self._name, query.method, outcome, self._clock() - begun)
        if query.method is Method.LIST:
            self._resolver.observe(self._lists_of(caller), query.cursor, passed.uris)
        return passed.answer

    def _passed(self, query: Query, result: bytes) -> Passed:
        """Let a result in."""
        passed = self._door.passed(query, Exchange(_OK, Reply(result=msgspec.Raw(result))), self._nothing)
        self._left_out.add(passed.dropped, query.method)
        return passed

    async def _result(self, query: Query, deadline: float) -> bytes:
        """The result of a query, as JSON; raises what an upstream raises."""
        try:
            if query.method is Method.READ:
                members = await self._read(query.uri or "", deadline)
            elif query.method is Method.LIST:
                members = await self._list(query.cursor, deadline)
            else:
                members = self._templates(query.cursor)
        except NotFound as problem:
            raise self._refused(query, said(problem) or "Resource not found", not_found=True) from problem
        except Invalid as problem:
            raise self._refused(query, said(problem) or "Invalid params", not_found=False) from problem
        except Unavailable as problem:
            raise self._failure(Reason.UNREACHABLE, said(problem)) from problem
        except TimeoutError:
            raise self._failure(Reason.TIMEOUT, "nothing came in time") from None
        except _BadError as problem:
            raise self._failure(Reason.BAD_REPLY, str(problem)) from problem
        return b'{"resultType":"complete",%b}' % members

    async def _list(self, cursor: str | None, deadline: float) -> bytes:
        it = self._mounted

        def shown(given: Any) -> bytes:
            return listing(given, it.prefix, it.reversal, self._settings.max_response_bytes)

        members = await self._call("list", it.list, cursor, shown, deadline, Invalid, Unavailable)
        return members + await self._hints(None, deadline)

    async def _read(self, uri: str, deadline: float) -> bytes:
        it = self._mounted
        allowed = (NotFound, Invalid, Unavailable)
        if not uri.startswith(it.prefix):
            raise NotFound
        what: Any = uri
        if it.parse_uri is not None:
            what = await self._call("parse_uri", it.parse_uri, uri, _same, deadline, *allowed)
        elif it.reversal is not None:
            what = it.reversal.match(uri)
            if what is None:
                raise NotFound

        def shown(given: Any) -> bytes:
            return reading(given, uri, it.prefix, self._settings.max_response_bytes)

        members = await self._call("read", it.read, what, shown, deadline, *allowed)
        return members + await self._hints(uri, deadline)

    def _templates(self, cursor: str | None) -> bytes:
        if cursor is not None:
            raise Invalid("there is one page of templates")
        # What is known of it does not change while it is mounted.
        scope, ttl = Scope.PUBLIC, self._max_ttl_ms
        return b'"resourceTemplates":[%b]%b' % (self._mounted.template or b"", _hints(scope, ttl))

    async def _hints(self, uri: str | None, deadline: float) -> bytes:
        """The hints of an answer, as members behind others; `b""` where it has none of its own."""
        given = self._mounted.cache_control
        if given is None:
            return b""
        if callable(given):
            given = await self._call("cache_control", given, uri, control, deadline)
        return _hints(*given)

    async def _call(
        self,
        name: str,
        method: Callable[[Any], Any],
        argument: Any,
        shown: Callable[[Any], _T],
        deadline: float,
        *allowed: type[Exception],
    ) -> _T:
        """What a method gives, looked at where it ran.

        Args:
            name: of the method, for messages.
            method: sync or async.
            argument: what it gets.
            shown: makes something of what it gave, or raises anything.
            deadline: on the event loop's clock.
            allowed: what it may raise.
        """

        def checked(given: Any) -> _T:
            try:
                return shown(given)
            except TooLargeError:
                raise
            except BaseException as problem:  # to look at an object runs code of theirs
                raise _BadError(f"{self._mounted.label}.{name}: {_told(problem)}") from problem

        async def run_here() -> Any:
            return await method(argument)

        def run() -> Any:
            given = method(argument)
            return given if isawaitable(given) else _Checked(checked(given))

        try:
            if iscoroutinefunction(method):
                given = await self._workers.wait(run_here(), deadline)
            else:
                given = await self._workers.call(run, deadline)
        except RaisedError as raised:
            problem = raised.problem
            # By its type: what it says of its class itself may be anything.
            if issubclass(type(problem), (*allowed, TooLargeError, _BadError)):
                raise problem from None
            self._report(name, problem)
            told = type(problem).__name__
            raise _BadError(f"{self._mounted.label}.{name} raised {told}") from problem
        return given.value if type(given) is _Checked else checked(given)

    def _report(self, name: str, problem: BaseException) -> None:
        """Show where their code failed; not each time, for a trace is long."""
        now = self._clock()
        if now >= self._report_after:
            self._report_after = now + _REPORT_SECONDS
            _log.error("%s: %s.%s raised", self._name, self._mounted.label, name, exc_info=problem)

    def _refused(self, query: Query, message: str, *, not_found: bool) -> UpstreamError | UpstreamFailure:
        """An error that is an answer."""
        data = None if query.uri is None else msgspec.Raw(msgspec.json.encode({"uri": query.uri}))
        message = clean(message, _MAX_MESSAGE)
        error = self._door.error(query, ErrorObject(Code.INVALID_PARAMS, message, data))
        if isinstance(error, UpstreamError):
            error.not_found = not_found
        return error

    def _failure(self, reason: Reason, detail: str, *, asked: bool = True) -> UpstreamFailure:
        return UpstreamFailure(self._name, reason, clean(detail), asked=asked)

    def _note(self, problem: str, *, sick: bool = False) -> None:
        self._error = clean(problem)
        self._set_up(up=not sick)
        if problem:
            _log.log(logging.WARNING if sick else logging.INFO, "%s: %s", self._name, self._error)

    def _set_up(self, *, up: bool) -> None:
        self._up = up
        self._metrics.upstream_up(self._name, up)

    def _nothing(self) -> Hint:
        return self._door.hint()

    def _lists_of(self, caller: Caller) -> bytes:
        """Whose lists these are."""
        return self._credentials.sent(caller)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._settings.timeout


AnyClient: TypeAlias = Client | Repository
"""Who asks an upstream, of whatever kind."""


class _Checked(msgspec.Struct, frozen=True):
    """What a method gave, looked at already."""

    value: Any


def _same(given: Any) -> Any:
    return given


def _hints(scope: Scope, ttl_ms: int) -> bytes:
    return b',"cacheScope":"%b","ttlMs":%d' % (scope.value.encode(), ttl_ms)


def _told(problem: BaseException) -> str:
    """A problem in a few words."""
    told = said(problem)
    return told if isinstance(problem, ValueError) and told else f"{type(problem).__name__} {told}".strip()
