"""The hub: changes at upstreams on their way to whoever listens.

| module | what it knows |
|---|---|
| hub | who listens to what, what upstreams are therefore listened to for, the order of a change's steps |
| listener | what one listener has not taken yet, and when it is given up |
| pace | when a change is acted on, and how a storm of them becomes few |

Requests never come through here.  What may not come in: the protocol's bytes, HTTP, the cache and the
upstreams themselves; all that is known of an upstream is a `Voice`.
"""

from mcp_federator.hub.hub import Hub, Voice
from mcp_federator.hub.listener import Listener, Notice

__all__ = ["Hub", "Listener", "Notice", "Voice"]
