"""What the client of an upstream and a way to reach it say to each other: one call, one exchange.

A transport carries JSON-RPC messages and knows nothing of resources; the client knows nothing of connections.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from mcp_federator.protocol.jsonrpc import Reply
from mcp_federator.upstream.limits import Lease


class Call(msgspec.Struct, frozen=True):
    """One JSON-RPC request to an upstream.

    Attributes:
        id: ours, and of this request alone.
        method: the protocol's name of it.
        body: the whole message.
        headers: fields that go along with this one, where the transport has such a thing.
        repeatable: it may be sent once more when the connection broke before an answer.
    """

    id: int
    method: str
    body: bytes
    headers: Mapping[str, str]
    repeatable: bool = True


class Exchange(msgspec.Struct, frozen=True):
    """What came back.

    Attributes:
        status: HTTP status.
        reply: the JSON-RPC response to our id; None only where the status says that the request failed.
        retry_after: seconds the upstream asked us to wait, already capped.
        cache_status: what caches on the way said of it (RFC 9211), cleaned.
    """

    status: int
    reply: Reply | None
    retry_after: float | None = None
    cache_status: str = ""


class Transport(Protocol):
    """A way to reach one upstream."""

    kind: str
    """The word for `/status` and the metrics."""

    address: str
    """Where it leads, as far as that may be shown."""

    async def start(self) -> None:
        """Make ready; reaches nobody yet."""
        ...

    async def exchange(self, call: Call, lease: Lease, deadline: float) -> Exchange:
        """Send, and wait for what comes back, until `deadline` on the event loop's clock.

        Cancelling it gives up the request at the upstream too.

        Raises:
            UpstreamFailure: no connection, a broken one, no answer in time, or bytes that are none.
            TooLargeError, FullError: see `Lease.take`.
        """
        ...

    async def close(self) -> None:
        """Close every connection; what is under way breaks."""
        ...
