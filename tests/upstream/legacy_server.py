"""A scripted legacy server that keeps sessions, and forgets them when the test says so."""

from collections.abc import Iterable, Mapping
from typing import Any

from tests.instruments.wire import (
    Answer,
    Answers,
    Received,
    Step,
    Wire,
    accepted,
    initialized,
    reply,
    result,
)

INITIALIZE, INITIALIZED = "initialize", "notifications/initialized"
CANCELLED = "notifications/cancelled"
ONE = {"contents": [{"uri": "x://1", "text": "text"}]}
PAGE = {"resources": [{"uri": "x://1", "name": "one"}]}

NOT_FOUND = reply(
    b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}', status=404
)
"""What the SDKs say of a session they do not know."""

NO_SESSION = reply(
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session"}}',
    status=400,
)
"""What server-everything says of one."""


class LegacyWire(Wire):
    """A legacy server.

    Attributes:
        alive: ids of the sessions that it knows: `S1`, `S2`, in the order of the handshakes.
        opened: how many there were.
    """

    def __init__(
        self,
        answers: Mapping[str, Answers],
        *,
        lost: Answer = NOT_FOUND,
        version: str = "2025-11-25",
        capabilities: Mapping[str, Any] | None = None,
        sessions: bool = True,
    ) -> None:
        self.alive: set[str] = set()
        self.opened = 0
        self._lost = lost
        self._version = version
        self._capabilities = capabilities
        self._sessions = sessions
        super().__init__(
            {
                "server/discover": NO_SESSION,
                INITIALIZE: self._initialize,
                INITIALIZED: accepted(),
                CANCELLED: accepted(),
                "None": self._other,
                **answers,
            }
        )

    def _initialize(self, request: Received) -> Iterable[Step]:
        self.opened += 1
        session = f"S{self.opened}" if self._sessions else None
        if session is not None:
            self.alive.add(session)
        return initialized(self._version, self._capabilities, session=session)(request)

    def _other(self, request: Received) -> Iterable[Step]:
        """DELETE, GET, and our answers."""
        if request.verb == "DELETE":
            self.alive.discard(request.header("mcp-session-id") or "")
        return reply(status={"POST": 202, "DELETE": 200}.get(request.verb, 405), content_type=None)(request)

    def _answer(self, request: Received) -> Answer:
        session = request.header("mcp-session-id")
        if self._sessions and request.method.startswith("resources/") and session not in self.alive:
            return self._lost
        return super()._answer(request)


def one() -> dict[str, Answers]:
    """A server with one resource."""
    return {"resources/read": result(ONE), "resources/list": result(PAGE)}


def methods(wire: Wire) -> list[str]:
    """What came, in order; DELETE by its verb, an answer of ours as `answer`.

    Without the GETs: a session's stream is opened while other things go on.
    """
    return [
        request.verb if not request.body else "answer" if request.method == "None" else request.method
        for request in wire.received
        if request.verb != "GET"
    ]
