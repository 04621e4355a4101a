import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import uvloop

from mcp_federator.config import Breaker, Duration, Size
from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.model import Change, Era, Event
from mcp_federator.protocol.jsonrpc import Reply, UnfitError, encode_call
from mcp_federator.protocol.lines import Lines
from mcp_federator.upstream import process, stderr
from mcp_federator.upstream.limits import Budget, FullError, TooLargeError
from mcp_federator.upstream.restarts import CALM
from mcp_federator.upstream.sessions import MAX_REST
from mcp_federator.upstream.stdio import Stdio
from mcp_federator.upstream.transport import Call, ForgottenError
from tests.instruments.processes import python
from tests.instruments.stdio import INITIALIZED, MODERN, ONE, PATIENCE, Stage, error
from tests.upstream.asking import Clock, asking, members

READ = "resources/read"
SOON = 0.2
"""Seconds of a deadline that a test waits for."""

NEVER_OPENS = Breaker(failures=10_000)
TERM_IS_NOT_ENOUGH = [["stubborn", 0], ["stay", 0]]

Body = Callable[[], Coroutine[Any, Any, None]]
Run = Callable[[Body], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test's body on either event loop; a task it leaves behind is a failure."""

    async def alone(body: Body) -> None:
        await body()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left over: {left}"

    def running(body: Body) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(alone(body))

    return running


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little patience with a process that does not end."""
    for name in ("CLOSED_WAIT", "TERMINATED_WAIT", "LAST_WORDS"):
        monkeypatch.setattr(process, name, 0.1)


class Talker:
    """A transport whose calls are written in one line."""

    def __init__(self, stage: Stage, budget: int = 256 << 20, **settings: Any) -> None:
        self.clock = Clock()
        self.budget = Budget(budget)
        self.settings = stage.upstream(**settings)
        self.stdio = Stdio("alpha", self.settings, budget=self.budget, clock=self.clock)
        self._ids = count(1)

    async def ask(
        self,
        method: str = READ,
        params: bytes = b"{}",
        *,
        timeout: float = PATIENCE,  # noqa: ASYNC109 - turned into the deadline that a call has
        incarnation: int | None = None,
    ) -> Reply:
        number = next(self._ids)
        call = Call(number, method, encode_call(number, method, params), {}, incarnation=incarnation)
        deadline = asyncio.get_running_loop().time() + timeout
        with self.budget.lease(self.settings.max_response_bytes) as lease:
            exchange = await self.stdio.exchange(call, lease, deadline)
            assert exchange.status == 200
            assert exchange.reply is not None
            return exchange.reply

    async def text(self, **options: Any) -> str:
        """The text of a read."""
        reply = await self.ask(**options)
        return str(json.loads(bytes(reply.result or b""))["contents"][0]["text"])

    async def fails(self, *arguments: Any, **options: Any) -> UpstreamFailure:
        with pytest.raises(UpstreamFailure) as caught:
            await self.ask(*arguments, **options)
        return caught.value


@asynccontextmanager
async def talking(stage: Stage, **options: Any) -> AsyncIterator[Talker]:
    talker = Talker(stage, **options)
    await talker.stdio.start()
    try:
        yield talker
    finally:
        await talker.stdio.close()
        assert talker.budget.taken == 0


def sized(size: int, *, id_last: bool = False) -> str:
    """A response of so many bytes, its line end not counted."""
    head = '{"jsonrpc":"2.0","id":$ID,"result":{"contents":[{"uri":"x://1","text":"'
    tail = '"}]}}'
    if id_last:
        head, tail = head.replace('"jsonrpc":"2.0","id":$ID,', ""), '"}]},"jsonrpc":"2.0","id":$ID}'
    return head + "x" * (size - len((head + tail).replace("$ID", "1"))) + tail


# --- what is said, and what is understood ---


def test_a_process_is_started_when_it_is_needed(run: Run) -> None:
    """Not before the first call, and once for all who call at the same time."""

    async def body() -> None:
        async with Stage() as stage, talking(stage) as alpha:
            assert stage.born == []
            assert await asyncio.gather(*(alpha.text() for _ in range(20))) == ["one"] * 20
            assert len(stage.born) == 1
            assert len(stage.calls(READ)) == 20

    run(body)


def test_H23_answers_find_their_calls(run: Run) -> None:
    """200 calls in flight are answered in the opposite order, and each gets its own answer."""

    async def body() -> None:
        async with Stage(answers={READ: [["gather", 200]]}) as stage, talking(stage) as alpha:
            texts = await asyncio.gather(*(alpha.text() for _ in range(200)))
            assert texts == [str(message["id"]) for message in stage.calls(READ)]
            assert len(set(texts)) == 200

    run(body)


def test_a_message_is_one_line(run: Run) -> None:
    """Line breaks in what a client gave us do not begin a message of the client's own."""
    params = b'{"a":\r\n{"jsonrpc":"2.0","id":7,"method":"tools/call"}\n,"b":"\\n"}'

    async def body() -> None:
        async with Stage() as stage, talking(stage) as alpha:
            await alpha.ask(params=params)
            (message,) = stage.received
            assert message["params"] == json.loads(params)

    run(body)


@pytest.mark.parametrize("size", [5_000_000, 65_536, 65_537, 200_000])
def test_a_long_line_is_read(run: Run, size: int) -> None:
    """The 64 KiB at which event loops cut lines are no limit of ours."""

    async def body() -> None:
        async with Stage(answers={READ: [["say", sized(size) + "\n"]]}) as stage, talking(stage) as alpha:
            reply = await alpha.ask()
            assert len(bytes(reply.result or b"")) == size - len('{"jsonrpc":"2.0","id":1,"result":}')

    run(body)


@pytest.mark.parametrize("id_last", [False, True])
def test_a_line_beyond_the_limit_fails_its_call_alone(run: Run, id_last: bool) -> None:
    """Who waits for it is told at once; another call goes on, and the process too."""
    answers = [
        [["say", ""]],
        [["say", sized(100_001, id_last=id_last) + "\n"]],
        [["say", sized(100_000, id_last=id_last) + "\n"]],
        ONE,
    ]

    async def body() -> None:
        async with (
            Stage(answers={READ: answers, "other": [["wait", "go"], *ONE]}) as stage,
            talking(stage, max_response_bytes=Size(100_000)) as alpha,
        ):
            unanswered = asyncio.create_task(alpha.ask())
            await stage.got(READ)
            with pytest.raises(TooLargeError):
                await alpha.ask()
            await alpha.ask()
            other = asyncio.create_task(alpha.text(method="other"))
            await stage.got("other")
            stage.order("go")
            assert await other == "one"
            unanswered.cancel()
            await asyncio.wait({unanswered})
            assert len(stage.born) == 1

    run(body)


def test_bytes_that_come_are_counted(run: Run) -> None:
    """While a line comes it is part of the process's budget; a full one costs the answer, not the process."""
    line = sized(300_000)
    begun = line[:150_000]

    async def body() -> None:
        steps = [["say", begun], ["wait", "go"], ["say", line.removeprefix(begun) + "\n"]]
        async with (
            Stage(answers={READ: [steps, [["say", line + "\n"]], ONE]}) as stage,
            talking(stage, budget=400_000) as alpha,
        ):
            asked = asyncio.create_task(alpha.ask())
            come = len(begun.replace("$ID", "1"))
            async with asyncio.timeout(PATIENCE):
                while alpha.budget.taken < come:  # noqa: ASYNC110 - no event tells of a number
                    await asyncio.sleep(0)
            assert alpha.budget.taken == come
            stage.order("go")
            await asked
            with alpha.budget.lease(1 << 20) as other:
                other.take(200_000)
                with pytest.raises(FullError):
                    await alpha.ask()
            assert await alpha.text() == "one"
            assert len(stage.born) == 1

    run(body)


NOISE = {
    "a banner": "Starting server...\nReady on stdio!\n",
    "blank lines": "\n\r\n  \n\n",
    "no UTF-8": "\xff\xfe{\xff}\n\xc3\n",
    "half a message": '{"jsonrpc":"2.0","id":\n',
    "an array": '[1,2,{}]\n[{"jsonrpc":"2.0","method":"notifications/x"}]\n[{]\n',
    "deep": "[" * 100_000 + "{\n",
    "unknown ids": "".join(
        f'{{"jsonrpc":"2.0","id":{number},"result":{{}}}}\n' for number in ('"1"', "null", "999", "-1", "1.5")
    ),
    "a notification": '{"jsonrpc":"2.0","method":"notifications/message","params":{"id":1}}\n',
    "an error without id": '{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}\n',
    "a long line": "y" * 300_000 + "\n",
    "an endless one": "{" * 300_000 + "\n",
}


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_noise_is_passed_over(run: Run, noise: str) -> None:
    """Whatever else comes on stdout, before an answer or behind it, the answers are found."""

    async def body() -> None:
        steps = [["say", noise], *ONE, ["say", noise]]
        async with (
            Stage(opening=[["say", noise]], answers={READ: steps}) as stage,
            talking(stage, max_response_bytes=Size(200_000)) as alpha,
        ):
            for _ in range(3):
                assert await alpha.text() == "one"
            assert len(stage.born) == 1

    run(body)


def test_what_is_passed_over_is_counted_now_and_then(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """The log has one line for many, and never what they say."""
    caplog.set_level(logging.INFO, "mcp_federator")

    async def body() -> None:
        steps = [["flood", [1, "secret text\n", 1000]], *ONE]
        async with Stage(answers={READ: steps}) as stage, talking(stage) as alpha:
            for _ in range(3):
                await alpha.text()
            assert sum("passed over" in line for line in caplog.messages) == 1
            alpha.clock.now += 60
            await alpha.text()
            told = [line for line in caplog.messages if "passed over" in line]
            assert len(told) == 2
            assert told[1].startswith("alpha: passed over ")
            assert "secret" not in caplog.text

    run(body)


def test_crlf_ends_a_line(run: Run) -> None:
    """Programs for other systems write it."""

    async def body() -> None:
        answer = sized(100) + "\r\n"
        async with Stage(answers={READ: [["say", answer]]}) as stage, talking(stage) as alpha:
            assert (await alpha.text()).startswith("x")

    run(body)


BAD = {
    "no UTF-8": '{"jsonrpc":"2.0","id":$ID,"result":{"a":"\xff"}}\n',
    "no JSON": '{"jsonrpc":"2.0","id":$ID,"result":{"a":}}\n',
    "both": '{"jsonrpc":"2.0","id":$ID,"result":{},"error":{"code":1,"message":"m"}}\n',
    "neither": '{"jsonrpc":"2.0","id":$ID}\n',
    "another version": '{"jsonrpc":"1.0","id":$ID,"result":{}}\n',
    "too deep": '{"jsonrpc":"2.0","id":$ID,"result":' + '{"a":' * 70 + "1" + "}" * 70 + "}\n",
    "far too deep": '{"jsonrpc":"2.0","id":$ID,"result":' + "[" * 100_000 + "]" * 100_000 + "}\n",
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
def test_a_bad_answer_fails_its_call_alone(run: Run, line: str) -> None:
    """At once, not at the deadline; the process goes on."""

    async def body() -> None:
        async with Stage(answers={READ: [[["say", line]], ONE]}) as stage, talking(stage) as alpha:
            with pytest.raises((UpstreamFailure, UnfitError)) as caught:
                await alpha.ask()
            if isinstance(caught.value, UpstreamFailure):
                assert caught.value.reason is Reason.BAD_REPLY
            assert await alpha.text() == "one"
            assert len(stage.born) == 1

    run(body)


def test_of_two_answers_the_first_counts(run: Run) -> None:
    """The second is passed over, also when it comes in the same piece."""

    async def body() -> None:
        answer = '{"jsonrpc":"2.0","id":$ID,"result":{"contents":[{"text":"%s"}]}}\n'
        steps = [["say", answer % "first" + answer % "second"]]
        async with Stage(answers={READ: steps}) as stage, talking(stage) as alpha:
            assert [await alpha.text() for _ in range(3)] == ["first"] * 3

    run(body)


def test_requests_of_the_server_are_answered(run: Run) -> None:
    """A ping gets its result, anything else -32601, alone or in a batch; each with the server's own id."""
    ask = '{"jsonrpc":"2.0","id":%s,"method":"%s"}'
    batch = f"[{ask % (3, 'ping')},{ask % (4, 'roots/list')}]"
    sampling = ask % ('"a"', "sampling/createMessage")
    steps = [["say", f"{ask % (1, 'ping')}\n{sampling}\n{batch}\n"], *ONE]

    async def body() -> None:
        async with Stage(answers={READ: [steps, ONE]}) as stage, talking(stage) as alpha:
            assert await alpha.text() == "one"
            await alpha.text()  # what was said before has come by now
            answers = {message["id"]: message for message in stage.received if "method" not in message}
            assert answers[1]["result"] == answers[3]["result"] == {}
            assert answers["a"]["error"]["code"] == answers[4]["error"]["code"] == -32601

    run(body)


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_changes_are_heard_at_any_time(run: Run, era: str) -> None:
    """With an answer or long after it, in either era; a flood of them harms nobody."""
    note = '{"jsonrpc":"2.0","method":"notifications/resources/%s","params":{"uri":"x://%s"}}\n'
    steps = [
        ["say", note % ("list_changed", "")],
        *ONE,
        ["wait", "go"],
        ["say", note % ("updated", "1") * 500],
    ]
    probe = MODERN if era == "modern" else error(-32601)
    answers = {"server/discover": probe, "initialize": INITIALIZED, READ: [[*steps], ONE]}
    events: list[Event] = []

    async def body() -> None:
        async with (
            Stage(answers=answers) as stage,
            asking(None, **stage.command, changed=events.append) as alpha,
        ):
            await alpha.read()
            assert events == [Event("alpha", Change.LIST)]
            stage.order("go")
            await alpha.read()
            assert events[1:] == [Event("alpha", Change.RESOURCE, "x://1")] * 500

    run(body)


# --- deadlines and cancellation ---


def test_a_call_that_is_given_up_is_told(run: Run) -> None:
    """At its deadline and on cancellation the server learns it; a late answer harms nobody."""

    async def body() -> None:
        late = [["wait", "go"], *ONE]
        async with Stage(answers={READ: [[["say", ""]], late, ONE]}) as stage, talking(stage) as alpha:
            assert (await alpha.fails(timeout=SOON)).reason is Reason.TIMEOUT
            asked = asyncio.create_task(alpha.ask())
            await stage.got(READ, 2)
            asked.cancel()
            await asyncio.wait({asked})
            stage.order("go")
            assert await alpha.text() == "one"
            told = await stage.got("notifications/cancelled", 2)
            assert [message["params"]["requestId"] for message in told] == [1, 2]
            assert all("id" not in message for message in told)

    run(body)


@pytest.mark.parametrize("method", ["initialize", "server/discover"])
def test_the_first_words_are_not_cancelled(run: Run, method: str) -> None:
    """`initialize` must not be, and before it a legacy server may take no notification."""

    async def body() -> None:
        async with Stage(answers={method: [["say", ""]]}) as stage, talking(stage) as alpha:
            assert (await alpha.fails(method, timeout=SOON)).reason is Reason.TIMEOUT
            assert await alpha.text() == "one"
            assert stage.calls("notifications/cancelled") == []

    run(body)


@pytest.mark.usefixtures("hurry")
def test_a_process_that_never_reads(run: Run) -> None:
    """Each call ends at its deadline, the loop goes on, and what waits to be written stays small."""

    async def body() -> None:
        async with Stage(opening=[["sleep", 0]]) as stage, talking(stage) as alpha:
            params = b'{"a":"%b"}' % (b"x" * 300_000)
            failures = await asyncio.gather(*(alpha.fails(params=params, timeout=SOON) for _ in range(20)))
            assert {failure.reason for failure in failures} == {Reason.TIMEOUT}
            talk = alpha.stdio._talk
            assert talk is not None
            assert talk.process._stdin.get_write_buffer_size() < 700_000
            assert len(stage.born) == 1

    run(body)


# --- starting, crashing, starting again ---


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"command": "no-such-program-anywhere"}, "No such file"),
        ({"command": "/"}, "Permission denied"),
        ({"cwd": "/no/such/directory"}, "No such file"),
        ({"env": {"A": "\ud800"}}, "no such text"),
    ],
)
def test_a_program_that_cannot_be_started(run: Run, change: dict[str, Any], why: str) -> None:
    """That is told, without its path or arguments, and it is not tried again at once."""

    async def body() -> None:
        async with Stage() as stage:
            talker = Talker(stage)
            settings = stage.upstream()
            chosen = type(settings)(**{"command": settings.command, "args": settings.args, **change})
            talker.stdio = Stdio("alpha", chosen, budget=talker.budget, clock=talker.clock)
            first, second = await talker.fails(), await talker.fails()
            assert first.reason is second.reason is Reason.UNREACHABLE
            assert why in first.detail
            assert "stdio_child" not in first.detail
            assert (first.asked, second.asked) == (True, False)
            await talker.stdio.close()
            assert stage.born == []

    run(body)


