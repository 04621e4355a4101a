import asyncio
from math import inf

import pytest

from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.model import ANYONE, Caller, Era
from mcp_federator.protocol.modern import Discovered
from mcp_federator.upstream.discovery import DOUBT, MAX_ASKERS, MIN_LIFE, Discovery, Known
from tests.upstream.asking import Clock, run

A, B = (Caller(headers={"authorization": token}) for token in "ab")
REFUSED = UpstreamFailure("alpha", Reason.REFUSED, "401", personal=True)


LEGACY = Known(Era.LEGACY, Discovered(("2025-06-18",), resources=True))
STRANGE = Known(Era.LEGACY, problem="another transport")


def modern(ttl_ms: int = 0) -> Known:
    return Known(Era.MODERN, Discovered(("2026-07-28",), resources=True, ttl_ms=ttl_ms))


class Upstream:
    """An upstream that is asked what it is; it says what the test says, when the gate is open."""

    def __init__(self, says: Known | UpstreamFailure, *, max_life: float = 3600.0) -> None:
        self.says: Known | UpstreamFailure = says
        self.asked: list[Caller] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.clock = Clock()
        self.incarnation = 0
        self.discovery = Discovery(
            self.ask,
            asker=lambda caller: caller.headers.get("authorization", "").encode(),
            max_life=max_life,
            clock=self.clock,
            incarnation=lambda: self.incarnation,
        )

    async def ask(self, caller: Caller) -> Known:
        self.asked.append(caller)
        await self.gate.wait()
        if isinstance(self.says, UpstreamFailure):
            raise self.says
        return self.says

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)


def test_is_asked_once_by_all_together() -> None:
    """Ten who want to know at once cause one probe, and after it none."""

    async def body() -> None:
        upstream = Upstream(modern())
        assert (
            await asyncio.gather(*(upstream.discovery.know(ANYONE, inf) for _ in range(10)))
            == [modern()] * 10
        )
        await upstream.discovery.know(A, inf)
        assert upstream.asked == [ANYONE]

    run(body())


def test_others_credentials_try_for_themselves() -> None:
    """A refusal is for whose credentials were refused; the first to succeed knows for all."""

    async def body() -> None:
        upstream = Upstream(REFUSED)
        upstream.gate.clear()
        waiting = [asyncio.create_task(upstream.discovery.know(caller, inf)) for caller in (A, A)]
        await upstream.settle()
        upstream.gate.set()
        for task in waiting:
            with pytest.raises(UpstreamFailure, match="401"):
                await task
        upstream.says = modern()
        await upstream.discovery.know(B, inf)
        await upstream.discovery.know(A, inf)
        assert upstream.asked == [A, B]

    run(body())


def test_a_failure_is_not_remembered() -> None:
    """Who asks after a failed probe causes the next one."""

    async def body() -> None:
        upstream = Upstream(REFUSED)
        for _ in range(2):
            with pytest.raises(UpstreamFailure):
                await upstream.discovery.know(ANYONE, inf)
        upstream.says = modern()
        assert await upstream.discovery.know(ANYONE, inf) == modern()
        assert len(upstream.asked) == 3

    run(body())


@pytest.mark.parametrize(
    ("ttl_ms", "life"),
    [
        pytest.param(0, MIN_LIFE, id="none"),
        pytest.param(59_000, MIN_LIFE, id="short"),
        pytest.param(300_000, 300.0, id="five-minutes"),
        pytest.param(10**30, 3600.0, id="for-ever"),
    ],
)
def test_knowledge_grows_old(ttl_ms: int, life: float) -> None:
    """It counts as new for its ttl, at least a minute, at most `max_life`; then it is probed again."""

    async def body() -> None:
        upstream = Upstream(modern(ttl_ms))
        await upstream.discovery.know(ANYONE, inf)
        upstream.clock.now += life - 1
        assert upstream.discovery.remaining(ANYONE) == 1
        assert await upstream.discovery.know(ANYONE, inf) == modern(ttl_ms)
        assert len(upstream.asked) == 1
        upstream.clock.now += 1
        upstream.says = LEGACY
        assert await upstream.discovery.know(A, inf) == modern(ttl_ms)
        await upstream.settle()
        assert await upstream.discovery.know(A, inf) == LEGACY
        assert upstream.asked == [ANYONE, A]

    run(body())


