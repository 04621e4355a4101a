"""The protocol's fixed words: versions, `_meta` keys, header fields, error codes and their fate.

Data, and one table with its look-up.  Nothing that parses or encodes may come in.

Hazard: the codes are not free.  -32000 to -32019 mean nothing across implementations, -32020 to -32099 belong
to the specification, and -32002 and -32042 are retired: a modern server must emit none of them but the three
it defines (basic/index, "Error Codes").  So no upstream's code goes to a client before `relay` was asked.
"""

from enum import IntEnum
from typing import Final, Literal

MODERN: Final = "2026-07-28"
"""The revision that this program speaks without a session; the oldest modern one."""

SUPPORTED: Final = (MODERN,)
"""What we speak, preferred first: `supportedVersions` and `data.supported`."""

LEGACY: Final = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Revisions with an `initialize` handshake over streamable HTTP."""

RESERVED_META: Final = "io.modelcontextprotocol/"
"""What the keys of `_meta` begin with that only the two ends of one connection may write."""

META_VERSION: Final = RESERVED_META + "protocolVersion"
META_CLIENT_INFO: Final = RESERVED_META + "clientInfo"
META_CAPABILITIES: Final = RESERVED_META + "clientCapabilities"
META_LOG_LEVEL: Final = RESERVED_META + "logLevel"
META_SERVER_INFO: Final = RESERVED_META + "serverInfo"
META_SUBSCRIPTION: Final = RESERVED_META + "subscriptionId"
META_INCOMPLETE: Final = "dev.mcp-federator/incomplete"
"""On a merged list: which upstreams it had to do without, and why."""

VERSION_HEADER: Final = "MCP-Protocol-Version"
METHOD_HEADER: Final = "Mcp-Method"
NAME_HEADER: Final = "Mcp-Name"
SESSION_HEADER: Final = "Mcp-Session-Id"


class Code(IntEnum):
    """JSON-RPC error codes that have a name here (basic/index, "Error Codes")."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    RESOURCE_NOT_FOUND_LEGACY = -32002
    """Retired: legacy servers say it where modern ones say INVALID_PARAMS."""
    HEADER_MISMATCH = -32020
    MISSING_CAPABILITY = -32021
    UNSUPPORTED_VERSION = -32022
    URL_ELICITATION = -32042
    """Retired: of 2025-11-25 only."""


Fate = Literal["pass", "refuse", "probe", "capability", "not_found"]
"""What becomes of an upstream's error.

`pass`: it is an answer; code, message and data go on.  `refuse`: the code must not leave this house; the
asker gets INTERNAL_ERROR with `reason: "refused"` and the code in `data`.  `probe`: our idea of the
upstream's version is outdated; ask it again, tell nobody.  `capability`: ask once more with the caller's own
capabilities; relayed only after that.  `not_found`: no such resource, in the code of the upstream's era; the
asker gets that of his own.
"""

_FATES: Final[dict[int, Fate]] = {
    Code.PARSE_ERROR: "pass",
    Code.INVALID_REQUEST: "pass",
    Code.METHOD_NOT_FOUND: "pass",
    Code.INVALID_PARAMS: "pass",
    Code.INTERNAL_ERROR: "pass",
    Code.MISSING_CAPABILITY: "capability",
    Code.UNSUPPORTED_VERSION: "probe",
}
_NOT_FOUND: Final = frozenset({Code.INVALID_PARAMS, Code.RESOURCE_NOT_FOUND_LEGACY})
_RESERVED: Final = range(-32768, -32000 + 1)
"""JSON-RPC's own range, MCP's part of it included."""


def relay(code: int, *, read: bool = True) -> Fate:
    """What to do with the code of an upstream's error.

    Both spellings of "not found" count on reads only (server/resources, "Error Handling"): on a list
    INVALID_PARAMS speaks of the cursor, and RESOURCE_NOT_FOUND_LEGACY says nothing.
    """
    if read and code in _NOT_FOUND:
        return "not_found"
    return _FATES.get(code) or ("refuse" if code in _RESERVED else "pass")
