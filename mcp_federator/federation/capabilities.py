"""What the federator says it can do.

It is a function of what this program and its configuration offer, and discover waits for nobody (design,
section 7).  Only completions are the upstreams' own: they are declared once one of them is known to, and that
an upstream is down for a while takes nothing back.

Hazard: a capability is a promise.  `listChanged` and `subscribe` may stand here only where changes are
relayed.
"""


def capabilities(*, completions: bool = False) -> bytes:
    """The `capabilities` of `server/discover` as a JSON object (server/resources, "Capabilities").

    `completions`: an upstream declares them (server/utilities/completion, "Capabilities").
    """
    return b'{"resources":{},"completions":{}}' if completions else b'{"resources":{}}'
