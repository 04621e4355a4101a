"""Any schedule of readers, cancellations, upstream answers, changes and time, against what must never happen.

Each text an upstream gives says for whom it was made and how many changes of the resource had been announced
when it was asked for.  So every answer tells whether its reader may have it.  A failure that no upstream
gave, such as another reader's cancellation, tells nothing and is a failure of the test.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from mcp_federator.errors import McpError, Reason, UpstreamFailure
from mcp_federator.model import ANYONE, Answer, Change, Event, Hint, Method, Query, Retry, Scope
from tests.cache.stage import Call, Stage, bearer, settle

TOKENS = ["", "ann", "bob"]
URIS = ["x://1", "x://1/part"]
TTL_MS = 10_000
MAX_PENDING = 12


class Told(NamedTuple):
    """What a text or a failure says of itself."""

    private: bool
    token: str
    uri: str
    changes: int

    def __str__(self) -> str:
        return "|".join(["private" if self.private else "public", self.token, self.uri, str(self.changes)])

    @classmethod
    def parse(cls, text: str) -> "Told":
        private, token, uri, changes = text.split("|")
        return cls(private == "private", token, uri, int(changes))


class Ask(NamedTuple):
    """One reader, and how many changes had been announced when he came."""

    task: "asyncio.Task[Answer]"
    token: str
    uri: str
    changes: int


class Schedule(RuleBasedStateMachine):
    """Readers of two resources with three tokens; the upstream sometimes says that an answer is public."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stage = Stage(forward=("authorization",), stale_if_error=30)
        self.changes = dict.fromkeys(URIS, 0)
        self.asks: list[Ask] = []
        self.asked = 0
        self.retries = 0
        self.born: dict[int, int] = {}

    def go(self, body: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(body)
        self.mark()

    def mark(self) -> None:
        """Write down what the upstream knew when each new call reached it."""
        for number, call in enumerate(self.stage.calls):
            self.born.setdefault(number, self.changes[call.query.uri or ""])

    @property
    def pending(self) -> list[tuple[int, Call]]:
        return [(number, call) for number, call in enumerate(self.stage.calls) if call.pending]

    @precondition(lambda self: len(self.asks) < MAX_PENDING)
    @rule(
        token=st.sampled_from(TOKENS),
        uri=st.sampled_from(URIS),
        refresh=st.booleans(),
        retry=st.sampled_from([False, False, False, True]),
        go_on=st.booleans(),
    )
    def ask(self, *, token: str, uri: str, refresh: bool, retry: bool, go_on: bool) -> None:
        query = Query(
            Method.READ, uri=uri, refresh=refresh, retry=Retry(request_state=b'"s"') if retry else None
        )

        async def body() -> None:
            task = self.stage.ask(query, bearer(token) if token else ANYONE)
            self.asks.append(Ask(task, token, uri, self.changes[uri]))
            if go_on:
                await settle()

        self.asked += 1
        self.retries += retry
        self.go(body())

    @rule(token=st.sampled_from(TOKENS), uri=st.sampled_from(URIS))
    def peek(self, *, token: str, uri: str) -> None:
        caller = bearer(token) if token else ANYONE
        answer = self.stage.cache.peek(Query(Method.READ, uri=uri), caller)
        if answer is not None:
            self.asked += 1
            told = Told.parse(answer.body.decode())
            assert told.uri == uri
            assert not told.private or (told.token == token and answer.hint.scope is Scope.PRIVATE)
            assert told.changes == self.changes[uri]

    @precondition(lambda self: self.asks)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        ask = self.asks.pop(data.draw(st.integers(0, len(self.asks) - 1)))
        ask.task.cancel()
        self.go(settle())
        assert ask.task.done()

    @precondition(lambda self: self.pending)
    @rule(
        data=st.data(),
        kind=st.sampled_from(
            ["public", "private", "interim", "error", "incapable", "barred", "held", "broken"]
        ),
        ttl_ms=st.sampled_from([0, TTL_MS]),
    )
    def land(self, data: st.DataObject, kind: str, ttl_ms: int) -> None:
        number, call = data.draw(st.sampled_from(self.pending))
        token = call.caller.headers.get("authorization", "")
        uri = call.query.uri or ""
        told = Told(kind not in {"public", "broken"}, token, uri, self.born[number])
        call.land(outcome_of(kind, str(told), ttl_ms))
        self.go(settle())

    @rule(seconds=st.sampled_from([0.5, 9, 20, 31]))
    def wait(self, seconds: float) -> None:
        self.stage.clock.now += seconds

    @rule(uri=st.sampled_from(URIS))
    def change(self, uri: str) -> None:
        # The part belongs to the whole: a change of it is one of both.
        for changed in URIS:
            if uri.startswith(changed):
                self.changes[changed] += 1
        self.stage.cache.invalidate(Event("alpha", Change.RESOURCE, uri))

    @rule()
    def miss_events(self) -> None:
        self.stage.cache.invalidate(Event("alpha", Change.GAP))

    @invariant()
    def everyone_got_only_what_was_his_to_have(self) -> None:
        for ask in [ask for ask in self.asks if ask.task.done()]:
            self.asks.remove(ask)
            error = ask.task.exception()
            if error is None:
                answer = ask.task.result()
                told = Told.parse(answer.body.decode())
                assert not told.private or answer.interim or answer.hint.scope is Scope.PRIVATE
                assert 0 <= answer.hint.ttl_ms <= TTL_MS
            else:
                assert isinstance(error, McpError | UpstreamFailure)
                told = Told.parse(error.message if isinstance(error, McpError) else error.detail)
            assert told.uri == ask.uri
            assert not told.private or told.token == ask.token
            # Who asks after a change is not answered from before it.
            assert error is not None or told.changes >= ask.changes

    def teardown(self) -> None:
        try:
            self.go(settle())
            while self.pending:
                for _, call in self.pending:
                    told = Told(private=False, token="", uri=call.query.uri or "", changes=0)
                    call.land(outcome_of("broken", str(told), 0))
                self.go(settle())
            assert all(ask.task.done() for ask in self.asks)
            self.everyone_got_only_what_was_his_to_have()
            assert len(self.stage.cache._flights) == 0
            assert sum(self.stage.outcomes.values()) == self.asked
            assert sum(call.query.retry is not None for call in self.stage.calls) <= self.retries
        finally:
            self.loop.close()


def outcome_of(kind: str, text: str, ttl_ms: int) -> Answer | Exception:
    outcomes: dict[str, Answer | Exception] = {
        "public": Answer(text.encode(), Hint(ttl_ms, Scope.PUBLIC)),
        "private": Answer(text.encode(), Hint(ttl_ms, Scope.PRIVATE)),
        "interim": Answer(text.encode(), Hint(0, Scope.PRIVATE), interim=True),
        "error": McpError(-32602, text),
        "incapable": McpError(-32021, text),
        "barred": UpstreamFailure("alpha", Reason.REFUSED, text, personal=True, stale_ok=False),
        "held": UpstreamFailure("alpha", Reason.REFUSED, text, personal=True),
        "broken": UpstreamFailure("alpha", Reason.BAD_REPLY, text),
    }
    return outcomes[kind]


def test_invariants_3_and_8_over_any_schedule() -> None:
    """No reader gets what is another's, by peek, flight, refresh or stale copy; none ends another's wait."""
    run_state_machine_as_test(
        Schedule, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
