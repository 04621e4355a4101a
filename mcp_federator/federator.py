"""Many sources as one: reads go to the one whose prefix they bear, lists are merged from all.

The room is a thin loop: what to ask, and what the answers make, is decided by `federation.merge`, which waits
for nothing; here is the waiting.  And here an upstream's failure becomes an error that the asker is told.

What may not come in: caching, rewriting, HTTP.  Answers arrive in public URIs and are passed on as they are.

Hazards:
- A hit creates no task.  So a cached part is taken by the synchronous `peek`, and only what that cannot give
  is fetched, in tasks: a coroutine that has begun to wait cannot be moved into a task of its own, because
  time-outs in it know the task in which they began.
- A fetch that misses the soft deadline goes on without us, for the next page to find its answer.  Such tasks
  are bounded, kept referenced, and cancelled on `close`; all others end with the request they belong to.
- Exceptions may be shared by all who waited for one flight: what they say is never changed, only said anew.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import msgspec

from mcp_federator import config
from mcp_federator.deadline import until
from mcp_federator.errors import McpError, Reason, UpstreamError, UpstreamFailure
from mcp_federator.federation import merge, prefix
from mcp_federator.federation.cursor import CompositeCursor, Seal
from mcp_federator.federation.memo import SECONDS, Copies, Memo, Memos, Peek, Step, Still
from mcp_federator.federation.scopes import ListScopes
from mcp_federator.metrics import Metrics
from mcp_federator.model import Answer, Caller, Method, Query, Source
from mcp_federator.protocol.vocabulary import Code

BACKGROUND: Final = 64
"""How many late fetches may go on at once; beyond it a late fetch is cancelled."""

DROP_AGAIN: Final = 5.0
"""Seconds in which a cursor that an upstream refuses drops the pages of its list at most once.

