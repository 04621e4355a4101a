"""One JSON-RPC message in, one JSON-RPC result out: what an MCP client asks of this server.

The checks that need the body stand here, in the order of design section 7: JSON, envelope, id, versions,
`_meta`, method, `Mcp-Method` and `Mcp-Name`, params.  Everything a check reads is what the later code uses:
the body is decoded once, and nothing of it is sent on as it came.  Of HTTP only the header fields come in.
What shows itself as legacy goes on in `legacy`.

Hazards:
- An error can be one object that many callers of one flight get.  It is never changed; the asker's id is put
  beside it.
- A client that reads a 4xx or 5xx as "this server is a legacy one" asks for `server/discover` first.  So
  discover waits for nobody and is refused to nobody who asks it in good form.
- A modern request pays for the legacy era with one comparison of what was decoded anyhow.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from mcp_federator import config
from mcp_federator.endpoint import guard
from mcp_federator.endpoint.exchange import Asking, Exchange, Holder, trace_of
from mcp_federator.endpoint.legacy import Legacy
from mcp_federator.endpoint.listening import ListenStream, listen
from mcp_federator.errors import McpError
from mcp_federator.model import Caller, Era, Method
from mcp_federator.protocol import era, jsonrpc, modern
from mcp_federator.protocol.legacy import INITIALIZE
from mcp_federator.protocol.subscriptions import LISTEN
from mcp_federator.protocol.vocabulary import MODERN, SESSION_HEADER, VERSION_HEADER, Code

# Members of an enumeration are looked up slowly on Python 3.11.
_DISCOVER: Final = Method.DISCOVER


class Mcp:
    """The server that MCP clients meet.

    Args:
        source_of: see `Holder`.
        settings: the `server` section; its instructions are told by discover.
        discover: for clients of an era, capabilities as a JSON object, and how many milliseconds they hold.
        legacy: serves legacy clients.
    """

    def __init__(
        self,
        source_of: Holder,
        settings: config.Server,
        discover: Callable[[Era], tuple[bytes, int]],
        legacy: Legacy,
    ) -> None:
        self._source_of = source_of
        self._instructions = settings.instructions
        self._discover = discover
        self._legacy = legacy

    async def answer(  # noqa: PLR0911 - a coroutine for some of the ways would cost each hit
        self, body: bytes, exchange: Exchange, asking: Asking
    ) -> bytes:
        """The JSON-RPC reply to a message; `b""` where it gets none, as a notification, or a stream.

        Args:
            body: what the client sent.
            exchange: filled in.
            asking: what the HTTP request says beside.

        Raises:
            McpError: with the HTTP status of the reply; its `id` may be unknown where `exchange.id` is known.
        """
        try:
            request = jsonrpc.decode_request(body)
        except McpError as problem:
            if not brings_session(asking.fields):
                raise
            exchange.era = Era.LEGACY
            return await self._legacy.answer_other(body, problem, exchange, asking)
        exchange.method = request.method
        if request.meta.version is None and _is_legacy(request, asking.fields):
            exchange.era = Era.LEGACY
            if request.method == INITIALIZE and request.id is not None:
                return self._legacy.begin(request.id, body, exchange, self._discover(Era.LEGACY)[0])
            return await self._legacy.answer(request, body, exchange, asking)
        if request.id is None:
            # Nothing a modern client may notify of concerns us: requests end when their connection does.
            return b""
        exchange.id = request.id
        exchange.uri = request.uri
        modern.check(request, asking.fields)
        if request.method == LISTEN:
            exchange.stream = await self._listen(request, request.id, asking)
            return b""
        query = modern.query(request)
        if query.method is _DISCOVER:
            capabilities, ttl_ms = self._discover(Era.MODERN)
            return modern.encode_discover(
                request.id, capabilities=capabilities, instructions=self._instructions, ttl_ms=ttl_ms
            )
        if asking.refresh:
            query = msgspec.structs.replace(query, refresh=True)
        caller = Caller(
            asking.forwarded, request.meta.capabilities or b"{}", trace_of(request.meta, asking.fields)
        )
        answer = await self._source_of.federator.fetch(query, caller)
        exchange.served = answer.served
        exchange.upstreams = answer.served.upstreams
        if answer.interim:
            exchange.status = "input_required"
        return modern.encode_answer(request.id, query.method, answer)

    async def _listen(
        self,
        request: jsonrpc.Request,
        id: bytes,  # noqa: A002 - the protocol's word
        asking: Asking,
    ) -> ListenStream:
        asked = modern.notifications(request)
        if not guard.accepts_events(asking.fields.get("Accept", "")):
            raise McpError(
                Code.INVALID_REQUEST,
                "Accept must allow text/event-stream: the answer is a stream.",
                status=406,
            )
        caller = Caller(asking.forwarded)
        return await listen(self._legacy.streams, self._source_of.hub, id=id, asked=asked, caller=caller)


def _is_legacy(request: jsonrpc.Request, fields: Mapping[str, str]) -> bool:
    """Whether a message whose `_meta` names no version is a legacy client's; raises as `era.of_post` does."""
    version, session = fields.get(VERSION_HEADER), fields.get(SESSION_HEADER)
    if request.id is None and version is None and session is None:
        # A notification that belongs to nothing, and nothing comes of it.
        return False
    return era.of_post(version, session, request) is Era.LEGACY


def brings_session(fields: Mapping[str, str]) -> bool:
    """Whether header fields name a legacy session; a modern client's stray fields do not count."""
    version = fields.get(VERSION_HEADER)
    return fields.get(SESSION_HEADER) is not None and (version is None or version < MODERN)
