"""A scripted upstream: the least that speaks the modern protocol, so that it costs next to nothing itself.

`python -m benchmarks.upstream --count 8 --items 50` opens eight ports and says which.  Every one of them
answers `server/discover`, `resources/list` (one page) and `resources/read` (any URI, 1,024 letters).
A GET tells how often each method was called on all of them together.  No SDK, no framework, no checks.
"""

import argparse
import asyncio
import json
from collections import Counter
from typing import cast

import msgspec
import uvloop


class _Params(msgspec.Struct):
    uri: str = ""


class _Request(msgspec.Struct):
    id: int | str
    method: str
    params: _Params


DISCOVER = (
    b'{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"resources":{}},'
    b'"ttlMs":3600000,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":'
    b'{"name":"scripted","version":"1"}}}'
)
TEXT = b"x" * 1024


class Script:
    """What all ports answer, and what they were asked."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.calls: Counter[str] = Counter()
        self.delay: float = options.delay
        self._hint = f'"ttlMs":{options.ttl},"cacheScope":"{options.scope}"'.encode()
        items = [
            {
                "uri": f"file:///articles/{number}.md",
                "name": f"article-{number}",
                "title": f"Article number {number}",
                "description": "An article among others, described in one sentence.",
                "mimeType": "text/markdown",
            }
            for number in range(options.items)
        ]
        listed = json.dumps(items, separators=(",", ":")).encode()
        self._list = b'{"resultType":"complete","resources":%b,%b}' % (listed, self._hint)

    def result(self, request: _Request) -> bytes:
        """The result, as JSON."""
        if request.method == "resources/read":
            uri = msgspec.json.encode(request.params.uri)
            return (
                b'{"resultType":"complete","contents":[{"uri":%b,"mimeType":"text/plain","text":"%b"}],%b}'
                % (uri, TEXT, self._hint)
            )
        return DISCOVER if request.method == "server/discover" else self._list


class Connection(asyncio.Protocol):
    """HTTP/1.1 with a Content-Length, one request at a time."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.buffer = b""
        self.decode = msgspec.json.Decoder(_Request).decode

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            length = head.find(b"content-length:")
            size = int(head[length + 15 :].split(b"\r\n", 1)[0]) if length >= 0 else 0
            if len(self.buffer) < end + 4 + size:
                return
            body, self.buffer = self.buffer[end + 4 : end + 4 + size], self.buffer[end + 4 + size :]
            if head.startswith(b"get "):
                self._send(json.dumps(self.script.calls).encode())
            else:
                self._answer(self.decode(body))

    def _answer(self, request: _Request) -> None:
        self.script.calls[request.method] += 1
        reply = b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (
            msgspec.json.encode(request.id),
            self.script.result(request),
        )
        if self.script.delay and request.method != "server/discover":
            asyncio.get_running_loop().call_later(self.script.delay, self._send, reply)
        else:
            self._send(reply)

    def _send(self, body: bytes) -> None:
        self.transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )


async def main() -> None:
    """Open the ports and answer until the process is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1, help="number of ports")
    parser.add_argument("--items", type=int, default=1, help="items in the list of each port")
    parser.add_argument("--ttl", type=int, default=3_600_000, help="ttlMs of lists and reads")
    parser.add_argument("--scope", default="public", help="cacheScope of lists and reads")
    parser.add_argument("--delay", type=float, default=0, help="seconds before a list or a read is answered")
    options = parser.parse_args()
    script = Script(options)
    loop = asyncio.get_running_loop()
    servers = [
        await loop.create_server(lambda: Connection(script), "127.0.0.1", 0, backlog=1024)
        for _ in range(options.count)
    ]
    print("listens on", *(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
