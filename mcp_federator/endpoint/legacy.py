"""What clients of the 2025 revisions ask of this server, on the same path as everybody else.

They open with `initialize` and bring the session that it gave with all that follows.  What they may ask, and
how it is answered over HTTP, differs from `mcp`; the questions themselves go to the same source, so one copy
in the cache serves both eras.

The order of checks: session (400 where it is missing, 404 where it is over), the version header against the
session's, then the message.  From there on a request has its answer in a reply of status 200, also where that
is an error: several clients lose a request whose reply has another (2025-11-25, basic/transports).

Hazards:
- A lost connection does not cancel here, a `notifications/cancelled` does: see `works`.
- A session says nothing about who asks; whoever holds its id gets no more than he would without.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Final

import msgspec

from mcp_federator import config
from mcp_federator.endpoint.exchange import Asking, Exchange, Holder, note_error, trace_of
from mcp_federator.endpoint.sessions import Session, Sessions
from mcp_federator.endpoint.stream import Streams
from mcp_federator.endpoint.subscriptions import SessionStream, Subscriptions
from mcp_federator.endpoint.works import StoppedError, Works
from mcp_federator.errors import McpError
from mcp_federator.model import Caller, Era
from mcp_federator.protocol import jsonrpc, legacy
from mcp_federator.protocol.vocabulary import MODERN, SESSION_HEADER, VERSION_HEADER, Code

_log = logging.getLogger(__name__)


class Legacy:
    """The server that legacy clients meet.

    Args:
        source_of: see `Holder`.
        settings: the `server` section; of its secrets the first seals session ids, all open them.
        streams: counts those that are open.
    """

    def __init__(self, source_of: Holder, settings: config.Server, streams: Streams) -> None:
        keys = [secret.encode() for secret in settings.secret] or [secrets.token_bytes(32)]
        self.sessions: Final = Sessions(keys)
        self.streams: Final = streams
        self.subscriptions: Final = Subscriptions(source_of, streams)
        self._source_of = source_of
        self._instructions = settings.instructions
        self._works = Works()

    async def close(self) -> None:
        """Call off what goes on without its client."""
        self.subscriptions.close()
        await self._works.close()

    def begin(self, id: bytes, body: bytes, exchange: Exchange, capabilities: bytes) -> bytes:  # noqa: A002 - the protocol's word
        """The reply to `initialize`; `exchange` gets the id of the session.

        A session or version that the request brings belongs to an earlier session, and does not matter.

        Raises:
            McpError: it asks for no version.
        """
        exchange.id = id
        version = legacy.agreed_version(body)
        if version is None:
            raise McpError(Code.INVALID_PARAMS, "Invalid params: params.protocolVersion must be a string")
        exchange.session = self.sessions.begin(version)
        return legacy.encode_initialize_result(
            id, version=version, capabilities=capabilities, instructions=self._instructions
        )

    def session(self, fields: Mapping[str, str]) -> Session:
        """The session that a message or a stream belongs to.

        Raises:
            McpError: status 400: there is none, or it speaks another version than the header says.  404: it
                is unknown, expired or ended; the client is to begin anew.
        """
        text = fields.get(SESSION_HEADER)
        if text is None:
            raise _refusal(f"{SESSION_HEADER} is missing: send initialize first, or requests of {MODERN}")
        session = self.sessions.find(text)
        if session is None:
            raise _refusal("there is no such session any more: send initialize", status=404)
        version = fields.get(VERSION_HEADER)
        # Revision 2025-03-26 has no such field, and some clients leave it out altogether.
        if version is not None and version != session.version:
            raise _refusal(f"{VERSION_HEADER} must be {session.version}, as this session agreed on")
        return session

    def listen(self, asking: Asking) -> SessionStream:
        """The stream that a GET opens; raises `McpError` as `session` and `Subscriptions.stream` do."""
        return self.subscriptions.stream(self.session(asking.fields).token, Caller(asking.forwarded))

    def end(self, fields: Mapping[str, str]) -> None:
        """End the session that a DELETE names, with its streams and requests; raises as `session` does."""
        session = self.session(fields)
        self.sessions.end(session)
        self.subscriptions.end(session.token)
        self._works.stop_session(session.token)

    async def answer(
        self, request: jsonrpc.Request, body: bytes, exchange: Exchange, asking: Asking
    ) -> bytes:
        """The JSON-RPC reply to one message, an error included.

        `b""` where there is none: to a notification, and to a request that its client has called off.

        Raises:
            McpError: as `session` does.
        """
        exchange.id = request.id
        return await self._answer(self.session(asking.fields), request, body, exchange, asking)

    async def answer_other(self, body: bytes, problem: McpError, exchange: Exchange, asking: Asking) -> bytes:
        """The reply to a body that is no single request: a batch, or a response to a request of ours.

        We ask nothing of clients so far, but a response is no mistake of theirs: it is passed over.

        Raises:
            McpError: as `session` does; `problem`, when the session's revision knows no such body.
        """
        session = self.session(asking.fields)
        if legacy.is_response(body):
            return b""
        if session.version != legacy.BATCHES or problem.code != Code.INVALID_REQUEST:
            raise problem
        if not body.lstrip().startswith(b"["):
            raise problem
        try:
            messages = legacy.messages(body)
        except ValueError:
            raise problem from None
        if not 0 < len(messages) <= legacy.MAX_BATCH:
            raise _refusal(f"a batch has 1 to {legacy.MAX_BATCH} messages")
        exchanges = [Exchange(era=Era.LEGACY) for _ in messages]
        replies = await asyncio.gather(
            *(
                self._answer_part(session, message, part, asking)
                for message, part in zip(messages, exchanges, strict=True)
            )
        )
        exchange.parts = tuple(zip(exchanges, map(len, replies), strict=True))
        told = [reply for reply in replies if reply]
        return b"[%b]" % b",".join(told) if told else b""

    async def _answer_part(self, session: Session, body: bytes, exchange: Exchange, asking: Asking) -> bytes:
        """The reply to one message of a batch."""
        try:
            request = jsonrpc.decode_request(body)
        except McpError as error:
            if legacy.is_response(body):
                return b""
            note_error(exchange, error)
            return jsonrpc.error_body(error)
        return await self._answer(session, request, body, exchange, asking)

    async def _answer(
        self, session: Session, request: jsonrpc.Request, body: bytes, exchange: Exchange, asking: Asking
    ) -> bytes:
        exchange.method = request.method
        if request.id is None:
            if request.method == legacy.CANCELLED:
                self._works.stop((session.token, legacy.cancelled_id(body)))
            return b""
        exchange.id = request.id
        exchange.uri = request.uri
        if request.method == legacy.PING:
            return legacy.encode_empty(request.id)
        try:
            return await self._reply(session, request, request.id, exchange, asking)
        except StoppedError:
            exchange.status = "client_error"
            return b""
        except McpError as error:
            note_error(exchange, error)
            return jsonrpc.error_body(legacy.told(error, request), request.id)
        except Exception:  # noqa: BLE001 - it must not cost the others of a batch their answers
            _log.exception("a request failed inside")
            exchange.status = "internal_error"
            return jsonrpc.error_body(McpError(Code.INTERNAL_ERROR, "Internal error."), request.id)

    async def _subscribe(
        self,
        session: Session,
        request: jsonrpc.Request,
        id: bytes,  # noqa: A002 - the protocol's word
        asking: Asking,
    ) -> bytes:
        if request.uri is None:
            raise McpError(Code.INVALID_PARAMS, "Invalid params: params.uri must be a string")
        if request.method == legacy.SUBSCRIBE:
            await self.subscriptions.subscribe(
                session.token, request.uri, Caller(asking.forwarded, era=Era.LEGACY)
            )
        else:
            self.subscriptions.unsubscribe(session.token, request.uri)
        return legacy.encode_empty(id)

    async def _reply(
        self,
        session: Session,
        request: jsonrpc.Request,
        id: bytes,  # noqa: A002 - the protocol's word
        exchange: Exchange,
        asking: Asking,
    ) -> bytes:
        if request.method in legacy.SUBSCRIBING:
            return await self._subscribe(session, request, id, asking)
        query = legacy.query(request)
        if asking.refresh:
            query = msgspec.structs.replace(query, refresh=True)
        caller = Caller(asking.forwarded, trace=trace_of(request.meta, asking.fields), era=Era.LEGACY)
        key = session.token, msgspec.json.decode(id)
        answer = await self._works.run(key, self._source_of.federator.fetch(query, caller))
        exchange.upstreams = answer.served.upstreams
        if answer.interim:
            raise legacy.requires_input(answer)
        exchange.served = answer.served
        return legacy.encode_answer(id, query.method, answer)


def _refusal(problem: str, status: int = 400) -> McpError:
    return McpError(Code.INVALID_REQUEST, f"Invalid request: {problem}", status=status)