Whoever holds an outdated cursor can have it refused as often as he likes."""

_LISTS: Final = frozenset({Method.LIST, Method.TEMPLATES})
_PLACES: Final = nullcontext()

_FAULTS: Final[Mapping[Reason, str]] = {
    Reason.UNREACHABLE: "Upstream {} cannot be reached.",
    Reason.TIMEOUT: "Upstream {} did not answer in time.",
    Reason.BAD_REPLY: "Upstream {} gave a reply that is no answer.",
    Reason.REFUSED: "Upstream {} refused the request.",
    Reason.OVERLOADED: "Upstream {} was not asked: too many requests are under way.",
}

_log = logging.getLogger(__name__)


class Member(msgspec.Struct, frozen=True):
    """One upstream, as the federator has it.

    Attributes:
        name: its configured name.
        source: who answers for it, in public URIs, to queries with native URIs and its own cursors.
        mapping: its names.
        identity: 32 bytes that say which server it is, equal on every replica.
        required: a list without it is an error.
        list_scope: `cache.list_scope`.
        peek, still: see `memo`; None where the source keeps no copies.
        drop_pages: forgets the copies of a list's pages that are kept of this upstream.
        completes: whether it completes arguments, as far as that is known; None where nobody does.
    """

    name: str
    source: Source
    mapping: prefix.Mapping
    identity: bytes
    required: bool = False
    list_scope: merge.ListScope = "auto"
    peek: Peek | None = None
    still: Still | None = None
    drop_pages: Callable[[Method], None] | None = None
    completes: Callable[[], bool | None] | None = None

    @property
    def lacks_completions(self) -> bool:
        """Whether it is known to complete nothing."""
        return self.completes is None or self.completes() is False


class Federator:
    """The source made of all upstreams.

    Args:
        upstreams: in configuration order.
        lists: window and soft deadline of lists.
        request_timeout: seconds that a request may take in all.
        seals: writes and reads composite cursors.
        scopes: the memory of what lists were public.
        metrics: counts incomplete lists and refused walks.
        clock: seconds, never going back; the clock of `scopes`.
        places: entered while a request waits for upstreams, not where copies answer it; may refuse.

    Raises:
        ConfigError: the upstreams' prefixes cannot be told apart.
    """

    def __init__(
        self,
        upstreams: Sequence[Member],
        *,
        lists: config.Lists,
        request_timeout: float,
        seals: Seal,
        scopes: ListScopes,
        metrics: Metrics,
        clock: Callable[[], float],
        places: AbstractContextManager[object] = _PLACES,
    ) -> None:
        self._members = {member.name: member for member in upstreams}
        self._router = prefix.Router([member.mapping for member in upstreams])
        self._lists = lists
        self._request_timeout = request_timeout
        self._seals = seals
        self._scopes = scopes
        self._metrics = metrics
        self._clock = clock
        self._places = places
        self._memos = Memos()
        self._drop_after: dict[tuple[str, Method], float] = {}
        self._background: set[asyncio.Task[Answer]] = set()
        self._under_way = _UnderWay()

    async def fetch(self, query: Query, caller: Caller) -> Answer:
        """Answer a read, a completion, or one page of a list.

        Raises:
            McpError: of any kind; an upstream's failure is one with `data` `{upstream, reason}`.
        """
        if query.method is Method.READ:
            uri = query.uri or ""
            route = self._router.route(uri)
            if route is None or (caller.upstreams is not None and route[0] not in caller.upstreams):
                raise _unknown(uri)
            name, native = route
            asked = Query(Method.READ, native, None, query.retry, query.refresh, query.alone)
            member = self._members[name]
            copy = None if member.peek is None else member.peek(asked, caller)
            # A copy needs no time limit, which would cost more than the look.
            return await self._read(member, asked, caller, uri) if copy is None else copy
        if query.method is Method.COMPLETE:
            return await self._complete(query, caller)
        if query.method not in _LISTS:
            raise McpError(Code.METHOD_NOT_FOUND, "Not a method of resources.", status=404)
        try:
            return await self._list(query, caller)
        except UpstreamFailure as failure:
            raise told(failure) from failure
        except merge.NoAnswerError as error:
            raise _nobody(error) from error
        except merge.RestartError as error:
            self._metrics.listing_restart(error.reason)
            raise McpError(
                Code.INVALID_PARAMS, "The listing has changed: begin again without a cursor.", status=400
            ) from error

    async def close(self) -> None:
        """Cancel what goes on in the background, and wait until it has ended."""
        tasks = tuple(self._background)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._memos.clear()

    async def idle(self) -> None:
        """Wait until no request that began here waits for an upstream any more."""
        await self._under_way.none.wait()

    async def _complete(self, query: Query, caller: Caller) -> Answer:
        """Answer a completion: nobody keeps it, and it is asked for this caller alone.

        The method is there if one upstream has it, or may have it for all we know.
        """
        if all(member.lacks_completions for member in self._members.values()):
            raise McpError(
                Code.METHOD_NOT_FOUND, "Method not found: no upstream completes arguments.", status=404
            )
        if query.uri is None:
            raise McpError(Code.INVALID_PARAMS, "This server has no prompts, so none can be completed.")
        route = self._router.route(query.uri)
        if route is None or (caller.upstreams is not None and route[0] not in caller.upstreams):
            raise _unknown(query.uri)
        name, native = route
        asked = Query(Method.COMPLETE, native, alone=True, completion=query.completion)
        return await self._read(self._members[name], asked, caller, query.uri)

    async def _read(self, member: Member, query: Query, caller: Caller, uri: str) -> Answer:
        """Answer a read or completion that no copy answers; `uri` is the public one, as asked."""
        try:
            late = asyncio.get_running_loop().time() + self._request_timeout
            with self._places, self._under_way, until(late):
                return await member.source.fetch(query, caller)
        except TimeoutError:
            failure = UpstreamFailure(member.name, Reason.TIMEOUT, "request_timeout")
            raise told(failure) from failure
        except UpstreamFailure as failure:
            raise told(failure) from failure
        except UpstreamError as error:
            raise self._as_asked(error, uri, (member.name, query.uri or "")) from error

    def _as_asked(self, error: UpstreamError, uri: str, route: tuple[str, str]) -> UpstreamError:
        """The error with `data.uri` as this asker spelt it (server/resources, "Error Handling")."""
        try:
            data = msgspec.json.decode(error.data or b"{}", type=dict[str, msgspec.Raw])
            same = "uri" in data and self._router.route(msgspec.json.decode(data["uri"], type=str)) == route
        except msgspec.MsgspecError:
            data, same = {}, False
        if not (same or error.not_found):
            return error
        data["uri"] = msgspec.Raw(msgspec.json.encode(uri))
        return UpstreamError(
            error.upstream,
            error.code,
            error.message,
            data=msgspec.json.encode(data),
            status=error.status,
            not_found=error.not_found,
        )

    async def _list(self, query: Query, caller: Caller) -> Answer:
        key = query.method, query.cursor, caller.upstreams
        copies: Copies = {}
        if not query.refresh:
            page = self._memos.answer(key, caller, self._clock(), self._scopes.changes, copies)
            if page is not None:
                return page
        plan = self._plan(query, caller)
        with self._under_way:
            steps = await self._ask(plan, query, caller, copies)
        now = self._clock()
        merged = plan.merged(self._scopes, now)
        for missing in merged.incomplete:
            self._metrics.incomplete_list(missing.upstream, missing.reason)
        page = Answer(
            body=b",".join([part.body for part in merged.parts if part.count]),
            hint=merged.hint,
            next_cursor=None if merged.cursor is None else self._seals.encode(merged.cursor),
            count=merged.count,
            extra=merged.extra,
            meta=merged.meta,
            incomplete=merged.incomplete,
            served=merged.served,
        )
        if steps and not merged.incomplete:
            self._memos.keep(key, Memo(tuple(steps), page, now + SECONDS, self._scopes.changes))
        return page

    def _plan(self, query: Query, caller: Caller) -> merge.Plan:
        cursor: CompositeCursor | None = None
        if query.cursor is not None:
            try:
                cursor = self._seals.decode(query.cursor, query.method)
            except ValueError as error:
                raise McpError(Code.INVALID_PARAMS, "This is no cursor of this list.", status=400) from error
        members = self._members
        if caller.upstreams is not None:
            members = {name: member for name, member in members.items() if name in caller.upstreams}
        return merge.Plan(
            query.method,
            members,
            cursor,
            window=self._lists.window,
            whole=len(members) == len(self._members),
        )

    async def _ask(self, plan: merge.Plan, query: Query, caller: Caller, copies: Copies) -> list[Step]:
        """Run the plan's rounds; the copies that it was made of come back if it was made of nothing else."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        hard = begun + self._request_timeout
        soft = min(begun + self._lists.soft_deadline, hard)
        steps: list[Step] = []
        fetched = False
        while asks := plan.asks():
            uncached: dict[merge.Ask, Query] = {}
            for ask in asks:
                part = Query(query.method, None, ask.cursor, None, query.refresh)
                member = self._members[ask.upstream]
                copy = copies.get((ask.upstream, ask.cursor))
                if copy is None and member.peek is not None and not query.refresh:
                    copy = member.peek(part, caller)
                if copy is None or member.still is None:
                    uncached[ask] = part
                else:
                    steps.append(Step(ask.upstream, member.still, part, copy))
                    plan.answered(ask, copy)
            if uncached:
                fetched = True
                # Nothing is awaited between two rounds: who has had a place gets it again.
                with self._places:
                    await self._round(plan, uncached, caller, soft, hard)
            if loop.time() >= soft:
                break
        return [] if fetched else steps

    async def _round(
        self, plan: merge.Plan, asks: Mapping[merge.Ask, Query], caller: Caller, soft: float, hard: float
    ) -> None:
        """Send the asks, and tell the plan what became of each; `soft` and `hard` are times of the loop."""
        loop = asyncio.get_running_loop()
        pending = {
            loop.create_task(
                self._members[ask.upstream].source.fetch(part, caller), name=f"list {ask.upstream}"
            ): ask
            for ask, part in asks.items()
        }
        try:
            while pending:
                hurry = soft < hard and plan.has_answers and not all(ask.patient for ask in pending.values())
                wait = max(0.0, (soft if hurry else hard) - loop.time())
                done, _ = await asyncio.wait(pending, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in pending if task in done]:
                    self._settle(plan, pending.pop(task), task)
                if done:
                    continue
                if not hurry:
                    for ask in pending.values():
                        plan.failed(ask, UpstreamFailure(ask.upstream, Reason.TIMEOUT, "request_timeout"))
                    break
                for task in [task for task, ask in pending.items() if not ask.patient]:
                    plan.late(pending.pop(task))
                    self._leave(task, unfinished=True)
        finally:
            for task in pending:
                self._leave(task, unfinished=False)

    def _settle(self, plan: merge.Plan, ask: merge.Ask, task: asyncio.Task[Answer]) -> None:
        """Tell the plan what became of one ask."""
        name = ask.upstream
        if task.cancelled():
            plan.failed(ask, UpstreamFailure(name, Reason.UNREACHABLE, "closed meanwhile"))
            return
        error = task.exception()
        if error is None:
            plan.answered(ask, task.result())
        elif isinstance(error, McpError) and error.code == Code.METHOD_NOT_FOUND:
            plan.absent(ask)
        elif isinstance(error, McpError) and error.code == Code.INVALID_PARAMS and ask.cursor is not None:
            self._drop_pages(name, plan.method)
            raise merge.RestartError("cursor", name) from error
        elif isinstance(error, UpstreamFailure | McpError):
            plan.failed(ask, error)
        else:
            _log.error("upstream %s: a list ended in an error of ours", name, exc_info=error)
            plan.failed(ask, UpstreamFailure(name, Reason.BAD_REPLY, "internal error"))

    def _drop_pages(self, name: str, method: Method) -> None:
        """The upstream refused its own cursor: the pages that are kept may bear more of that kind."""
        drop_pages = self._members[name].drop_pages
        now = self._clock()
        if drop_pages is not None and now >= self._drop_after.get((name, method), now):
            self._drop_after[name, method] = now + DROP_AGAIN
            drop_pages(method)

    def _leave(self, task: asyncio.Task[Answer], *, unfinished: bool) -> None:
        """Stop waiting for a task, which goes on where `unfinished` allows it."""
        if not unfinished or len(self._background) >= BACKGROUND:
            task.cancel()
        self._background.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Answer]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # Nobody waits for it: taken, so that it is not reported as overlooked.


