import asyncio

import pytest

from mcp_federator.cache.channel import FIRST_PAUSE, LONGEST_PAUSE, SILENCE, Channel, Lost, Subscription
from tests.instruments.virtual_time import run


class Line(Subscription):
    """A connection on which the test speaks; it answers pings unless it is dead."""

    def __init__(self, *said: bytes, dead: bool = False) -> None:
        self.said = asyncio.Queue[bytes]()
        for each in said:
            self.said.put_nowait(each)
        self.dead = dead
        self.run_id = b"one"
        self.uptime = 1000.0
        self.pings = 0
        self.closed = False

    async def read(self, seconds: float) -> bytes | None:
        try:
            async with asyncio.timeout(seconds):
                said = await self.said.get()
        except TimeoutError:
            return None
        if said == b"!":
            raise Lost
        return said

    async def ping(self) -> None:
        self.pings += 1
        if not self.dead:
            self.said.put_nowait(b"")

    async def close(self) -> None:
        self.closed = True


class Listener:
    """A channel over lines that come one after the other; None is one that cannot be had."""

    def __init__(self, *lines: Line | None) -> None:
        self.lines = list(lines)
        self.tries: list[float] = []
        self.told: list[bytes | bool] = []
        loop = asyncio.get_running_loop()
        self.channel = Channel(
            self._subscribe, hear=self.told.append, changed=self.told.append, clock=loop.time
        )
        self.task = asyncio.create_task(self.channel.run())

    async def _subscribe(self) -> Subscription:
        self.tries.append(asyncio.get_running_loop().time())
        line = self.lines.pop(0) if self.lines else None
        if line is None:
            raise Lost
        return line

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


def test_what_is_said_is_handed_on_and_each_turn_is_told() -> None:
    """In order; a connection that is lost is closed, and another one is made."""

    async def body() -> None:
        first, second = Line(b"1", b"2", b"!"), Line(b"3")
        listener = Listener(first, second)
        await asyncio.sleep(FIRST_PAUSE + 0.1)
        assert listener.told == [True, b"1", b"2", False, True, b"3"]
        assert (first.closed, second.closed) == (True, False)
        assert (listener.channel.up, listener.channel.since) == (True, FIRST_PAUSE)
        await listener.stop()
        assert second.closed
        assert not listener.channel.up

    run(body())


def test_pauses_grow_and_begin_anew() -> None:
    """Up to the longest; after a connection the next try comes soon."""

    async def body() -> None:
        listener = Listener(*[None] * 10, Line(b"!"))
        await asyncio.sleep(60)
        gaps = [later - sooner for sooner, later in zip(listener.tries, listener.tries[1:], strict=False)]
        assert gaps[0] < FIRST_PAUSE * 1.01
        assert gaps[:9] == sorted(gaps[:9])
        assert max(gaps) < LONGEST_PAUSE * 1.01
        assert gaps[10] < FIRST_PAUSE * 1.01
        await listener.stop()

    run(body())


def test_silence_is_probed_and_an_answer_is_enough() -> None:
    """A quiet connection that answers stays."""

    async def body() -> None:
        line = Line()
        listener = Listener(line)
        await asyncio.sleep(SILENCE * 10.5)
        assert line.pings in {5, 10}
        assert listener.told == [True]
        await listener.stop()

    run(body())


def test_a_dead_connection_is_found_out_in_two_silences() -> None:
    """It takes no error to lose it."""

    async def body() -> None:
        line = Line(dead=True)
        listener = Listener(line)
        await asyncio.sleep(SILENCE * 2 + 0.01)
        assert listener.told == [True, False]
        assert (line.pings, line.closed) == (1, True)
        await listener.stop()

    run(body())


@pytest.mark.parametrize(
    ("run_id", "uptime", "restarted"),
    [(b"one", 1060.0, False), (b"two", 9999.0, False), (b"two", 1.0, True), (b"", 0.0, True)],
)
def test_a_server_that_began_after_the_last_sign_of_life_was_restarted(
    run_id: bytes, uptime: float, restarted: bool
) -> None:
    """Another one that ran already has taken over; one that does not tell counts as restarted."""

    async def body() -> None:
        first, second = Line(b"1"), Line()
        second.run_id, second.uptime = run_id, uptime
        listener = Listener(first, *[None] * 3, second)
        await asyncio.sleep(60)
        assert not listener.channel.restarted
        first.said.put_nowait(b"!")
        await asyncio.sleep(5)
        assert listener.channel.up
        assert listener.channel.restarted is restarted
        await listener.stop()

    run(body())
