"""The one connection on which replicas hear each other, and whether it can be relied on.

Runs for as long as the process: subscribes, hands on what is said, and when the connection breaks, or stays
silent although it was asked for a sign of life, tries again with growing pauses.  What was said meanwhile was
missed, so whoever listens is told of each loss and of each return.

What may not come in: what a message means; Redis' own client (`redis_store` gives a `Subscription`).

Hazard: a connection that is black-holed looks like one on which nothing happens.  Silence is probed after
`SILENCE` seconds, and ends the connection after as many again.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

SILENCE: Final = 1.0
"""Seconds without a sign after which one is asked for."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0


class Lost(Exception):  # noqa: N818 - a state of the connection, not a fault of whoever meets it
    """The connection is gone, or could not be had."""


class Subscription(Protocol):
    """One connection that listens.  Each method raises `Lost`.

    Attributes:
        run_id: names the server's process; `b""` where it does not tell.
        uptime: seconds since that process began.
    """

    run_id: bytes
    uptime: float

    async def read(self, seconds: float) -> bytes | None:
        """What was said, `b""` for any other sign of life, None for silence."""
        ...

    async def ping(self) -> None:
        """Ask for a sign of life."""
        ...

    async def close(self) -> None:
        """Let go; never raises."""
        ...


class Channel:
    """Listens.

    Args:
        subscribe: gives a connection that listens already.
        hear: is handed each message.
        changed: is told when the connection came (True) or went (False).
        clock: seconds, never backwards.

    Attributes:
        up: whether what others say is heard.
        since: when `up` became what it is; minus infinity if it never was.
        alive_at: when it last showed a sign of life: till then, all that was said was heard.
        restarted: the server began after the last sign of life of the one before: what it holds may be old.
    """

    def __init__(
        self,
        subscribe: Callable[[], Awaitable[Subscription]],
        *,
        hear: Callable[[bytes], None],
        changed: Callable[[bool], None],
        clock: Callable[[], float],
    ) -> None:
        self._subscribe = subscribe
        self._hear = hear
        self._changed = changed
        self._clock = clock
        self.up = False
        self.since = float("-inf")
        self.restarted = False
        self._run_id: bytes | None = None
        self.alive_at = float("-inf")

    async def run(self) -> None:
        """Listen until cancelled."""
        pause = FIRST_PAUSE
        while True:
            try:
                subscription = await self._subscribe()
            except Lost:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            pause = FIRST_PAUSE
            # Whoever took over was running before; uptimes are durations, so no clocks are compared.
            self.restarted = self._run_id is not None and (
                not subscription.run_id
                or (
                    subscription.run_id != self._run_id
                    and subscription.uptime <= self._clock() - self.alive_at + 1
                )
            )
            self._run_id = subscription.run_id
            self.alive_at = self._clock()
            self._turn(up=True)
            try:
                await self._listen(subscription)
            except Lost:
                pass
            finally:
                self._turn(up=False)
                await subscription.close()
            await asyncio.sleep(pause)

    async def _listen(self, subscription: Subscription) -> None:
        asked = False
        while True:
            said = await subscription.read(SILENCE)
            if said is not None:
                asked = False
                self.alive_at = self._clock()
                if said:
                    self._hear(said)
            elif asked:
                raise Lost
            else:
                await subscription.ping()
                asked = True

    def _turn(self, *, up: bool) -> None:
        self.up = up
        self.since = self._clock()
        self._changed(up)