class _UnderWay:
    """How many requests wait for upstreams; `none` is set while none does."""

    def __init__(self) -> None:
        self._count = 0
        self.none = asyncio.Event()
        self.none.set()

    def __enter__(self) -> None:
        self._count += 1
        self.none.clear()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self.none.set()


def _unknown(uri: str) -> McpError:
    """The error of a URI that no route begins with; `uri` is the public one, as asked."""
    return McpError(
        Code.INVALID_PARAMS,
        "No upstream has resources with this prefix.",
        data=msgspec.json.encode({"uri": uri}),
    )


def told(failure: UpstreamFailure) -> McpError:
    """The error that the asker is told when an upstream gave no answer (design, section 7)."""
    data: dict[str, object] = {"upstream": failure.upstream, "reason": failure.reason}
    if failure.code is not None:
        data["code"] = failure.code
    message = _FAULTS[failure.reason].format(failure.upstream)
    return McpError(Code.INTERNAL_ERROR, message, data=msgspec.json.encode(data))


def _nobody(error: merge.NoAnswerError) -> McpError:
    """The error of a list that nobody answered: the only failure itself, or the first with all the others."""
    failures = error.failures
    name, first = next(iter(failures.items()))
    if len(failures) == 1:
        return told(first) if isinstance(first, UpstreamFailure) else first
    incomplete = [merge.missing(name, failure) for name, failure in failures.items()]
    return McpError(
        Code.INTERNAL_ERROR,
        "No upstream answered: " + ", ".join(f"{one.upstream} ({one.reason})" for one in incomplete) + ".",
        data=msgspec.json.encode(
            {"upstream": name, "reason": incomplete[0].reason, "incomplete": incomplete}
        ),
    )
