"""Which era somebody speaks: the client by how it opens, the upstream by how it answers our probe.

Beside these two decisions stand two on later answers: whether they fit the era that was found, and whether
they say that a legacy session is gone.  What follows from any of them is done elsewhere (basic/versioning,
"Backward Compatibility with Initialization-Based Versions"; transports/streamable-http, "Backward
Compatibility").

Hazard: a wrong "legacy" sends a modern party through a handshake it does not have, so whatever may be a
passing trouble decides nothing.
"""

from typing import Final

from mcp_federator.errors import McpError
from mcp_federator.model import Era, Method
from mcp_federator.protocol.jsonrpc import Reply, Request
from mcp_federator.protocol.vocabulary import META_VERSION, MODERN, SESSION_HEADER, VERSION_HEADER, Code

_MODERN_CODES: Final = frozenset({Code.HEADER_MISMATCH, Code.MISSING_CAPABILITY, Code.UNSUPPORTED_VERSION})
_UNDECIDED: Final = frozenset({401, 403, 407, 408, 425, 429})
_NO_SUCH_ENDPOINT: Final = frozenset({400, 404, 405})
_SERVER_ERROR: Final = 500


def of_post(version_header: str | None, session_header: str | None, request: Request) -> Era:
    """The era of a POST.

    Modern: `_meta` names a version, any version, for only modern requests do.  Else legacy: `initialize`,
    whatever its header says.  Else the header tells, modern from the first modern version on, or a session.

    Raises:
        McpError: INVALID_REQUEST, status 400: nothing tells the era.
    """
    if request.meta.version is not None:
        return Era.MODERN
    if version_header is not None and version_header >= MODERN and request.method != "initialize":
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


_NO_SESSION: Final = -32000
"""What some servers say, with status 400, of a session they do not know; the protocol gives it no meaning."""

_APPLICATION_CODES: Final = frozenset(
    {Code.INVALID_PARAMS, Code.METHOD_NOT_FOUND, Code.RESOURCE_NOT_FOUND_LEGACY}
)


def is_session_lost(status: int, reply: Reply | None) -> bool:
    """Whether an upstream does not know the session that came with a request any more.

    404 says so (2025-11-25, basic/transports, "Session Management"), unless its body says that something
    else was not found; some servers say it with 400.
    """
    code = reply.error.code if reply is not None and reply.error is not None else None
    return (status == 404 and code not in _APPLICATION_CODES) or (status == 400 and code == _NO_SESSION)  # noqa: PLR2004 - HTTP's own numbers


def is_doubtful(era: Era, method: Method, status: int, reply: Reply | None) -> bool:
    """Whether an upstream of this era would not have answered so; it may be of the other one by now.

    No proof: servers are free in what they say with these statuses.
    """
    if reply is not None and reply.error is not None:
        code = reply.error.code
        if era is Era.LEGACY:
            return code in _MODERN_CODES or (
                status in _NO_SUCH_ENDPOINT and code != Code.RESOURCE_NOT_FOUND_LEGACY
            )
        if code in _MODERN_CODES or code == Code.INVALID_PARAMS:
            return code == Code.UNSUPPORTED_VERSION
        if code == Code.METHOD_NOT_FOUND and method is not Method.READ:
            return False
    elif reply is not None:
        return False
    return status in _NO_SUCH_ENDPOINT
