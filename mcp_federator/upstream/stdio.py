"""An upstream that is a child process, spoken to over its stdin and stdout (basic/transports/stdio).

All calls share the two streams, so answers find their calls by our ids alone.  The process is started when it
is first needed, and again when it is needed after it ended.  What may not come in: what a reply means for
resources, and how a process is kept (`process`).

Hazards:
- What was said to one process is unknown to the next one: each has an incarnation of its own.  It grows when
  a process ends, so that the next number is already in force when the next process begins.
- A line belongs to nobody until its end has come.  Its bytes count as ours until then, and as its asker's
  from there on.
- Anything may come on stdout: banners, answers to nothing, two answers to one call.  It is passed over and
  counted.
- A server of both eras keeps to that of the first request it sees, and a legacy one may end itself when that
  is not `initialize`.  So a handshake that fails after a probe is tried once more as the first words to a new
  process.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from http import HTTPStatus
from pathlib import PurePath
from typing import Final

import msgspec

from mcp_federator.config import Upstream
from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.log import clean
from mcp_federator.model import Method
from mcp_federator.protocol import sse
from mcp_federator.protocol.jsonrpc import UnfitError, decode_reply
from mcp_federator.protocol.legacy import INITIALIZE, answer_request, cancelled, change_of, messages
from mcp_federator.protocol.lines import Lines, TooLong, head_of, likely_id, one_line
from mcp_federator.protocol.subscriptions import decode_heard
from mcp_federator.upstream.limits import Budget, FullError, Lease, TooLargeError
from mcp_federator.upstream.process import Process, environment
from mcp_federator.upstream.restarts import Restarts
from mcp_federator.upstream.stderr import Stderr
from mcp_federator.upstream.transport import Call, Changed, Exchange, ForgottenError, unheard

STRAYS_EVERY: Final = 10.0
"""Seconds between two log lines about what was passed over."""

_FIRST_WORDS: Final = frozenset({INITIALIZE, Method.DISCOVER})
_NOT_CANCELLED: Final = _FIRST_WORDS
"""`initialize` must not be cancelled (2025-11-25, basic/utilities/cancellation), and while nothing answers a
probe, we may be talking to a server that has to see `initialize` before any notification."""

_log = logging.getLogger(__name__)


class _Waiting(msgspec.Struct, frozen=True):
    answer: asyncio.Future[bytes]
    lease: Lease


class _Talk:
    """What is under way with one process.

    Attributes:
        process: set once it has started.
        began: when that was, on the clock.
        asked: the methods that it was asked, and `""` for a notification; each once.
        streams: who hears the messages of a subscription, by its id as JSON.
    """

    process: Process

    def __init__(
        self, name: str, limit: int, budget: Budget, clock: Callable[[], float], changed: Changed
    ) -> None:
        self._name = name
        self._changed = changed
        self._limit = limit
        self._budget = budget
        self._clock = clock
        self._lines = Lines(limit)
        self._held = ExitStack()
        self._full: FullError | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._probes: set[int] = set()
        self.streams: dict[bytes, Callable[[bytes], None]] = {}
        self._ignored = 0
        self._told = 0
        self._tell_after = clock()
        self.stderr = Stderr(name, clock)
        self.began = clock()
        self.asked: set[str] = set()
        self.late_modern = False
        """A probe that nobody waited for any more was answered as modern servers do."""

    @property
    def is_new(self) -> bool:
        """Nothing was said yet but a probe."""
        return self.asked <= {Method.DISCOVER}

    async def ask(self, call: Call, lease: Lease) -> bytes:
        """Send a call and wait for the message that answers it.

        Raises:
            BrokenPipeError: it was not sent.
            TooLargeError, FullError: see `Lease.take`.
            UpstreamFailure: see `end`.
        """
        await self.process.write(one_line(call.body))
        self.asked.add(call.method)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[call.id] = _Waiting(answer, lease)
        try:
            return await answer
        except asyncio.CancelledError:
            if call.method == Method.DISCOVER:
                self._probes.add(call.id)
            if call.method not in _NOT_CANCELLED:
                self.process.offer(cancelled(call.id))
            raise
        finally:
            del self._waiting[call.id]

    def receive(self, chunk: bytes) -> None:
        """Take what came on stdout, cut anywhere."""
        lines = self._lines.feed(chunk)
        self._held.close()  # what has ended is its asker's now
        for line in lines:
            if isinstance(line, TooLong):
                self._refuse(line)
            else:
                self._take(line)
        self._hold()
        self._tell_strays()

    def end(self, failure: UpstreamFailure) -> int:
        """The process is gone: fail all who wait, and give their number."""
        for waiting in self._waiting.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(failure)
        self._held.close()
        return len(self._waiting)

    def _take(self, line: bytes) -> None:
        try:
            batch = messages(line)
        except ValueError:
            self._ignored += 1
            return
        for message in batch:
            head = head_of(message)
            if head.spontaneous:
                self._hear(message)
            elif head.answers is not None and self._waits(head.answers) is not None:
                self._give(head.answers, message)
            else:
                self._ignored += 1
                self._note_late(head.answers, message)

    def _hear(self, message: bytes) -> None:
        """Answer a request of the server, unless it does not read what we say; tell of a change."""
        answer = answer_request(message)
        if answer is not None:
            if self.process.has_room:
                self.process.offer(one_line(answer))
        elif hear := self.streams.get(decode_heard(message).subscription if self.streams else b""):
            hear(message)
        elif (event := change_of(self._name, message)) is not None:
            self._changed(event)

    def _give(self, number: int, message: bytes) -> None:
        waiting = self._waiting[number]
        try:
            waiting.lease.take(len(message))
        except (TooLargeError, FullError) as problem:
            waiting.answer.set_exception(problem)
        else:
            waiting.answer.set_result(message)

    def _refuse(self, line: TooLong) -> None:
        """Tell whoever waits for a line that was not kept."""
        problem, self._full = self._full or TooLargeError(f"more than {self._limit} bytes"), None
        waiting = self._waits(likely_id(line.head, line.tail))
        if waiting is None:
            self._ignored += 1
        else:
            waiting.answer.set_exception(problem)

    def _waits(self, number: int | None) -> _Waiting | None:
        """Who waits for the answer to this call, and has none yet."""
        waiting = None if number is None else self._waiting.get(number)
        return None if waiting is None or waiting.answer.done() else waiting

    def _hold(self) -> None:
        """Account for the line that has begun."""
        if self._lines.pending:
            try:
                self._held.enter_context(self._budget.lease(self._limit)).take(self._lines.pending)
            except FullError as full:
                self._full = full
                self._lines.skip()
                self._held.close()

    def _note_late(self, number: int | None, message: bytes) -> None:
        if number in self._probes:
            self._probes.discard(number)
            with suppress(ValueError):
                self.late_modern = decode_reply(message, number).error is None

    def _tell_strays(self) -> None:
        strays = self._ignored + self._lines.strays
        if strays > self._told and self._clock() >= self._tell_after:
            _log.info(
                "%s: passed over %d lines on stdout that answer nothing", self._name, strays - self._told
            )
            self._told = strays
            self._tell_after = self._clock() + STRAYS_EVERY


class Stdio:
    """The process of one upstream.

    Args:
        name: the upstream's.
        settings: its part of the configuration.
        budget: bytes of answers under way, of the whole process.
        clock: seconds, never going back.
        changed: is told of what the process says of changes.

    Attributes:
        address: the program's name; its path and arguments may be secrets.
        incarnation: see `Transport`.
    """

    kind = "stdio"

    def __init__(
        self,
        name: str,
        settings: Upstream,
        *,
        budget: Budget,
        clock: Callable[[], float] = time.monotonic,
        changed: Changed = unheard,
    ) -> None:
        self._name = name
        self._changed = changed
        self._settings = settings
        self._budget = budget
        self._clock = clock
        self._restarts = Restarts()
        self._talk: _Talk | None = None
        self._starting: asyncio.Task[_Talk] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False
        self._excused = False
        self._unopened = False
        self._ended: Callable[[], None] = lambda: None
        self.address = clean(PurePath(settings.command or "").name)
        self.incarnation = 1

    async def start(self) -> None:
        """See `Transport.start`; the process is started when it is needed."""

    async def close(self) -> None:
        """See `Transport.close`; the process and its children have ended then."""
        self._closed = True
        if self._starting is not None:
            await asyncio.wait({self._starting})
        if self._talk is not None:
            await self._talk.process.end()
        await asyncio.gather(*self._ending)

    async def exchange(self, call: Call, lease: Lease, deadline: float) -> Exchange:
        """See `Transport.exchange`.  A process that has to be started counts toward the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                if call.method == INITIALIZE:
                    return await self._open(call, lease)
                return await self._exchange(call, lease)
        except TimeoutError:
            raise self._failure(Reason.TIMEOUT, "no answer in time") from None

    async def notify(self, body: bytes, headers: Mapping[str, str], deadline: float) -> None:
        """See `Transport.notify`; no process is started for it."""
        del headers
        talk = self._talk
        if talk is None:
            raise self._failure(Reason.UNREACHABLE, "no process runs")
        try:
            async with asyncio.timeout_at(deadline):
                await talk.process.write(one_line(body))
        except TimeoutError:
            raise self._failure(Reason.TIMEOUT, "it does not read") from None
        except BrokenPipeError:
            raise self._failure(Reason.UNREACHABLE, "it does not read any more") from None
        talk.asked.add("")

    async def subscribe(self, call: Call, hear: Callable[[bytes], None]) -> Exchange:
        """See `Transport.subscribe`; all streams are stdout, and an id tells them apart."""
        talk = await self._running()
        number = b"%d" % call.id
        talk.streams[number] = hear
        try:
            with self._budget.lease(self._settings.max_response_bytes) as lease:
                return Exchange(200, decode_reply(await talk.ask(call, lease), call.id))
        except BrokenPipeError:
            raise self._failure(Reason.UNREACHABLE, "the process ended before it was asked") from None
        except (TooLargeError, FullError) as problem:
            raise ValueError(str(problem)) from problem
        finally:
            del talk.streams[number]

    def on_end(self, ended: Callable[[], None]) -> None:
        """See `Transport.on_end`."""
        self._ended = ended

    async def listen(
        self,
        headers: Mapping[str, str],
        decoder: sse.Decoder,
        begins: Callable[[], None],
        context: bytes | None = None,
    ) -> int:
        """See `Transport.listen`; over stdio there is no stream beside stdout."""
        del headers, decoder, begins, context
        return HTTPStatus.METHOD_NOT_ALLOWED

    async def end(self, headers: Mapping[str, str], deadline: float) -> None:
        """See `Transport.end`; over stdio a session is the process."""

    async def _open(self, call: Call, lease: Lease) -> Exchange:
        """Exchange `initialize`, in a process that has not been spoken to where that matters."""
        talk = self._talk
        if talk is not None and (self._unopened or not talk.is_new):
            await self._renew()
            talk = None
        self._unopened = True
        try:
            exchange = await self._exchange(call, lease)
        except UpstreamFailure as failure:
            if talk is None or failure.reason is not Reason.UNREACHABLE:
                raise
            # It was slow: it read the probe when we had ceased to wait for its answer, and ended.
            if self._talk is talk:
                await self._renew()
            talk = None
            exchange = await self._exchange(call, lease)
        self._unopened = False
        refused = exchange.reply is not None and exchange.reply.error is not None
        if refused and talk is not None and not talk.late_modern:
            await self._renew()
            return await self._exchange(call, lease)
        return exchange

    async def _exchange(self, call: Call, lease: Lease) -> Exchange:
        if call.incarnation is not None and call.incarnation != self.incarnation:
            raise ForgottenError
        talk = await self._running()
        try:
            message = await talk.ask(call, lease)
        except BrokenPipeError:
            if call.incarnation is not None:
                raise ForgottenError from None
            raise self._failure(Reason.UNREACHABLE, "the process ended before it was asked") from None
        self._excused = False
        try:
            return Exchange(200, decode_reply(message, call.id))
        except UnfitError:
            raise
        except ValueError as problem:
            raise self._failure(Reason.BAD_REPLY, str(problem)) from problem

    async def _running(self) -> _Talk:
        """The process there is, or one that is started for all who ask meanwhile."""
        if self._closed:
            raise self._failure(Reason.UNREACHABLE, "closed")
        if self._talk is not None:
            return self._talk
        if self._starting is None:
            wait = self._restarts.wait(self._clock())
            if wait:
                raise self._failure(
                    Reason.UNREACHABLE, f"the process ended; it may start again in {wait:.1f} s", asked=False
                )
            self._starting = asyncio.get_running_loop().create_task(self._start(), name=f"start {self._name}")
            self._starting.add_done_callback(self._started)
        return await asyncio.shield(self._starting)

    def _started(self, task: asyncio.Task[_Talk]) -> None:
        self._starting = None
        task.exception()  # it was told to those who wait, if any still do

    async def _start(self) -> _Talk:
        settings = self._settings
        talk = _Talk(self._name, settings.max_response_bytes, self._budget, self._clock, self._changed)
        try:
            talk.process = await Process.start(
                self._name,
                (settings.command or "", *settings.args),
                env=environment(settings.env),
                cwd=settings.cwd,
                received=talk.receive,
                complained=talk.stderr.feed,
                ended=lambda how: self._over(talk, how),
            )
        except (OSError, ValueError) as problem:
            self._restarts.ended(0.0, self._clock())
            why = problem.strerror if isinstance(problem, OSError) else "no such text can be passed to it"
            raise self._failure(Reason.UNREACHABLE, f"{self.address} cannot be started: {why}") from None
        _log.info("%s: process %d is started", self._name, talk.process.pid)
        talk.began = self._clock()
        self._talk = talk
        return talk

    async def _renew(self) -> None:
        """End the process, so that the next one is a fresh one."""
        if self._talk is not None:
            await self._talk.process.end()

    def _over(self, talk: _Talk, how: str) -> None:
        """A process ended, or is about to because we want it."""
        self.incarnation += 1
        self._talk = None
        reason, now = Reason.UNREACHABLE, self._clock()
        by_itself = not talk.process.told
        if by_itself and Method.DISCOVER in talk.asked <= _FIRST_WORDS and not self._excused:
            # Old servers end when they see anything before `initialize`.
            self._excused = True
            if INITIALIZE not in talk.asked:
                reason = Reason.TIMEOUT  # that is silence, as to era
        elif by_itself:
            self._excused = False
            self._restarts.ended(now - talk.began, now)
        waited = talk.end(self._failure(reason, f"the process ended ({how})"))
        _log.log(
            logging.WARNING if by_itself else logging.INFO,
            "%s: process %d ended (%s); %d requests were waiting",
            self._name,
            talk.process.pid,
            how,
            waited,
        )
        self._ended()
        task = asyncio.get_running_loop().create_task(self._end(talk), name=f"end {self._name}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, talk: _Talk) -> None:
        await talk.process.end()
        talk.stderr.end()

    def _failure(self, reason: Reason, detail: str, *, asked: bool = True) -> UpstreamFailure:
        return UpstreamFailure(self._name, reason, clean(detail), asked=asked)
