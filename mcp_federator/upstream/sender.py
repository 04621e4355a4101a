"""Whether an upstream may be asked now, and what each request that was sent teaches: holds, breaker, counts.

What may not come in: what is asked.

Hazards:
- Each ticket of the breaker goes back, whatever happens, our own cancellation included.
- Only what was sent is counted in the metrics, each request once, by how it ended.
"""

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from mcp_federator.breaker import Breaker, State, Ticket
from mcp_federator.config import Upstream
from mcp_federator.errors import Reason, UpstreamError, UpstreamFailure
from mcp_federator.log import clean
from mcp_federator.metrics import Metrics
from mcp_federator.upstream.hold import Holds
from mcp_federator.upstream.limits import Budget, FullError, TooLargeError
from mcp_federator.upstream.sessions import LostError
from mcp_federator.upstream.transport import Call, Exchange, ForgottenError, Transport

_Read = TypeVar("_Read")

_SICK: Final = frozenset({Reason.UNREACHABLE, Reason.TIMEOUT, Reason.BAD_REPLY})
"""What the breaker counts."""

_log = logging.getLogger(__name__)


class Sender:
    """What stands before one upstream's transport.

    Args:
        name: its configured name.
        settings: its part of the configuration.
        transport: how it is reached.
        metrics: counts requests by how they ended.
        clock: seconds, never going back.
        budget: bytes of answers under way, of the whole process.

    Attributes:
        up: the upstream answered when it was asked last.
        error: why it last failed, in our words, or `""` when it answered since.
    """

    def __init__(
        self,
        name: str,
        settings: Upstream,
        transport: Transport,
        *,
        metrics: Metrics,
        clock: Callable[[], float],
        budget: Budget,
    ) -> None:
        self._name = name
        self._transport = transport
        self._metrics = metrics
        self._clock = clock
        self._budget = budget
        self._max_bytes = settings.max_response_bytes
        self._breaker = Breaker(
            settings.breaker.failures, settings.breaker.open_for, settings.breaker.max_open_for
        )
        self._holds = Holds()
        self.up = False
        self.error = ""

    @property
    def state(self) -> State:
        """The breaker's."""
        return self._breaker.state(self._clock())

    async def send(
        self,
        call: Call,
        partition: bytes,
        deadline: float,
        read: Callable[[Exchange], _Read],
        *,
        silence: Callable[[], _Read] | None = None,
    ) -> _Read:
        """One request to the upstream, if it may be asked now; `read` says what came of it.

        Args:
            call: the request.
            partition: whose it is, for holds.
            deadline: on the event loop's clock.
            read: raises `UpstreamError` or `UpstreamFailure` where what came is no answer.
            silence: says what it means that nothing came by then; without it, that is a failure.

        Raises:
            UpstreamError, UpstreamFailure: as `read` does; or the upstream gave no answer, or was not asked.
            LostError: see `ForgottenError`; it was not asked.
        """
        begun = self._clock()
        ticket = self._admit(partition, begun)
        outcome = ""
        try:
            with self._budget.lease(self._max_bytes) as lease:
                answer = read(await self._transport.exchange(call, lease, deadline))
        except UpstreamFailure as failure:
            if failure.asked:
                outcome = failure.reason
                if silence is not None and failure.reason is Reason.TIMEOUT:
                    return silence()
                self._note_failure(failure, call.method, partition, ticket)
            raise
        except UpstreamError:
            outcome = "error"
            self._note_answer(ticket)
            raise
        except TooLargeError as problem:
            # Well-formed for all we know: one large resource must not close the upstream to all.
            outcome = Reason.BAD_REPLY
            self._note_answer(ticket)
            raise self.failure(Reason.BAD_REPLY, str(problem)) from problem
        except FullError as full:
            raise self.failure(Reason.OVERLOADED, str(full), asked=False) from full
        except ForgottenError:
            raise LostError(self._name, Reason.UNREACHABLE, "it was started anew", asked=False) from None
        else:
            outcome = "ok"
            self._note_answer(ticket)
            return answer
        finally:
            self._breaker.release(ticket)
            if outcome:
                self._metrics.upstream_request(self._name, call.method, outcome, self._clock() - begun)

    def _admit(self, partition: bytes, now: float) -> Ticket:
        wait = self._holds.remaining(partition, now)
        if wait:
            raise self.failure(
                Reason.REFUSED, "it asked us to wait", personal=True, retry_after=wait, asked=False
            )
        ticket = self._breaker.admit(now)
        if ticket is None:
            raise self.failure(Reason.UNREACHABLE, "the breaker is open", asked=False)
        return ticket

    def failure(
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
        """A failure of this upstream; `detail` may quote it."""
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

    def _note_answer(self, ticket: Ticket) -> None:
        self._breaker.succeed(ticket)
        self._set_up(up=True)
        self.error = ""

    def _note_failure(self, failure: UpstreamFailure, method: str, partition: bytes, ticket: Ticket) -> None:
        now = self._clock()
        sick = failure.reason in _SICK
        if sick:
            self._breaker.fail(ticket, now)
        else:
            self._breaker.succeed(ticket)
        if failure.retry_after is not None:
            self._holds.hold(partition, failure.retry_after, now)
        self._set_up(up=not sick)
        self.error = clean(f"{failure.reason}: {failure.detail}")
        level = logging.WARNING if sick else logging.INFO
        _log.log(level, "%s: %s failed: %s", self._name, method, self.error)
        if sick and self._breaker.state(now) is State.OPEN:
            _log.warning("%s: the breaker opens", self._name)

    def _set_up(self, *, up: bool) -> None:
        self.up = up
        self._metrics.upstream_up(self._name, up)