def test_a_process_that_ends_at_once_is_not_started_for_each_call(run: Run) -> None:
    """After each early end the wait doubles; no call waits for it."""

    async def body() -> None:
        async with Stage(opening=[["leave", 3]]) as stage, talking(stage) as alpha:
            for starts in range(1, 5):
                failure = await alpha.fails()
                assert failure.reason is Reason.UNREACHABLE
                assert "exit code 3" in failure.detail or "before it was asked" in failure.detail
                for _ in range(10):
                    assert not (await alpha.fails()).asked
                await stage.starts(starts)
                assert len(stage.born) == starts
                alpha.clock.now += 0.5 * 2 ** (starts - 1) - 0.01
                assert not (await alpha.fails()).asked
                alpha.clock.now += 0.01 + 0.2 * 0.5 * 2 ** (starts - 1)

    run(body)


def test_a_crash_fails_what_is_in_flight(run: Run) -> None:
    """At once, with what ended it; the next call has a new process, in another incarnation."""

    async def body() -> None:
        async with Stage(answers={READ: [["say", ""]], "other": ONE}) as stage, talking(stage) as alpha:
            before = alpha.stdio.incarnation
            asked = [asyncio.create_task(alpha.fails()) for _ in range(50)]
            await stage.got(READ, 50)
            alpha.clock.now += CALM
            os.kill(stage.born[0], signal.SIGKILL)
            failures = await asyncio.gather(*asked)
            assert {(failure.reason, failure.asked) for failure in failures} == {(Reason.UNREACHABLE, True)}
            assert "SIGKILL" in failures[0].detail
            assert alpha.stdio.incarnation > before
            assert await alpha.text(method="other") == "one"
            assert len(stage.born) == 2

    run(body)


