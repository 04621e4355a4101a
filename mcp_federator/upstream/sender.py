"""Whether an upstream may be asked now, and what each request that was sent teaches: holds, breaker, counts.

What may not come in: what is asked.

Hazards:
- Each ticket of the breaker goes back, whatever happens, our own cancellation included.
- Only what was sent is counted in the metrics, each request once, by how it ended.
"""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, TypeVar

from mcp_federator.aside import LARGE, aside
from mcp_federator.breaker import Breaker, State, Ticket
from mcp_federator.config import Upstream
from mcp_federator.errors import Reason, UpstreamError, UpstreamFailure
from mcp_federator.log import clean
from mcp_federator.metrics import Metrics
from mcp_federator.model import Method
from mcp_federator.protocol.jsonrpc import UnfitError
from mcp_federator.protocol.legacy import INITIALIZE
from mcp_federator.upstream.hold import Holds
from mcp_federator.upstream.limits import Budget, FullError, TooLargeError
from mcp_federator.upstream.sessions import LostError
from mcp_federator.upstream.transport import Call, Exchange, ForgottenError, Transport

_Read = TypeVar("_Read")

_SICK: Final = frozenset({Reason.UNREACHABLE, Reason.TIMEOUT, Reason.BAD_REPLY})
"""What the breaker counts, unless it is of one answer alone."""

_PROBES: Final = frozenset({Method.DISCOVER, INITIALIZE})

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
        self._forwards = bool(settings.forward)
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
            read: raises `UpstreamError` or `UpstreamFailure` where what came is no answer.  Where much came,
                it runs in a thread of its own.
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
                exchange = await self._transport.exchange(call, lease, deadline)
                self._note_wish(exchange, partition)
                answer = await self._read(read, exchange, lease.taken, deadline)
        except UpstreamFailure as failure:
            if failure.asked:
                outcome = failure.reason
                if silence is not None and failure.reason is Reason.TIMEOUT:
                    return silence()
                sick = failure.reason in _SICK
                self._note_failure(failure, call.method, partition, ticket, sick=sick)
            raise
        except UpstreamError:
            outcome = "error"
            self._note_answer(ticket)
            raise
        except (TooLargeError, UnfitError) as problem:
            # An answer, for all we know: one resource that cannot be read must not close the upstream to all.
            unfit = self.failure(Reason.BAD_REPLY, str(problem))
            outcome = unfit.reason
            self._note_failure(unfit, call.method, partition, ticket, sick=False)
            raise unfit from problem
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

    async def _read(
        self, read: Callable[[Exchange], _Read], exchange: Exchange, size: int, deadline: float
    ) -> _Read:
        if size <= LARGE:
            # There is nothing to wait for, and a time limit costs more than most answers take to be read.
            return read(exchange)
        try:
            async with asyncio.timeout_at(deadline):
                return await aside(size, read, exchange)
        except TimeoutError:
            raise FullError("too many large answers are being decoded") from None

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

    def _note_failure(
        self, failure: UpstreamFailure, method: str, partition: bytes, ticket: Ticket, *, sick: bool
    ) -> None:
        now = self._clock()
        if sick:
            self._breaker.fail(ticket, now)
        else:
            self._breaker.succeed(ticket)
        if failure.retry_after is not None:
            self._holds.hold(partition, failure.retry_after, now)
        # Whom it does not tell what it is, it serves nothing; where callers differ, that is one of them.
        shut = method in _PROBES and failure.reason is Reason.REFUSED and not self._forwards
        self._set_up(up=not (sick or shut))
        self.error = clean(f"{failure.reason}: {failure.detail}")
        level = logging.WARNING if sick or shut else logging.INFO
        _log.log(level, "%s: %s failed: %s", self._name, method, self.error)
        if sick and self._breaker.state(now) is State.OPEN:
            _log.warning("%s: the breaker opens", self._name)

    def _note_wish(self, exchange: Exchange, partition: bytes) -> None:
        """Hold as long as a failed request was told, whatever else it was told."""
        if exchange.retry_after is not None and exchange.status >= HTTPStatus.BAD_REQUEST:
            self._holds.hold(partition, exchange.retry_after, self._clock())

    def _set_up(self, *, up: bool) -> None:
        self.up = up
        self._metrics.upstream_up(self._name, up)
