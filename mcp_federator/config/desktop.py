"""An `mcpServers` block, as desktop clients write it, to the tree of our own configuration.

Every client has members of its own, so here, and only here, a member that nobody knows is left out with a
note instead of being a mistake; what would change the meaning (a server that is switched off, a transport we
do not speak) is looked at.  Values are filled in and checked afterwards, as if they stood under `upstreams`.

Hazards:
- Notes and problems name keys, never values.
- A server that is switched off must not fail for a variable that is not set, so it goes first.
- Equal words, other units: a client's `timeout` is in milliseconds, ours in seconds.  It is left out.
"""

import re
from typing import Any, Final

from mcp_federator.config.document import join
from mcp_federator.errors import ConfigError

BLOCK: Final = "mcpServers"
"""The member that makes a file one of a desktop client."""

_OURS: Final = frozenset({"server", "lists", "cache"})
"""Sections of ours that may stand beside the block."""

_KINDS: Final = {"command": ("command", "args", "env", "cwd"), "url": ("url", "headers")}
"""What is taken over of a server, by the member that says how it is reached."""

_TYPES: Final = {
    "stdio": "command",
    "http": "url",
    "streamable-http": "url",
    "streamableHttp": "url",
    "streamable_http": "url",
}
_URLS: Final = ("serverUrl", "httpUrl")
"""What some clients write for `url`."""

NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,30}")
"""What an upstream may be called."""

_MAX_NAME: Final = 31

_SWITCHES: Final = {"disabled": True, "enabled": False}
"""The members that switch a server off, with the value that does so."""

FORM: Final[dict[str, Any]] = {
    "description": "The servers to federate, as desktop clients write them; instead of `upstreams`.",
    "type": ["object", "null"],
    "additionalProperties": {
        "type": "object",
        "properties": {
            "type": {"enum": list(_TYPES), "description": "How the server is reached."},
            "command": {"type": "string", "description": "Program to start."},
            "args": {"type": ["array", "null"], "items": {"type": "string"}, "description": "Its arguments."},
            "env": {
                "type": ["object", "null"],
                "additionalProperties": {"type": "string"},
                "description": "Its environment, beside the usual variables.",
            },
            "cwd": {"type": ["string", "null"], "description": "Where it is started."},
            "url": {"type": "string", "description": "Where the server's MCP endpoint is."},
            "headers": {
                "type": ["object", "null"],
                "additionalProperties": {"type": "string"},
                "description": "Header fields sent with every request.",
            },
            "disabled": {"type": "boolean", "description": "Leave the server out."},
        },
    },
}
"""The block in the JSON Schema."""


def is_desktop(tree: Any) -> bool:
    """Whether a file is one of a desktop client."""
    return isinstance(tree, dict) and BLOCK in tree


def translated(tree: dict[str, Any], problems: list[ConfigError], notes: list[str]) -> dict[str, Any]:
    """The same as our own tree, with `upstreams` in place of the block.

    Adds to `problems` what cannot be federated and to `notes` what was left out.
    """
    if "upstreams" in tree:
        problems.append(ConfigError(BLOCK, "expected either `mcpServers` or `upstreams`, found both"))
        return {key: tree[key] for key in tree if key in _OURS}
    ours = {key: tree[key] for key in tree if key in _OURS}
    if others := [key for key in tree if key not in _OURS and key != BLOCK]:
        notes.append(f"left out, as it means nothing here: {_named('', others)}")
    servers = {} if tree[BLOCK] is None else tree[BLOCK]
    if not isinstance(servers, dict):
        problems.append(ConfigError(BLOCK, "expected a mapping of names to servers"))
        return ours
    upstreams = {}
    taken = set(servers)
    for name, server in servers.items():
        path = join(BLOCK, name)
        if not isinstance(server, dict):
            problems.append(ConfigError(path, "expected a mapping"))
        elif unclear := [key for key in _SWITCHES if not isinstance(server.get(key), bool | None)]:
            # A server that was meant to be off must not be asked.
            problems += [ConfigError(join(path, key), "expected true or false") for key in unclear]
        elif any(server.get(key) is off for key, off in _SWITCHES.items()):
            notes.append(f"left out, as it is switched off: {path}")
        elif not NAME.fullmatch(name):
            offered = _renamed(name, taken)
            taken.add(offered)
            problem = (
                f"expected 1 to {_MAX_NAME} lower-case letters, digits and hyphens, a letter first:"
                f" call it `{offered}`"
            )
            problems.append(ConfigError(path, problem))
        else:
            upstreams[name] = _upstream(server, path, problems, notes)
    return {**ours, "upstreams": {name: found for name, found in upstreams.items() if found is not None}}


def _upstream(
    server: dict[str, Any], path: str, problems: list[ConfigError], notes: list[str]
) -> dict[str, Any] | None:
    """One server as one of our upstreams; None where a problem is written down."""
    other = next((key for key in _URLS if key in server and "url" not in server), None)
    if other is not None:
        server = {"url" if key == other else key: value for key, value in server.items()}
    said = server.get("type", server.get("transport"))
    if said == "sse":
        problem = (
            "the HTTP+SSE transport of 2024-11-05 is not supported; a server that has it mostly offers"
            " streamable HTTP too, at another URL"
        )
        problems.append(ConfigError(join(path, "type" if "type" in server else "transport"), problem))
        return None
    if said is not None and (not isinstance(said, str) or said not in _TYPES):
        problems.append(ConfigError(join(path, "type"), f"expected one of {', '.join(_TYPES)}"))
        return None
    given = [key for key in _KINDS if server.get(key) is not None]
    if len(given) != 1 or (said is not None and given != [_TYPES[said]]):
        expected = f"`{_TYPES[said]}` and not the other" if said is not None else "one"
        problems.append(ConfigError(path, f"expected `command` or `url`, exactly {expected}"))
        return None
    taken = _KINDS[given[0]]
    passed_over = {"type", "transport", *_SWITCHES, *taken}
    if others := [key for key in server if key not in passed_over]:
        notes.append(f"left out, as it means nothing here: {_named(path, others)}")
    return {key: server[key] for key in taken if key in server}


def _named(path: str, keys: list[str]) -> str:
    return ", ".join(join(path, key) for key in keys)


def _renamed(name: str, taken: set[str]) -> str:
    """A name like this one that can stand at the beginning of a scheme, and that nobody has."""
    stem = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    if not stem[:1].isalpha():
        stem = f"mcp-{stem}".strip("-")
    stem = stem[:_MAX_NAME].rstrip("-")
    offered, number = stem, 1
    while offered in taken:
        number += 1
        tail = f"-{number}"
        offered = stem[: _MAX_NAME - len(tail)].rstrip("-") + tail
    return offered