def test_last_words_are_heard(run: Run) -> None:
    """What a process wrote before it ended is read to its end."""

    async def body() -> None:
        steps = [["say", sized(3_000_000) + "\n"], ["leave", 0]]
        async with Stage(answers={READ: steps}) as stage, talking(stage) as alpha:
            await alpha.ask()

    run(body)


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("stream", [0, 1])
def test_a_process_that_closes_a_stream_is_replaced(run: Run, stream: int) -> None:
    """Nothing more can be said to it; its end is the end of the process."""

    async def body() -> None:
        steps = [*ONE, ["close", stream], ["sleep", 0]]
        async with Stage(answers={READ: [steps]}) as stage, talking(stage) as alpha:
            assert await alpha.text() == "one"
            alpha.clock.now += CALM
            before = alpha.stdio.incarnation
            async with asyncio.timeout(PATIENCE):
                while alpha.stdio.incarnation == before:
                    await alpha.fails(timeout=SOON)
                    await asyncio.sleep(0)  # a broken pipe is told at once, and noted by the loop
            assert await alpha.text() == "one"
            assert len(stage.born) == 2

    run(body)


def test_a_call_for_an_earlier_process_is_not_sent(run: Run) -> None:
    """What was said to that one is unknown to the next, which is not even started."""

    async def body() -> None:
        async with Stage(answers={"die": [["leave", 1]]}) as stage, talking(stage) as alpha:
            now = alpha.stdio.incarnation
            assert await alpha.text(incarnation=now) == "one"
            await alpha.fails("die")
            with pytest.raises(ForgottenError):
                await alpha.ask(incarnation=now)
            assert len(stage.born) == len(stage.calls(READ)) == 1

    run(body)


