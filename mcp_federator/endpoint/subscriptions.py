"""What legacy sessions listen to: URIs that they subscribe to, and lists for as long as they hold a stream.

A session's stream is a GET of its own, and the URIs come with other requests (2025-11-25, server/resources,
"Subscriptions"; basic/transports, "Listening for Messages from the Server").  So what is told waits here for
a stream to carry it, also while the client opens another.

Hazards:
- Each message goes out on one of a session's streams: the newest, for a client that is gone without a word
  still holds the older ones.
- Whoever holds a session's id gets no more than he would without: a session listens as he who asked last, and
  what waits was heard on his behalf or is forgotten.
- All this is known to this process alone, and not for ever: of a session without a stream it is forgotten
  after a while, and of too many.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from mcp_federator.endpoint.exchange import Holder, overloaded
from mcp_federator.endpoint.listening import NO_ROOM, told
from mcp_federator.endpoint.stream import EventStream, Streams
from mcp_federator.errors import McpError
from mcp_federator.hub import Hub, Listener
from mcp_federator.model import Caller, Wanted
from mcp_federator.protocol import sse
from mcp_federator.protocol.subscriptions import MAX_URIS
from mcp_federator.protocol.vocabulary import Code

MAX_PER_SESSION: Final = 4
"""How many streams one session may have open."""

MAX_SESSIONS: Final = 4096
"""Sessions without a stream of which is known what they subscribed to."""

HELD_SECONDS: Final = 300.0
"""How long that is known after a session's last stream, or its last request to subscribe."""


class _Session:
    """One that listens."""

    def __init__(self, hub: Hub, caller: Caller) -> None:
        self._hub = hub
        self.streams: list[SessionStream] = []
        self.listener: Listener = hub.open(Wanted(lists=True), caller, self.wake)

    def wake(self) -> None:
        """Let the newest stream take what there is."""
        if self.streams:
            self.streams[-1].wake()

    def asked_by(self, caller: Caller) -> None:
        """Listen as this caller from now on."""
        old = self.listener
        if old.caller.headers != caller.headers:
            self._hub.close(old)
            self.listener = self._hub.open(old.wanted, caller, self.wake)

    def want(self, uris: frozenset[str]) -> None:
        """Listen to these resources."""
        self._hub.change(self.listener, Wanted(lists=True, uris=uris))

    def close(self) -> None:
        """Listen no more."""
        self._hub.close(self.listener)
        for stream in self.streams:
            stream.end()


class Subscriptions:
    """The legacy sessions that listen here.  `source_of` holds the hub; `streams` counts their streams."""

    def __init__(self, source_of: Holder, streams: Streams) -> None:
        self._source_of = source_of
        self._streams = streams
        self._sessions: dict[bytes, _Session] = {}
        self._idle: dict[bytes, asyncio.TimerHandle] = {}
        """Those without a stream, in the order in which they are forgotten."""

    @property
    def with_stream(self) -> int:
        """How many sessions have a stream open."""
        return len(self._sessions) - len(self._idle)

    def stream(self, token: bytes, caller: Caller) -> "SessionStream":
        """A stream for the session with this token, to be given as the reply.

        Raises:
            McpError: see `Streams.check_room`.
        """
        self._streams.check_room()
        return SessionStream(self._streams, self, token, caller)

    async def subscribe(self, token: bytes, uri: str, caller: Caller) -> None:
        """Let a session hear of a resource.

        Raises:
            McpError: there is no such upstream, it does not tell, or there is no room for more.
        """
        hub = self._source_of.hub
        asked = Wanted(uris=frozenset((uri,)))
        if not self._source_of.alone or asked != await hub.offered(asked, caller):
            raise self._refused(uri)
        if not hub.has_room(asked):
            raise overloaded(NO_ROOM)
        session = self._session(token, caller)
        uris = session.listener.wanted.uris | asked.uris
        if len(uris) > MAX_URIS:
            raise McpError(Code.INVALID_PARAMS, f"A session may subscribe to {MAX_URIS} resources.")
        session.want(uris)
        if not session.streams:
            self._hold(token)

    def unsubscribe(self, token: bytes, uri: str) -> None:
        """Let a session hear of a resource no more."""
        session = self._sessions.get(token)
        if session is not None:
            session.want(session.listener.wanted.uris - {uri})

    def end(self, token: bytes) -> None:
        """The session is over."""
        self._keep(token)
        session = self._sessions.pop(token, None)
        if session is not None:
            session.close()

    def close(self) -> None:
        """Forget all of it."""
        for token in tuple(self._sessions):
            self.end(token)

    @contextmanager
    def opened(self, stream: "SessionStream") -> Iterator[_Session]:
        """Let the stream carry what its session hears while the block lasts."""
        session = self._session(stream.token, stream.caller)
        if len(session.streams) >= MAX_PER_SESSION:
            session.streams.pop(0).end()
        session.streams.append(stream)
        self._keep(stream.token)
        try:
            yield session
        finally:
            if stream in session.streams:
                session.streams.remove(stream)
            session.wake()
            if not session.streams and self._sessions.get(stream.token) is session:
                self._hold(stream.token)

    def _session(self, token: bytes, caller: Caller) -> _Session:
        session = self._sessions.get(token)
        if session is None:
            session = self._sessions[token] = _Session(self._source_of.hub, caller)
        else:
            session.asked_by(caller)
        return session

    def _hold(self, token: bytes) -> None:
        """Forget a session after a while."""
        self._keep(token)
        self._idle[token] = asyncio.get_running_loop().call_later(HELD_SECONDS, self.end, token)
        if len(self._idle) > MAX_SESSIONS:
            self.end(next(iter(self._idle)))

    def _keep(self, token: bytes) -> None:
        timer = self._idle.pop(token, None)
        if timer is not None:
            timer.cancel()

    def _refused(self, uri: str) -> McpError:
        hub = self._source_of.hub
        if not self._source_of.alone:
            return McpError(
                Code.METHOD_NOT_FOUND,
                "Method not found: this server is several processes, which do not share subscriptions.",
            )
        if not hub.offers.resources:
            return McpError(
                Code.METHOD_NOT_FOUND, "Method not found: no upstream tells of changes of its resources."
            )
        data = msgspec.json.encode({"uri": uri})
        if not hub.knows(uri):
            return McpError(
                Code.RESOURCE_NOT_FOUND_LEGACY, "No upstream has resources with this prefix.", data=data
            )
        return McpError(
            Code.INVALID_PARAMS, "The upstream of this resource does not tell of its changes.", data=data
        )


class SessionStream(EventStream):
    """The stream of a session with this token; the reply to a GET of this caller."""

    def __init__(self, streams: Streams, subscriptions: Subscriptions, token: bytes, caller: Caller) -> None:
        super().__init__(streams)
        self._subscriptions = subscriptions
        self.token = token
        self.caller = caller
        self._session: _Session | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Carry what the session hears while the block lasts."""
        with super().opened(), self._subscriptions.opened(self) as self._session:
            yield

    def news(self) -> bytes:
        """What changed, each thing once, and on no other stream."""
        session = self._session
        if session is None or not session.streams or session.streams[-1] is not self:
            return b""
        return b"".join([sse.encode(told(notice)) for notice in session.listener.take()])
