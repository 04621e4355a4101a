"""What the two servers of the 2025 revisions share: the handshake, pages, and an answer to each request.

Plain Python without any library.  How messages come and go is each server's own affair.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
PAGE = 4

Params = dict[str, Any]
Method = Callable[[Params], dict[str, Any]]


class Refusal(Exception):  # noqa: N818 - the answer is one
    """A JSON-RPC error: code, message, data."""


def page(items: Sequence[dict[str, Any]], params: Params) -> dict[str, Any]:
    """One page of resources; its cursor is where the next one begins."""
    cursor = params.get("cursor", "0")
    if not (isinstance(cursor, str) and re.fullmatch("[0-9]{1,3}", cursor)):
        raise Refusal(-32602, "no cursor of ours", None)
    end = int(cursor) + PAGE
    more = {"nextCursor": str(end)} if end < len(items) else {}
    return {"resources": items[int(cursor) : end], **more}


def text(uri: object, found: str | None) -> dict[str, Any]:
    """What was read, or "not found" in the code of that time."""
    if found is None:
        raise Refusal(-32002, "Resource not found", {"uri": uri})
    return {"contents": [{"uri": uri, "mimeType": "text/plain", "text": found}]}


class Answers:
    """What a server answers to each request.

    Args:
        name: of the server, for the handshake.
        methods: what the server does, beside the handshake and `ping`.
    """

    def __init__(self, name: str, methods: dict[str, Method]) -> None:
        self._name = name
        self._methods: dict[str, Method] = {"initialize": self._initialize, "ping": lambda _: {}, **methods}

    def __call__(self, message: dict[str, Any]) -> dict[str, Any]:
        """The `result` or the `error` of one request."""
        method = self._methods.get(message["method"])
        if method is None:
            return {"error": {"code": -32601, "message": "Method not found"}}
        try:
            return {"result": method(message.get("params", {}))}
        except Refusal as refusal:
            code, said, data = refusal.args
            return {"error": {"code": code, "message": said, **({} if data is None else {"data": data})}}

    def _initialize(self, params: Params) -> dict[str, Any]:
        """The version the client wants where we speak it, else our newest."""
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
            "capabilities": {"resources": {}},
            "serverInfo": {"name": self._name, "version": "1.0"},
        }
