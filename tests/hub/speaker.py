"""An upstream that says what a test says, and writes down what it is told."""

import asyncio

from mcp_federator.federation.prefix import Mapping
from mcp_federator.hub import Hub, Listener, Voice
from mcp_federator.metrics import Metrics
from mcp_federator.model import ANYONE, Caller, Change, Event, Offers, Wanted

BOTH = Offers(lists=True, resources=True)


class Speaker:
    """One upstream.

    Attributes:
        wanted: what it was told that each partition wants, call by call.
        steps: what the hub did, in order; a test may hand in a list that others write to as well.
    """

    def __init__(
        self,
        name: str = "docs",
        offers: Offers | None = BOTH,
        *,
        prefix: str | None = None,
        forwards: bool = False,
        steps: list[object] | None = None,
    ) -> None:
        self.name = name
        self.offers = offers
        self.wanted: list[tuple[bytes, Wanted]] = []
        self.invalidated: list[Event] = []
        self.steps: list[object] = [] if steps is None else steps
        self.asked = 0
        self.found = asyncio.Event()
        self.forwards = forwards
        self.voice = Voice(
            name,
            Mapping(name, prefix),
            want=lambda caller, wanted: self.wanted.append((self.partition(caller), wanted)),
            offers=lambda: self.offers,
            know=self.know,
            partition=self.partition,
            invalidate=self.invalidate,
        )

    def partition(self, caller: Caller) -> bytes:
        return caller.headers.get("authorization", "nobody").encode() if self.forwards else b""

    async def know(self, caller: Caller) -> None:  # noqa: ARG002 - a voice's signature
        self.asked += 1
        await self.found.wait()
        self.offers = BOTH

    def invalidate(self, event: Event) -> None:
        self.invalidated.append(event)
        self.steps.append(event)

    @property
    def wants(self) -> dict[bytes, Wanted]:
        """What each partition wants now."""
        return {partition: wanted for partition, wanted in dict(self.wanted).items() if wanted}

    def say(
        self, hub: Hub, change: Change = Change.LIST, uri: str | None = None, context: bytes | None = None
    ) -> None:
        hub.heard(self.voice, Event(self.name, change, uri, context))


def hub_of(*speakers: Speaker) -> Hub:
    hub = Hub(Metrics("0"))
    hub.adopt([speaker.voice for speaker in speakers])
    return hub


def listening(
    hub: Hub, *uris: str, lists: bool = False, caller: Caller = ANYONE, steps: list[object] | None = None
) -> Listener:
    """One who listens; `steps` gets what it takes, at the moment it is woken."""

    def wake() -> None:
        if steps is not None:
            steps.extend(listener.take())

    listener = hub.open(Wanted(lists, frozenset(uris)), caller, wake)
    return listener


def bearer(token: str) -> Caller:
    return Caller({"authorization": token})


async def turn() -> None:
    """Let everything happen that waits for nothing."""
    for _ in range(5):
        await asyncio.sleep(0)
