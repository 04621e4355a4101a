"""The stream of a `subscriptions/listen`: an acknowledgement, what changed, and an end that says so.

What it may tell is settled before it is opened; it listens at the hub from then on, and no longer than its
client holds it (basic/patterns/subscriptions).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from mcp_federator.endpoint.exchange import overloaded
from mcp_federator.endpoint.stream import EventStream, Streams
from mcp_federator.hub import Hub, Listener, Notice
from mcp_federator.model import Caller, Wanted
from mcp_federator.protocol import sse, subscriptions
from mcp_federator.protocol.subscriptions import Filter

NO_ROOM: Final = "No more resources can be listened to here; try again later, or name fewer."


class ListenStream(EventStream):
    """One of them; the reply to a request with this `id`.

    Args:
        streams: where it counts.
        hub: where it listens.
        id: of the request, JSON text.
        granted: what it is told of; what the acknowledgement says.
        caller: who listens.
    """

    def __init__(
        self,
        streams: Streams,
        hub: Hub,
        *,
        id: bytes,  # noqa: A002 - the protocol's word
        granted: Filter,
        caller: Caller,
    ) -> None:
        super().__init__(streams)
        self._hub = hub
        self._id = id
        self._granted = granted
        self._caller = caller
        self._listener: Listener | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Listen while the block lasts."""
        granted = self._granted
        with super().opened():
            wanted = Wanted(granted.lists, frozenset(granted.uris))
            self._listener = self._hub.open(wanted, self._caller, self.wake)
            try:
                yield
            finally:
                self._hub.close(self._listener)

    def first(self) -> bytes:
        """The acknowledgement."""
        return sse.encode(subscriptions.acknowledged(self._id, self._granted))

    def news(self) -> bytes:
        """What changed, each thing once."""
        if self._listener is None:
            return b""
        return b"".join([sse.encode(told(notice, self._id)) for notice in self._listener.take()])

    def last(self) -> bytes:
        """The response to the request ("Graceful Closure")."""
        return sse.encode(subscriptions.ended(self._id))


def told(notice: Notice, id: bytes | None = None) -> bytes:  # noqa: A002 - the protocol's word
    """The message that says it; `id` is that of the stream, where it has one."""
    return subscriptions.list_changed(id) if notice is None else subscriptions.updated(notice, id)


async def listen(
    streams: Streams,
    hub: Hub,
    *,
    id: bytes,  # noqa: A002 - the protocol's word
    asked: Filter,
    caller: Caller,
) -> ListenStream:
    """The stream that answers a request to listen, as far as what it asks for can be granted.

    Raises:
        McpError: with status 503: there are too many streams, or too much is listened to.
    """
    streams.check_room()
    granted = await hub.offered(Wanted(asked.lists, frozenset(asked.uris)), caller)
    if not hub.has_room(granted):
        raise overloaded(NO_ROOM)
    shown = Filter(granted.lists, tuple(uri for uri in asked.uris if uri in granted.uris))
    return ListenStream(streams, hub, id=id, granted=shown, caller=caller)
