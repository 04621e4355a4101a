"""The protocol room: bytes and headers of MCP on one side, the words of `model` on the other.

It changes when MCP changes, and for no other reason.  Everything here is a function of its arguments: no I/O,
no clock, no loop.  `federation` is its sibling and is not imported.  The citations name pages of the MCP
specification, revision 2026-07-28, below `docs/specification/`.

| module | what it knows |
|---|---|
| vocabulary | versions, `_meta` keys, header names, error codes, what becomes of an upstream's code |
| text | what must hold of a JSON text before it is decoded |
| jsonrpc | envelopes: requests in, calls out, replies, errors |
| completion | the params of `completion/complete`, the same in either dialect |
| subscriptions | `subscriptions/listen` toward clients, and the notifications of changes |
| headers | `Mcp-Name`, trace context, `Cache-Status` |
| sse | event streams |
| modern | the dialect of 2026-07-28 |
| legacy | the dialect of the 2025 revisions |
| era | which dialect somebody speaks, and whether that still fits |
"""
