import asyncio
from collections.abc import Callable
from math import inf

import pytest

from mcp_federator.errors import Reason, UpstreamFailure
from mcp_federator.model import ANYONE, Caller
from mcp_federator.protocol.modern import Discovered
from mcp_federator.upstream.sessions import MAX_REST, MAX_SESSIONS, Session, Sessions
from tests.instruments import virtual_time
from tests.upstream.asking import Clock, run

DOWN = UpstreamFailure("alpha", Reason.UNREACHABLE, "down")


def caller(token: object) -> Caller:
    return Caller(headers={"authorization": str(token)})


A, B = caller("a"), caller("b")


class Upstream:
    """An upstream that opens sessions, when the gate is open, and hears of their ends."""

    def __init__(self) -> None:
        self.opened: list[Caller] = []
        self.ended: list[str | None] = []
        self.used: list[tuple[str | None, Callable[[], None]]] = []
        self.over: list[str | None] = []
        self.fails: UpstreamFailure | None = None
        self.keeps_sessions = True
        self.incarnation = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.hears = asyncio.Event()
        self.hears.set()
        self.clock = Clock()
        self.sessions = Sessions(
            self.open,
            self.end,
            used=self.use,
            over=lambda session: self.over.append(session.id),
            partition=lambda caller: caller.headers.get("authorization", "").encode(),
            incarnation=lambda: self.incarnation,
            clock=self.clock,
        )

    def use(self, session: Session, lost: Callable[[], None]) -> None:
        self.used.append((session.id, lost))

    async def open(self, caller: Caller) -> Session:
        self.opened.append(caller)
        await self.gate.wait()
        if self.fails is not None:
            raise self.fails
        number = f"S{len(self.opened)}" if self.keeps_sessions else None
        return Session(number, Discovered(("2025-11-25",)), self.incarnation, {})

    async def end(self, session: Session) -> None:
        await self.hears.wait()
        self.ended.append(session.id)
        if self.fails is not None:
            raise self.fails

    async def get(self, caller: Caller = ANYONE) -> Session:
        return await self.sessions.get(caller, inf)

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def close(self) -> None:
        await self.sessions.close(inf)


def test_one_is_opened_for_all_who_need_it() -> None:
    """Ten at once cause one handshake; those who come later get the same."""

    async def body() -> None:
        upstream = Upstream()
        found = await asyncio.gather(*(upstream.get() for _ in range(10)))
        assert {session.id for session in (*found, await upstream.get())} == {"S1"}
        assert upstream.opened == [ANYONE]
        await upstream.close()

    run(body())


def test_contexts_do_not_share() -> None:
    """Who has other credentials gets another session."""

    async def body() -> None:
        upstream = Upstream()
        assert [(await upstream.get(who)).id for who in (A, B, A, B)] == ["S1", "S2", "S1", "S2"]
        await upstream.close()

    run(body())


def test_a_failure_is_told_to_all_and_not_remembered() -> None:
    """Who asks afterwards causes the next handshake."""

    async def body() -> None:
        upstream = Upstream()
        upstream.fails = DOWN
        for result in await asyncio.gather(*(upstream.get() for _ in range(3)), return_exceptions=True):
            assert result is DOWN
        upstream.fails = None
        assert (await upstream.get()).id == "S2"
        await upstream.close()

    run(body())


def test_H18_a_lost_session_is_replaced_once() -> None:
    """Ten who learn that it is gone, some late, wait for one new one."""

    async def body() -> None:
        upstream = Upstream()
        old = await upstream.get()

        async def renew() -> Session:
            upstream.sessions.lose(ANYONE, old)
            return await upstream.get()

        upstream.gate.clear()
        early = [asyncio.create_task(renew()) for _ in range(5)]
        await upstream.settle()
        late = [asyncio.create_task(renew()) for _ in range(5)]
        await upstream.settle()
        upstream.gate.set()
        assert {session.id for session in (*await asyncio.gather(*early, *late), await renew())} == {"S2"}
        assert len(upstream.opened) == 2
        await upstream.close()
        assert upstream.ended == ["S2"]

    run(body())


def test_a_new_incarnation_knows_no_session() -> None:
    """What was opened with an earlier one is not used, and nobody is told of its end."""

    async def body() -> None:
        upstream = Upstream()
        await upstream.get()
        upstream.incarnation = 1
        assert (await upstream.get()).id == "S2"
        upstream.incarnation = 2
        await upstream.close()
        assert upstream.ended == []

    run(body())


