"""The configuration: what an operator may say, read once, checked whole, passed on as frozen values.

`settings` has the keys, `document` turns text into a tree, `desktop` makes a desktop client's tree ours,
`load` turns the tree into a `Config` or into one message with everything that is wrong, `schema` tells
editors.  What may not come in: any room above; whether prefixes collide is for `federation.prefix` to say,
which comes in as a function.
"""

from mcp_federator.config.load import load, of_urls, parse, upstream, with_options
from mcp_federator.config.schema import schema
from mcp_federator.config.settings import (
    Breaker,
    Cache,
    Config,
    Duration,
    Lists,
    Log,
    Redis,
    Server,
    Size,
    Tls,
    Upstream,
    UpstreamCache,
)

__all__ = [
    "Breaker",
    "Cache",
    "Config",
    "Duration",
    "Lists",
    "Log",
    "Redis",
    "Server",
    "Size",
    "Tls",
    "Upstream",
    "UpstreamCache",
    "load",
    "of_urls",
    "parse",
    "schema",
    "upstream",
    "with_options",
]