def test_old_knowledge_outlives_failed_probes() -> None:
    """While a new probe fails the old knowledge is used, and the next is a minute later."""

    async def body() -> None:
        upstream = Upstream(modern())
        await upstream.discovery.know(ANYONE, inf)
        upstream.says = REFUSED
        for seconds, asked in ((MIN_LIFE, 2), (MIN_LIFE - 1, 2), (1, 3)):
            upstream.clock.now += seconds
            for _ in range(3):
                assert await upstream.discovery.know(ANYONE, inf) == modern()
                await upstream.settle()
            assert len(upstream.asked) == asked

    run(body())


def test_doubt_asks_again_but_not_with_each_request() -> None:
    """Answers that do not fit cause a probe, at most one in so many seconds."""

    async def body() -> None:
        upstream = Upstream(modern())
        await upstream.discovery.know(ANYONE, inf)
        for seconds, asked in ((0, 1), (DOUBT, 2), (0, 2), (DOUBT, 3)):
            upstream.clock.now += seconds
            known = upstream.discovery.known
            assert known is not None
            assert await upstream.discovery.reconsider(known, ANYONE, inf) == modern()
            assert len(upstream.asked) == asked

    run(body())


def test_who_doubts_what_is_known_no_more_is_told_what_is() -> None:
    """Somebody else found out meanwhile; nobody is asked again."""

    async def body() -> None:
        upstream = Upstream(LEGACY)
        await upstream.discovery.know(ANYONE, inf)
        assert await upstream.discovery.reconsider(modern(), ANYONE, inf) == LEGACY
        assert len(upstream.asked) == 1

    run(body())


def test_those_who_doubt_together_wait_for_one_probe() -> None:
    """Ten answers that do not fit cause one probe, and all ten learn what it says."""

    async def body() -> None:
        upstream = Upstream(modern())
        known = await upstream.discovery.know(ANYONE, inf)
        upstream.clock.now += DOUBT
        upstream.says = LEGACY
        doubts = (upstream.discovery.reconsider(known, ANYONE, inf) for _ in range(10))
        assert await asyncio.gather(*doubts) == [LEGACY] * 10
        assert len(upstream.asked) == 2

    run(body())


def test_what_cannot_be_asked_is_found_out_anew() -> None:
    """An upstream that is none we can ask is probed again before the next answer, after some seconds."""

    async def body() -> None:
        upstream = Upstream(STRANGE)
        for seconds, asked in ((0, 1), (DOUBT - 1, 1), (1, 2), (0, 2)):
            upstream.clock.now += seconds
            assert await upstream.discovery.know(ANYONE, inf) == STRANGE
            assert len(upstream.asked) == asked
        upstream.clock.now += DOUBT
        upstream.says = LEGACY
        assert await upstream.discovery.know(ANYONE, inf) == LEGACY

    run(body())


def test_what_was_started_anew_is_probed_again() -> None:
    """What was learnt of an earlier incarnation is not used for the next one."""

    async def body() -> None:
        upstream = Upstream(modern())
        await upstream.discovery.know(ANYONE, inf)
        upstream.incarnation = 1
        upstream.says = Known(Era.LEGACY, LEGACY.discovered, incarnation=1)
        for _ in range(2):
            assert await upstream.discovery.know(ANYONE, inf) == upstream.says
        assert len(upstream.asked) == 2

    run(body())


@pytest.mark.parametrize(
    ("known", "version"),
    [
        pytest.param(modern(), "2026-07-28", id="modern"),
        pytest.param(LEGACY, "2025-06-18", id="legacy"),
        pytest.param(STRANGE, "", id="none"),
    ],
)
def test_the_version_that_is_spoken(known: Known, version: str) -> None:
    """The modern one, the one agreed on, or none."""
    assert known.version == version


def test_a_probe_goes_on_when_its_asker_leaves() -> None:
    """Whoever is cancelled takes nobody's answer away."""

    async def body() -> None:
        upstream = Upstream(modern())
        upstream.gate.clear()
        first = asyncio.create_task(upstream.discovery.know(ANYONE, inf))
        await upstream.settle()
        second = asyncio.create_task(upstream.discovery.know(ANYONE, inf))
        first.cancel()
        await upstream.settle()
        upstream.gate.set()
        assert await second == modern()
        assert len(upstream.asked) == 1

    run(body())


