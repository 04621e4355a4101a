"""What the client of an upstream and a way to reach it say to each other: one call, one exchange.

A transport carries JSON-RPC messages and knows nothing of resources; the client knows nothing of connections.
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, Protocol

import msgspec

from mcp_federator.errors import UpstreamFailure
from mcp_federator.model import Event
from mcp_federator.protocol import sse
from mcp_federator.protocol.jsonrpc import Reply
from mcp_federator.upstream.limits import Lease

NO_ENDPOINT: Final = "nothing answers MCP there: check the path of its URL"
"""What most often is the matter where a web server answers, but not as one of MCP."""

MAX_EVENT: Final = 1 << 20
"""Bytes of one event on a stream of changes; notifications and requests are far smaller."""

PASSING: Final = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
"""The statuses from 400 to 499 that refuse a stream for now, and say nothing of later."""

Changed = Callable[[Event], None]
"""Is told of each change that an upstream speaks of; it must return at once."""


def unheard(event: Event) -> None:
    """Does nothing of it."""
    del event


class Call(msgspec.Struct, frozen=True):
    """One JSON-RPC request to an upstream.

    Attributes:
        id: ours, and of this request alone.
        method: the protocol's name of it.
        body: the whole message.
        headers: fields that go along with this one, where the transport has such a thing.
        repeatable: it may be sent once more when the connection broke before an answer.
        legacy: it is of an era in which the other side may ask us something meanwhile, and has to be told
            when nobody waits any more.  Over stdio both hold in either era.
        incarnation: the one that the call was made for, None where it may reach any: what was said before it
            must still be known.
        context: the partition it is made for; what the server says beside the answer is heard there.
    """

    id: int
    method: str
    body: bytes
    headers: Mapping[str, str]
    repeatable: bool = True
    legacy: bool = False
    incarnation: int | None = None
    context: bytes | None = None


class Exchange(msgspec.Struct, frozen=True):
    """What came back.

    Attributes:
        status: HTTP status.
        reply: the JSON-RPC response to our id; None only where the status says that the request failed.
        retry_after: seconds the upstream asked us to wait, already capped.
        cache_status: what caches on the way said of it (RFC 9211), cleaned.
        session: the session id that came with it, as it came.
    """

    status: int
    reply: Reply | None
    retry_after: float | None = None
    cache_status: str = ""
    session: str | None = None


class StrangerError(UpstreamFailure):
    """The other side does not take part in the handshake: it is not what it was taken for."""


class ForgottenError(Exception):
    """The call was made for an earlier incarnation, and was not sent."""


class Transport(Protocol):
    """A way to reach one upstream."""

    kind: str
    """The word for `/status` and the metrics."""

    address: str
    """Where it leads, as far as that may be shown."""

    incarnation: int
    """Grows when all that the other side knew of us is gone, as with a new process; constant over HTTP."""

    async def start(self) -> None:
        """Make ready; reaches nobody yet."""
        ...

    async def exchange(self, call: Call, lease: Lease, deadline: float) -> Exchange:
        """Send, and wait for what comes back, until `deadline` on the event loop's clock.

        Cancelling it gives up the request at the upstream too.

        Raises:
            UpstreamFailure: no connection, a broken one, no answer in time, or bytes that are none.
            TooLargeError, FullError: see `Lease.take`.
            UnfitError: see `decode_reply`.
            ForgottenError: see `Call.incarnation`.
            StrangerError: it is seen how else the other side would be reached, and we do not do that.
        """
        ...

    async def notify(self, body: bytes, headers: Mapping[str, str], deadline: float) -> None:
        """Send a message that has no answer: a notification, or our answer to the other side.

        Whether it was welcome is not told.

        Raises:
            UpstreamFailure: it could not be sent, or not in time.
        """
        ...

    async def subscribe(self, call: Call, hear: Callable[[bytes], None]) -> Exchange:
        """Send a call that has no end of its own, and wait for what ends it.

        Cancelling it ends it at the upstream too.

        Args:
            call: a `subscriptions/listen`.
            hear: is handed each message of its stream, the acknowledgement among them.

        Returns:
            The status and the response; status 200 and no response where the stream ended without one.

        Raises:
            UpstreamFailure: no connection, no head of a response in time, or a stream that broke.
            ValueError: bytes that are no stream of messages, or too many for one.
        """
        ...

    def on_end(self, ended: Callable[[], None]) -> None:
        """Be told when an incarnation has ended; over HTTP none does."""
        ...

    async def listen(
        self,
        headers: Mapping[str, str],
        decoder: sse.Decoder,
        begins: Callable[[], None],
        context: bytes | None = None,
    ) -> int:
        """Open the stream of the session that these header fields belong to, and read it to its end.

        What the server asks on it is answered, what it says of changes is told as everywhere.

        Args:
            headers: those of the session.
            decoder: takes the stream apart; its id is the place to go on from.
            begins: called when it is open.
            context: the partition that it belongs to.

        Returns:
            The HTTP status: 200 where it was a stream and has ended in order, else of the refusal; 405 too
            where no stream came with a status that promised one.

        Raises:
            UpstreamFailure: no connection, no answer in time, or a stream that broke.
            ValueError: see `sse.Decoder.feed`.
        """
        ...

    async def end(self, headers: Mapping[str, str], deadline: float) -> None:
        """End the session that these header fields name, where the transport knows sessions.

        Raises what `notify` raises.
        """
        ...

    async def close(self) -> None:
        """Close every connection; what is under way breaks."""
        ...
