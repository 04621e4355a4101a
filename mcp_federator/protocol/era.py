"""Which era somebody speaks: the client by how it opens, the upstream by how it answers our probe.

Two decisions and nothing else; what follows from them is done elsewhere (basic/versioning, "Backward
Compatibility with Initialization-Based Versions"; transports/streamable-http, "Backward Compatibility").

Hazard: a wrong "legacy" sends a modern party through a handshake it does not have, so whatever may be a
passing trouble decides nothing.
"""

from typing import Final

from mcp_federator.errors import McpError
from mcp_federator.model import Era
from mcp_federator.protocol.jsonrpc import Reply, Request
from mcp_federator.protocol.vocabulary import META_VERSION, MODERN, SESSION_HEADER, VERSION_HEADER, Code

_MODERN_CODES: Final = frozenset({Code.HEADER_MISMATCH, Code.MISSING_CAPABILITY, Code.UNSUPPORTED_VERSION})
_UNDECIDED: Final = frozenset({401, 403, 407, 408, 425, 429})
_NO_SUCH_ENDPOINT: Final = frozenset({400, 404, 405})
_SERVER_ERROR: Final = 500


def of_post(version_header: str | None, session_header: str | None, request: Request) -> Era:
    """The era of a POST.

    Modern: `_meta` names a version, any version, for only modern requests do; or the header names the first
    modern one or a later one.  Legacy: `initialize`, a session, or an older header.

    Raises:
        McpError: INVALID_REQUEST, status 400: nothing tells the era.
    """
    if request.meta.version is not None or (version_header is not None and version_header >= MODERN):
        return Era.MODERN
    if request.method == "initialize" or session_header is not None or version_header is not None:
        return Era.LEGACY
    raise McpError(
        Code.INVALID_REQUEST,
        f"Invalid request: no protocol version; send {VERSION_HEADER} and params._meta[{META_VERSION!r}]"
        f" ({MODERN}), or initialize and send {SESSION_HEADER}",
        status=400,
        id=request.id,
    )


def of_probe(status: int, reply: Reply | None) -> Era | None:
    """The era of an upstream that answered `server/discover` with this HTTP status.

    `reply` is the JSON-RPC response in the body, or None when there is none.  None: the answer decides
    nothing and must not be remembered.
    """
    if status in _UNDECIDED or status >= _SERVER_ERROR:
        return None
    if reply is None:
        return Era.LEGACY if status in _NO_SUCH_ENDPOINT else None
    if reply.error is None or reply.error.code in _MODERN_CODES:
        return Era.MODERN
    return Era.LEGACY
