"""A connection on which events arrive, read as a client reads them."""

import asyncio
import json
from typing import Any

from mcp_federator.protocol import sse
from tests.endpoint.door import PATIENCE, Client, Door, message, request

LISTEN = "subscriptions/listen"
ID = "io.modelcontextprotocol/subscriptionId"


class Events:
    """The events of one stream.

    Attributes:
        comments: how many comments came.
        ended: the stream has ended in order.
    """

    def __init__(self, connection: Client) -> None:
        self.connection = connection
        self.comments = 0
        self.ended = False
        self._decoder = sse.Decoder(1 << 20)
        self._ready: list[Any] = []

    async def next(self) -> Any:
        """The next message; None where the stream has ended."""
        async with asyncio.timeout(PATIENCE):
            while not self._ready and not self.ended:
                size = int(await self.connection.reader.readuntil(b"\r\n"), 16)
                chunk = (await self.connection.reader.readexactly(size + 2))[:-2]
                self.ended = size == 0
                self.comments += chunk == b":\n\n"
                self._ready += [json.loads(event.data) for event in self._decoder.feed(chunk)]
        return self._ready.pop(0) if self._ready else None

    async def said(self) -> tuple[str, Any]:
        """The next notification: its last words, and the URI it names."""
        notification = await self.next()
        return notification["method"].removeprefix("notifications/"), notification.get("params", {}).get(
            "uri"
        )


def wish(*uris: str, lists: bool = False, id: Any = 1) -> dict[str, Any]:  # noqa: A002 - the protocol's word
    """A request to listen."""
    notifications: dict[str, Any] = {"resourceSubscriptions": list(uris)} if uris else {}
    if lists:
        notifications["resourcesListChanged"] = True
    return message(LISTEN, {"notifications": notifications}, id=id)


async def listening(door: Door, *uris: str, **how: Any) -> Events:
    """A stream whose acknowledgement has been read."""
    events, _ = await opened(door, wish(*uris, **how))
    return events


async def opened(door: Door, asked: Any) -> tuple[Events, Any]:
    """A stream, and its first message."""
    connection = await door.connect()
    await connection.send(request(asked))
    response = await connection.receive()
    assert response.status == 200
    assert response.header("Content-Type") == "text/event-stream"
    events = Events(connection)
    return events, await events.next()
