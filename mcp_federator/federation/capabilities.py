"""What the federator says it can do.

It is a function of what this program and its configuration offer, never of what upstreams declare: discover
waits for nobody, and an upstream that comes or goes changes no client's idea of the endpoint (design,
section 7).

Hazard: a capability is a promise.  `listChanged` and `subscribe` may stand here only where changes are
relayed.
"""


def capabilities() -> bytes:
    """The `capabilities` of `server/discover` as a JSON object (server/resources, "Capabilities")."""
    return b'{"resources":{}}'
