"""What the federator says it can do.

It is a function of what this program and its configuration offer, and discover waits for nobody (design,
section 7).  Only completions, and what is told of changes, are the upstreams' own: they are declared once one
of them is known to have them, and that an upstream is down for a while takes nothing back.

Hazard: a capability is a promise.  `listChanged` and `subscribe` stand here only where changes are relayed.
"""

from mcp_federator.model import Offers


def capabilities(offers: Offers = Offers(), *, completions: bool = False) -> bytes:  # noqa: B008 - frozen
    """The `capabilities` of `server/discover` as a JSON object (server/resources, "Capabilities").

    Args:
        offers: what upstreams tell of by themselves.
        completions: an upstream declares them (server/utilities/completion, "Capabilities").
    """
    told = [
        name
        for name, is_told in ((b'"subscribe":true', offers.resources), (b'"listChanged":true', offers.lists))
        if is_told
    ]
    return b'{"resources":{%b}%b}' % (b",".join(told), b',"completions":{}' if completions else b"")