def test_close_leaves_no_probe_behind() -> None:
    """A probe under way is cancelled."""

    async def body() -> None:
        upstream = Upstream(modern())
        upstream.gate.clear()
        upstream.discovery.refresh(ANYONE)
        await upstream.settle()
        await upstream.discovery.close()

    run(body())


def test_close_ends_the_waiting_too() -> None:
    """Who waits for a probe that is cancelled is told, and not cancelled himself."""

    async def body() -> None:
        upstream = Upstream(modern())
        upstream.gate.clear()
        waiting = asyncio.create_task(upstream.discovery.know(ANYONE, inf))
        await upstream.settle()
        await upstream.discovery.close()
        with pytest.raises(TimeoutError):
            await waiting

    run(body())


def test_waiting_for_a_probe_has_an_end() -> None:
    """At the deadline the asker is told; the probe goes on."""

    async def body() -> None:
        upstream = Upstream(modern())
        upstream.gate.clear()
        with pytest.raises(TimeoutError):
            await upstream.discovery.know(ANYONE, asyncio.get_running_loop().time() + 0.01)
        upstream.gate.set()
        assert await upstream.discovery.know(ANYONE, inf) == modern()
        assert len(upstream.asked) == 1

    run(body())


def test_who_is_refused_speaks_for_himself() -> None:
    """One caller's "legacy" leaves what was found for all, who are still served by it without a probe."""

    async def body() -> None:
        upstream = Upstream(modern())
        known = await upstream.discovery.know(A, inf)
        for says in (STRANGE, LEGACY):
            upstream.clock.now += DOUBT
            upstream.says = says
            assert await upstream.discovery.probe(B, inf) == says
            assert await upstream.discovery.know(B, inf) == says
            assert await upstream.discovery.know(A, inf) is known
            assert await upstream.discovery.know(ANYONE, inf) is known
            assert upstream.discovery.known is known
        assert upstream.asked == [A, B, B]

    run(body())


@pytest.mark.parametrize("says", [STRANGE, LEGACY], ids=["none", "legacy"])
def test_a_first_refusal_decides_for_nobody_else(says: Known) -> None:
    """Who comes after it is asked for anew, and what he finds is told of the upstream."""

    async def body() -> None:
        upstream = Upstream(says)
        assert await upstream.discovery.know(B, inf) == says
        assert upstream.discovery.known == says
        upstream.says = modern()
        assert await upstream.discovery.know(A, inf) == modern()
        assert upstream.discovery.known == modern()
        assert upstream.asked == [B, A]

    run(body())


def test_what_was_found_falls_with_its_finder() -> None:
    """Who found the upstream modern, and then finds it otherwise, finds it so for those who come after."""

    async def body() -> None:
        upstream = Upstream(modern())
        await upstream.discovery.know(A, inf)
        upstream.says = LEGACY
        assert await upstream.discovery.probe(A, inf) == LEGACY
        assert upstream.discovery.known == LEGACY
        await upstream.discovery.know(B, inf)
        assert upstream.asked == [A, A, B]

    run(body())


def test_who_was_refused_is_heard_again() -> None:
    """A modern answer takes the place of what the same caller was told before."""

    async def body() -> None:
        upstream = Upstream(modern())
        await upstream.discovery.know(A, inf)
        upstream.says = STRANGE
        await upstream.discovery.probe(B, inf)
        upstream.clock.now += DOUBT
        upstream.says = modern(1)
        assert await upstream.discovery.know(B, inf) == modern(1)
        assert await upstream.discovery.know(A, inf) == modern(1)

    run(body())


def test_one_callers_doubts_do_not_silence_anothers() -> None:
    """How often one may have it found out anew is counted for each."""

    async def body() -> None:
        upstream = Upstream(modern())
        known = await upstream.discovery.know(ANYONE, inf)
        for caller in (A, A, B, B):
            await upstream.discovery.reconsider(known, caller, inf)
            known = await upstream.discovery.know(ANYONE, inf)
        assert upstream.asked == [ANYONE, A, B]

    run(body())


def test_what_is_kept_of_callers_is_bounded() -> None:
    """However many tokens come, so many findings are kept; the rest is found out anew."""

    async def body() -> None:
        upstream = Upstream(LEGACY)
        for number in range(MAX_ASKERS + 10):
            await upstream.discovery.know(Caller(headers={"authorization": str(number)}), inf)
        assert len(upstream.discovery._own) == MAX_ASKERS

    run(body())