def test_a_notification_starts_no_process(run: Run) -> None:
    """It belongs to what was said before; where there is a process, it is sent."""
    note = b'{"jsonrpc":"2.0",\n"method":"notifications/initialized"}'

    async def body() -> None:
        async with Stage() as stage, talking(stage) as alpha:
            deadline = asyncio.get_running_loop().time() + PATIENCE
            with pytest.raises(UpstreamFailure):
                await alpha.stdio.notify(note, {}, deadline)
            assert stage.born == []
            await alpha.text()
            await alpha.stdio.notify(note, {}, deadline)
            await stage.got("notifications/initialized")

    run(body)


def test_surroundings(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A process gets a few variables of ours and its own, its directory, pipes, and no descriptor of ours."""
    monkeypatch.setenv("SECRET_TOKEN", "s")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("LD_PRELOAD_X", "s")
    names = {"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "LOGNAME", "SHELL", "TERM"}
    for name in names - {"PATH", "HOME"}:
        monkeypatch.setenv(name, f"/{name.lower()}")
    expected = {name: os.environ[name] for name in names if name in os.environ}
    expected |= {name: value for name, value in os.environ.items() if name.startswith("LC_")}
    expected |= {"TERM": "dumb", "OWN": "ü"}

    async def body() -> None:
        options = {"env": {"TERM": "dumb", "OWN": "ü"}, "cwd": str(tmp_path)}
        async with (
            Stage(answers={READ: [["surroundings", 0]]}) as stage,
            talking(stage) as other,
            talking(stage, **options) as alpha,
        ):
            await other.text()
            told = json.loads(await alpha.text())
            told["env"].pop("LC_CTYPE", None)  # Python sets it for itself
            expected.pop("LC_CTYPE", None)
            assert told["env"] == expected
            assert told["cwd"] == str(tmp_path)
            assert told["kinds"] == ["0o1"] * 3
            assert told["descriptors"] == 5  # the streams, the one to the stage, and the listing itself

    run(body)


# --- stderr ---


def test_stderr_goes_to_the_log(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Line by line, with the upstream's name, escaped; what it said at the end is there too."""
    caplog.set_level(logging.INFO, "mcp_federator")

    async def body() -> None:
        opening = [["complain", "one\ntw"], ["complain", "o\n\x1b[31mred\xff\n\n"]]
        async with (
            Stage(opening=opening, answers={"die": [["complain", "last"], ["leave", 1]]}) as stage,
            talking(stage) as alpha,
        ):
            await alpha.text()
            await alpha.fails("die")
        lines = [line for line in caplog.messages if "stderr" in line]
        assert lines == [f"alpha: stderr: {text}" for text in ("one", "two", "\\x1b[31mred\ufffd", "last")]

    run(body)


def test_a_flood_on_stderr_stops_nothing(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """All of it is taken, little is told, and how much was left out is told as well."""
    caplog.set_level(logging.INFO, "mcp_federator")

    async def body() -> None:
        steps = [["flood", [2, "x" * 1000 + "\n", 20_000]], *ONE]
        async with Stage(answers={READ: steps}) as stage, talking(stage) as alpha:
            assert await alpha.text() == "one"
        lines = [line for line in caplog.messages if "stderr" in line]
        assert len(lines) == stderr.BURST + 1
        assert lines[-1] == f"alpha: stderr: {20_000 - stderr.BURST} lines are left out here"

    run(body)


# --- the end ---


def test_a_process_ends_with_its_stdin(run: Run) -> None:
    """One that heeds the end of its input gets no signal."""

    async def body() -> None:
        async with Stage() as stage:
            async with talking(stage) as alpha:
                await alpha.text()
            await stage.input_ends()
            await stage.all_gone()
            assert (await alpha.fails()).reason is Reason.UNREACHABLE
            assert len(stage.born) == 1

    run(body)


ENDS = {
    "of itself": [],
    "by SIGTERM": [["stay", 0]],
    "by SIGKILL": TERM_IS_NOT_ENOUGH,
    "never reading": [["sleep", 0]],
}


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("opening", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("grandchild", [False, True])
def test_nothing_is_left_after_the_end(run: Run, opening: list[Any], grandchild: bool) -> None:
    """However a process ends, nothing that it started goes on, not even while we have words for it."""
    fork = [["fork", 0]] if grandchild else []

    async def body() -> None:
        async with Stage(opening=[*opening[:-1], *fork, *opening[-1:]]) as stage:
            async with talking(stage) as alpha:
                asked = asyncio.create_task(alpha.ask(timeout=SOON))
                await stage.starts()
                await asyncio.wait({asked})
                asked.exception()
            await stage.all_gone()

    run(body)


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("opening", [[["fork", 0]], [["stubborn", 0], ["fork", 0]]])
def test_a_crash_takes_the_children_along(run: Run, opening: list[Any]) -> None:
    """A child of a crashed process holds its streams open; the crash is seen, and the child ended."""

    async def body() -> None:
        async with (
            Stage(opening=opening, answers={READ: [["die", 9]]}) as stage,
            talking(stage) as alpha,
        ):
            assert "SIGKILL" in (await alpha.fails()).detail
            await stage.all_gone()

    run(body)


def test_closing_while_it_starts(run: Run) -> None:
    """Whoever waits is told, and nothing is left."""

    async def body() -> None:
        async with Stage() as stage:
            talker = Talker(stage)
            asked = asyncio.create_task(talker.fails())
            await asyncio.sleep(0)
            assert talker.stdio._starting is not None
            await talker.stdio.close()
            assert (await asked).reason is Reason.UNREACHABLE

    run(body)


_USE = """
import asyncio, sys
from mcp_federator.config import Upstream
from mcp_federator.upstream.limits import Budget
from mcp_federator.upstream.stdio import Stdio
from mcp_federator.upstream.transport import Call

async def main():
    budget = Budget(1 << 20)
    stdio = Stdio("alpha", Upstream(command=sys.argv[1], args=tuple(sys.argv[2:])), budget=budget)
    call = Call(1, "resources/read", b'{"jsonrpc":"2.0","id":1,"method":"resources/read"}', {})
    with budget.lease(1 << 20) as lease:
        await stdio.exchange(call, lease, asyncio.get_running_loop().time() + 60)
    print("answered", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.parametrize("opening", [[], TERM_IS_NOT_ENOUGH, [*TERM_IS_NOT_ENOUGH, ["fork", 0]]])
def test_nothing_is_left_when_we_are_killed(run: Run, opening: list[Any]) -> None:
    """SIGKILL leaves us no last act; still the process ends, and its children."""

    async def body() -> None:
        async with Stage(opening=opening) as stage:
            command = stage.command
            with python("-c", _USE, command["command"], *command["args"]) as us:
                await asyncio.to_thread(us.wait_for, "answered")
                us.signal(signal.SIGKILL)
                await stage.all_gone()

    run(body)


# --- eras ---


def test_a_modern_process(run: Run) -> None:
    """It is probed once, and each request says of itself what HTTP says in header fields."""

    async def body() -> None:
        async with Stage() as stage, asking(None, **stage.command) as alpha:
            assert members(await alpha.read())["contents"][0]["uri"] == "alpha+x://1"
            status = alpha.client.status
            assert (status.era, status.version, status.transport) == (Era.MODERN, "2026-07-28", "stdio")
            assert status.address == Path(sys.executable).name
            methods = [message["method"] for message in stage.received]
            assert methods == ["server/discover", READ]
            for message in stage.received:
                assert message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"

    run(body)


SILENT = [["say", ""]]
REFUSED_ONCE = [["refuse", "initialize"], *error(-32602)]
LEGACY = {
    "refuses the probe": (error(-32601), 1),
    "is silent at the probe": (SILENT, 1),
    "ends at the probe": ([["leave", 1]], 2),
    "refuses the handshake after the probe": (REFUSED_ONCE, 2),
}


@pytest.mark.parametrize(("probe", "starts"), LEGACY.values(), ids=LEGACY)
def test_a_legacy_process(run: Run, probe: Any, starts: int) -> None:
    """It is met by its handshake, in a process of its own where it must be, and read in its own words."""
    answers = {"server/discover": probe, "initialize": INITIALIZED}

    async def body() -> None:
        async with (
            Stage(answers=answers) as stage,
            asking(None, **stage.command, probe_timeout=Duration(SOON)) as alpha,
        ):
            assert members(await alpha.read())["contents"][0]["text"] == "one"
            status = alpha.client.status
            assert (status.era, status.version) == (Era.LEGACY, "2025-06-18")
            assert len(stage.born) == starts
            await stage.got("notifications/initialized")
            (read,) = stage.calls(READ)
            assert read["params"] == {"uri": "x://1"}
            order = [message["method"] for message in stage.received]
            assert order[-3:] == ["initialize", "notifications/initialized", READ]

    run(body)


def test_a_slow_process_that_ends_at_the_probe(run: Run) -> None:
    """It sees the probe after the handshake was sent: that is done again, in a process of its own."""
    answers = {"server/discover": [["wait", "go"], ["leave", 1]], "initialize": INITIALIZED}

    async def body() -> None:
        async with (
            Stage(answers=answers) as stage,
            asking(None, **stage.command, probe_timeout=Duration(SOON)) as alpha,
        ):
            asked = asyncio.create_task(alpha.read())
            await stage.got("server/discover")
            stdio = alpha.client._transport
            assert isinstance(stdio, Stdio)
            async with asyncio.timeout(PATIENCE):
                while stdio._talk is not None and stdio._talk.is_new:  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(0.01)
            stage.order("go")
            assert members(await asked)["contents"][0]["text"] == "one"
            assert len(stage.born) == 2
            assert alpha.client.status.era is Era.LEGACY

    run(body)


def test_a_slow_modern_process_is_not_taken_for_legacy(run: Run) -> None:
    """Its answer to the probe comes late, it refuses the handshake, and is then known for what it is."""
    answers = {"server/discover": [[["wait", "go"], *MODERN], MODERN], "initialize": error(-32601)}

    async def body() -> None:
        async with (
            Stage(answers=answers) as stage,
            asking(None, **stage.command, probe_timeout=Duration(SOON), breaker=NEVER_OPENS) as alpha,
        ):
            asked = asyncio.create_task(alpha.fails())
            await stage.got("server/discover")
            await asyncio.wait({asked}, timeout=2 * SOON)
            stage.order("go")
            await asked
            alpha.clock.now += 10
            assert members(await alpha.read())["contents"]
            assert alpha.client.status.era is Era.MODERN
            assert len(stage.born) == 1

    run(body)


def test_a_legacy_process_is_not_probed_again(run: Run) -> None:
    """A process does not change its era, and some do not survive the question."""

    async def body() -> None:
        answers = {"server/discover": error(-32601), "initialize": INITIALIZED}
        async with Stage(answers=answers) as stage, asking(None, **stage.command) as alpha:
            for _ in range(3):
                await alpha.read()
                alpha.clock.now += 300
            while alpha.client._discovery._probes.tasks:
                await asyncio.wait(alpha.client._discovery._probes.tasks.values())
            assert len(stage.calls("server/discover")) == len(stage.calls("initialize")) == 1

    run(body)


def test_a_legacy_process_outlives_a_long_rest(run: Run) -> None:
    """Its session is the process itself, and is not opened a second time."""

    async def body() -> None:
        answers = {"server/discover": error(-32601), "initialize": INITIALIZED}
        async with Stage(answers=answers) as stage, asking(None, **stage.command) as alpha:
            await alpha.read()
            alpha.clock.now += 10 * MAX_REST
            alpha.client._sessions.end_idle()
            await alpha.read()
            assert len(stage.calls("initialize")) == len(stage.born) == 1

    run(body)


def test_a_new_process_is_met_anew(run: Run) -> None:
    """After a crash the handshake is done again, and the read that met the crash is asked once more."""

    async def body() -> None:
        answers = {
            "server/discover": error(-32601),
            "initialize": INITIALIZED,
            READ: [["die", 9]],
        }
        async with Stage(answers=answers) as stage, asking(None, **stage.command) as alpha:
            await alpha.client.probe()
            alpha.clock.now += CALM
            assert (await alpha.fails()).reason is Reason.UNREACHABLE
            assert len(stage.calls("initialize")) == len(stage.born) == 2
            assert len(stage.calls(READ)) == 2

    run(body)


def test_waiting_for_a_restart_does_not_open_the_breaker(run: Run) -> None:
    """Calls that were not even sent say nothing about the upstream."""

    async def body() -> None:
        async with (
            Stage(answers={READ: [["leave", 1]]}) as stage,
            asking(None, **stage.command, breaker=Breaker(failures=3)) as alpha,
        ):
            await alpha.fails()
            for _ in range(10):
                await alpha.fails()
            assert alpha.client.status.breaker == "closed"
            assert alpha.outcomes == {"unreachable": 1}

    run(body)


def test_lines_of_a_flood_cost_little() -> None:
    """A chunk without a brace is not taken apart any further."""
    lines = Lines(1 << 20)
    assert lines.feed(b"y\n" * 100_000) == []
    assert lines.strays == 100_000
