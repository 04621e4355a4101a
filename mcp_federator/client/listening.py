"""What changes at a server, as it is told.

Nothing here is kept: that something changed is all that is said, and it is said again each time.
"""

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

import msgspec

from mcp_federator.hub import Hub, Listener, Notice
from mcp_federator.model import ANYONE, Wanted


class Change(msgspec.Struct, frozen=True):
    """Something changed: the resource with this `uri`, or the lists of resources and templates (None).

    The resource may be a part of one that is listened to.
    """

    uri: str | None


class Changes:
    """What changes from now on, to be entered with `async with` and gone through with `async for`.

    It ends when its block is left, or the client closed.  While nobody goes on, each change is kept once;
    where something may have been missed, all that is listened to counts as changed.

    Attributes:
        lists: whether changes of the lists are told; false where the server does not tell of them.
        uris: the resources whose changes are told; those of which the server does not tell are left out.
    """

    def __init__(self, hub: Hub, wanted: Wanted) -> None:
        self._hub = hub
        self._wanted = wanted
        self._wake = asyncio.Event()
        self._listener: Listener | None = None
        self._waiting: deque[Notice] = deque()
        self.lists = False
        self.uris: frozenset[str] = frozenset()

    async def __aenter__(self) -> Self:
        """Begin to listen, as far as the server tells of what is wanted."""
        granted = await self._hub.offered(self._wanted, ANYONE)
        self.lists, self.uris = granted.lists, granted.uris
        self._listener = self._hub.open(granted, ANYONE, self._wake.set)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self._hub.close(listener)
        self._wake.set()

    def __aiter__(self) -> Self:
        """What changes, one after the other."""
        return self

    async def __anext__(self) -> Change:
        """The next change, whenever it comes."""
        while not self._waiting:
            listener = self._listener
            if listener is None or listener.over:
                raise StopAsyncIteration
            self._wake.clear()
            self._waiting.extend(listener.take())
            if not self._waiting:
                await self._wake.wait()
        return Change(self._waiting.popleft())
