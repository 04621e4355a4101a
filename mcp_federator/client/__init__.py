"""A client of MCP servers, for Python programs; docs/client.md shows it at work.

| module | what it knows |
|---|---|
| client | how to be connected to one server |
| reader | what can be asked, page after page and round after round |
| listening | what changes, as it is told |
| results | what is answered, as values |

Whatever the server is (either era, over HTTP or stdio), it is asked by the same code that asks the upstreams
of a federator, and what comes back has passed the same door: in the shape of the schema, within bounds, and
with hints that can be believed.  URIs are the server's own, byte for byte.

What may not come in: how a server is reached, and what its bytes mean.
"""

from mcp_federator.client.client import Client
from mcp_federator.client.listening import Change, Changes
from mcp_federator.client.reader import (
    FORMS,
    Handler,
    InputRequiredError,
    ListTooLongError,
    Reader,
    TooManyRoundsError,
)
from mcp_federator.client.results import (
    Completion,
    Content,
    InputRequest,
    Page,
    ReadResult,
    Resource,
    ResourceTemplate,
)
from mcp_federator.errors import ConfigError, FederatorError, McpError, Reason, UpstreamFailure
from mcp_federator.model import Missing, Scope
from mcp_federator.upstream.client import UpstreamStatus

__all__ = [
    "FORMS",
    "Change",
    "Changes",
    "Client",
    "Completion",
    "ConfigError",
    "Content",
    "FederatorError",
    "Handler",
    "InputRequest",
    "InputRequiredError",
    "ListTooLongError",
    "McpError",
    "Missing",
    "Page",
    "ReadResult",
    "Reader",
    "Reason",
    "Resource",
    "ResourceTemplate",
    "Scope",
    "TooManyRoundsError",
    "UpstreamFailure",
    "UpstreamStatus",
]
