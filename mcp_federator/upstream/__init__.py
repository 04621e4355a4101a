"""The upstream room: asking one server, and letting in what it answers.

| module | what it knows |
|---|---|
| client | whether to ask, and what follows from the answer; the room's `Source` |
| discovery | what the upstream is, and how old that knowledge is |
| door | what an answer means: hints, public URIs, the error table |
| resolution | which listed URI a normalised one meant |
| breaker, hold, limits | when not to ask |
| transport | what the client and a way to reach an upstream say to each other |
| streamable_http, connecting | HTTP: one call is one POST; TLS, proxy, connections |

aiohttp's client lives here and nowhere else.  The cache is a sibling and is not imported: it stands above,
and an answer that leaves this room is ready to be kept.
"""

from mcp_federator.upstream.client import Client, UpstreamStatus
from mcp_federator.upstream.limits import Budget, Slots

__all__ = ["Budget", "Client", "Slots", "UpstreamStatus"]
