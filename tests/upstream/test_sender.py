import asyncio
import threading
from collections.abc import Mapping
from math import inf

import pytest

from mcp_federator.aside import LARGE
from mcp_federator.config import Breaker, Upstream
from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.metrics import Metrics
from mcp_federator.upstream.limits import Budget, Lease
from mcp_federator.upstream.sender import Sender
from mcp_federator.upstream.sessions import LostError
from mcp_federator.upstream.transport import Call, Exchange, ForgottenError
from tests.upstream.asking import Clock, run

CALL = Call(1, "resources/read", b"{}", {})
SILENT = UpstreamFailure("alpha", Reason.TIMEOUT, "no answer in time")
NOT_ASKED = UpstreamFailure("alpha", Reason.UNREACHABLE, "not yet", asked=False)


class Says:
    """A transport that raises what the test says."""

    kind, address, incarnation = "stdio", "", 0

    def __init__(self, problem: Exception | None, size: int) -> None:
        self.problem = problem
        self.size = size

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def exchange(self, call: Call, lease: Lease, deadline: float) -> Exchange:  # noqa: ARG002 - as given
        await asyncio.sleep(0)
        lease.take(self.size)
        if self.problem is not None:
            raise self.problem
        return Exchange(200, None)

    async def notify(self, body: bytes, headers: Mapping[str, str], deadline: float) -> None: ...

    async def listen(self, *_: object) -> int:
        return 405

    async def subscribe(self, *_: object) -> Exchange:
        return Exchange(405, None)

    def on_end(self, _: object) -> None: ...

    async def end(self, headers: Mapping[str, str], deadline: float) -> None: ...


class Stage:
    """A sender over it, whose breaker opens at the first failure."""

    def __init__(self, problem: Exception | None, *, size: int = 0) -> None:
        self.metrics = Metrics("0")
        self.budget = Budget(1 << 20)
        self.sender = Sender(
            "alpha",
            Upstream(url="http://127.0.0.1/", breaker=Breaker(failures=1)),
            Says(problem, size),
            metrics=self.metrics,
            clock=Clock(),
            budget=self.budget,
        )

    @property
    def outcomes(self) -> list[str]:
        return [outcome for _, _, outcome in self.metrics._upstream_requests]


def test_silence_may_be_an_answer() -> None:
    """Where the asker says what it means, it is counted, and is no failure of the upstream's."""

    async def body() -> None:
        stage = Stage(SILENT)
        assert (
            await stage.sender.send(CALL, b"", inf, lambda _: "said", silence=lambda: "nothing") == "nothing"
        )
        assert (stage.outcomes, stage.sender.state, stage.sender.error) == (["timeout"], "closed", "")
        with pytest.raises(UpstreamFailure):
            await stage.sender.send(CALL, b"", inf, lambda _: "said")
        assert stage.sender.state == "open"
        assert stage.budget.taken == 0

    run(body())


def test_what_was_not_sent_is_not_counted() -> None:
    """Neither as a request nor by the breaker."""

    async def body() -> None:
        for problem in (NOT_ASKED, ForgottenError()):
            stage = Stage(problem)
            with pytest.raises(UpstreamFailure) as caught:
                await stage.sender.send(CALL, b"", inf, lambda _: None)
            assert not caught.value.asked
            assert isinstance(caught.value, LostError) is (problem is not NOT_ASKED)
            assert (stage.outcomes, stage.sender.state) == ([], "closed")

    run(body())


def test_a_large_answer_is_read_beside_the_loop() -> None:
    """A small one is not."""

    async def body() -> None:
        for size in (LARGE, LARGE + 1):
            stage = Stage(None, size=size)
            where = await stage.sender.send(CALL, b"", inf, lambda _: threading.current_thread())
            assert (where is threading.current_thread()) == (size == LARGE)
            assert stage.budget.taken == 0

    run(body())


def test_a_large_answer_that_waits_too_long_to_be_read_is_our_own_limit() -> None:
    """The deadline holds while others are read; the upstream is not to blame."""

    async def body() -> None:
        stage, release = Stage(None, size=LARGE + 1), threading.Event()
        try:
            with pytest.raises(UpstreamFailure) as caught:
                await stage.sender.send(
                    CALL, b"", asyncio.get_running_loop().time() + 0.01, lambda _: release.wait(10)
                )
        finally:
            release.set()
        assert caught.value.reason is Reason.OVERLOADED
        assert (stage.sender.state, stage.budget.taken) == ("closed", 0)

    run(body())
