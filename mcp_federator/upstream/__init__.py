"""The upstream room: asking one server, and letting in what it answers.

| module | what it knows |
|---|---|
| client | in which words to ask, and what follows where they were the wrong ones; the room's `Source` |
| discovery | what the upstream is, and how old that knowledge is |
| introduction | how that is found out: the probe, and the handshake of legacy servers |
| sessions, together | the sessions with a legacy server, and work that many wait for |
| streams | what a legacy server says of its own accord: when to listen, and what was missed |
| dialect | how a call is put, in either era |
| door | what an answer means: hints, public URIs, the error table |
| resolution | which listed URI a normalised one meant |
| sender | whether to ask now, and what each request teaches |
| breaker, hold, limits | when not to ask |
| repository, mounting, given | a class of our users: asking it, looking at its rules and at what it gives |
| workers | calls into code that is not ours, each with an end |
| directory, tree | the repository we ship, and what keeps it inside its directory |
| transport | what the client and a way to reach an upstream say to each other |
| streamable_http, replies, connecting | HTTP: one call is one POST; what it brings; TLS, proxy, connections |
| stdio, restarts, stderr | a program: calls over two pipes; when it may start again; what it complains of |
| process, spawning, guard | its process: from start to end; how it is made; what ends it when we cannot |

aiohttp's client lives here and nowhere else.  The cache is a sibling and is not imported: it stands above,
and an answer that leaves this room is ready to be kept.
"""

from mcp_federator.upstream.client import Client, UpstreamStatus
from mcp_federator.upstream.limits import Budget, Slots

__all__ = ["Budget", "Client", "Slots", "UpstreamStatus"]
