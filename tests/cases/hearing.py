"""A client that listens to a federator, as what it is told."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from mcp_federator.model import Change, Event
from mcp_federator.protocol import sse
from tests.instruments.house import PREFIX, House, body_of, headers_of

LISTEN = "subscriptions/listen"
ID = PREFIX + "subscriptionId"
PATIENCE = 10.0


def say(it: House, name: str, change: Change = Change.LIST, uri: str | None = None) -> None:
    """The upstream says that something changed, as the product hears it."""
    federation = it.app._federation
    federation.hub.heard(federation._stacks[name].voice, Event(name, change, uri))


class Stream:
    """The stream of one listener."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._decoder = sse.Decoder(1 << 20)
        self._ready: list[Any] = []

    async def next(self) -> Any:
        """The next message; None at the end."""
        async with asyncio.timeout(PATIENCE):
            while not self._ready:
                chunk = await self._response.content.readany()
                if not chunk:
                    return None
                self._ready += [json.loads(event.data) for event in self._decoder.feed(chunk)]
        return self._ready.pop(0)


@asynccontextmanager
async def listening(
    it: House,
    *uris: str,
    lists: bool = False,
    id: Any = 1,  # noqa: A002 - the protocol's word
) -> AsyncIterator[tuple[Stream, Any]]:
    """A stream, and what was acknowledged of it."""
    notifications = {"resourceSubscriptions": list(uris), "resourcesListChanged": lists}
    body = json.dumps(body_of(LISTEN, {"notifications": notifications}, id=id)).encode()
    async with it.session.post(it.url, data=body, headers=headers_of(LISTEN)) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        stream = Stream(response)
        first = await stream.next()
        assert first["method"] == "notifications/subscriptions/acknowledged"
        assert first["params"]["_meta"] == {ID: id}
        yield stream, first["params"]["notifications"]