def test_sessions_are_bounded() -> None:
    """Beyond the limit the one that rested longest is ended; a server without sessions is told nothing."""

    async def body() -> None:
        for keeps in (True, False):
            upstream = Upstream()
            upstream.keeps_sessions = keeps
            for n in range(MAX_SESSIONS):
                await upstream.get(caller(n))
            await upstream.get(caller(0))
            await upstream.get(A)
            await upstream.settle()
            assert len(upstream.sessions) == MAX_SESSIONS
            assert upstream.ended == (["S2"] if keeps else [])
            await upstream.get(caller(0))
            assert len(upstream.opened) == MAX_SESSIONS + 1
            await upstream.close()
            assert len(upstream.ended) == (MAX_SESSIONS + 1 if keeps else 0)

    run(body())


def test_what_rests_too_long_is_ended() -> None:
    """Each after its own last use, without anybody asking."""

    async def body() -> None:
        upstream = Upstream()
        loop = asyncio.get_running_loop()
        sessions = Sessions(
            upstream.open,
            upstream.end,
            used=upstream.use,
            over=lambda session: upstream.over.append(session.id),
            partition=lambda caller: caller.headers["authorization"].encode(),
            incarnation=int,
            clock=loop.time,
        )
        await sessions.get(A, inf)
        await asyncio.sleep(100)
        await sessions.get(B, inf)
        await asyncio.sleep(100)
        await sessions.get(A, inf)
        await asyncio.sleep(MAX_REST - 101)
        assert upstream.ended == []
        await asyncio.sleep(2)
        assert upstream.ended == ["S2"]
        await asyncio.sleep(100)
        assert (upstream.ended, len(sessions)) == (["S2", "S1"], 0)
        await sessions.get(A, inf)
        await asyncio.sleep(MAX_REST)
        assert upstream.ended[2:] == ["S3"]
        await sessions.close(inf)

    virtual_time.run(body())


def test_an_end_that_fails_is_nobodys_trouble() -> None:
    """The upstream ends it by itself."""

    async def body() -> None:
        upstream = Upstream()
        await upstream.get()
        upstream.fails = DOWN
        await upstream.close()
        assert upstream.ended == ["S1"]

    run(body())


def test_closing_has_an_end() -> None:
    """Ends that are not heard in time, and a handshake under way, are given up; who waits for it is told."""

    async def body() -> None:
        upstream = Upstream()
        await upstream.get(A)
        upstream.gate.clear()
        upstream.hears.clear()
        waiting = asyncio.create_task(upstream.get(B))
        await upstream.settle()
        await upstream.sessions.close(asyncio.get_running_loop().time() + 0.01)
        with pytest.raises(TimeoutError):
            await waiting
        assert upstream.ended == []

    run(body())


def test_a_handshake_goes_on_when_its_asker_leaves() -> None:
    """Whoever is cancelled takes nobody's session away."""

    async def body() -> None:
        upstream = Upstream()
        upstream.gate.clear()
        first, second = (asyncio.create_task(upstream.get()) for _ in range(2))
        await upstream.settle()
        first.cancel()
        await upstream.settle()
        upstream.gate.set()
        assert (await second).id == "S1"
        assert len(upstream.opened) == 1
        await upstream.close()

    run(body())


def test_who_attends_sessions_is_told_of_each_use_and_of_the_end() -> None:
    """Also of one that is lost, or too many; what he learns of a loss concerns his session alone."""

    async def body() -> None:
        upstream = Upstream()
        await upstream.get(A)
        await upstream.get(A)
        await upstream.get(B)
        assert [number for number, _ in upstream.used] == ["S1", "S1", "S2"]
        (_, lost), *_ = upstream.used
        lost()
        assert (upstream.over, len(upstream.sessions), upstream.ended) == (["S1"], 1, [])
        await upstream.get(A)
        lost()
        assert (upstream.over, len(upstream.sessions)) == (["S1"], 2)
        upstream.incarnation = 1
        await upstream.get(B)
        assert upstream.over == ["S1", "S2"]
        for n in range(MAX_SESSIONS):
            await upstream.get(caller(n))
        assert upstream.over[2:] == ["S3", "S4"]
        await upstream.close()
        assert len(upstream.over) == MAX_SESSIONS + 4

    run(body())
