"""The MCP listener on a real socket over a scripted source, and a client that may misbehave.

    async with Door(source) as door:
        reply = await door.post(read("docs+x://1"))
        assert source.asked[0].uri == "docs+x://1"

`Door` fails a test that leaves a task behind or an exception nobody took.  Port 0 of 127.0.0.1, no sleep; the
clock stands still unless a test moves it.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import msgspec

from mcp_federator import config
from mcp_federator.endpoint.routes import Endpoint
from mcp_federator.endpoint.wire import Server
from mcp_federator.hub import Hub
from mcp_federator.log import Writer
from mcp_federator.metrics import Metrics
from mcp_federator.model import Answer, Caller, Hint, Outcome, Query, Scope, Served, Tier
from mcp_federator.request_log import RequestLog
from tests.hub.speaker import Speaker

PATIENCE = 10.0
"""Seconds after which waiting is a failed test."""

loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
"""Makes the loop that `run` runs on; the fixture `each_loop` puts another one here."""

VERSION = "2026-07-28"
CAPABILITIES: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {}}
META = {"io.modelcontextprotocol/protocolVersion": VERSION, **CAPABILITIES}

HIT = Answer(
    b'"contents":[{"uri":"docs+x://1","text":"one"}]',
    Hint(30_000, Scope.PUBLIC),
    count=1,
    served=Served(Outcome.HIT, Tier.MEMORY, fresh_for=30, upstreams=("docs",)),
)
PAGE = Answer(b'{"uri":"docs+x://1","name":"one"}', Hint(0, Scope.PRIVATE), next_cursor="c2", count=1)

T = TypeVar("T")


def run(body: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(asyncio.wait_for(body, PATIENCE * 4))


class Lines(Writer):
    """A log's writer that keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.texts: list[str] = []

    def put(self, text: str, lines: int = 1) -> None:  # noqa: ARG002 - the writer's signature
        self.texts.append(text)


class ScriptedSource:
    """Answers what a test says, and writes down what it was asked."""

    def __init__(
        self, answer: Answer | Exception | Callable[[Query, Caller], Awaitable[Answer]] = HIT
    ) -> None:
        self._answer = answer
        self.asked: list[Query] = []
        self.callers: list[Caller] = []

    async def fetch(self, query: Query, caller: Caller) -> Answer:
        self.asked.append(query)
        self.callers.append(caller)
        if isinstance(self._answer, Exception):
            raise self._answer
        if isinstance(self._answer, Answer):
            return self._answer
        return await self._answer(query, caller)


class HangingSource:
    """Never answers; says when it was asked and when it was cancelled."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def fetch(self, query: Query, caller: Caller) -> Answer:  # noqa: ARG002 - a source's signature
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        raise AssertionError


@dataclass
class Response:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """The one value of a field, None where it is missing."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None

    @property
    def message(self) -> Any:
        assert self.header("Content-Type") == "application/json"
        return json.loads(self.body)

    @property
    def code(self) -> int | None:
        """The JSON-RPC error code, None of a result."""
        assert self.message["jsonrpc"] == "2.0"
        error = self.message.get("error")
        return None if error is None else int(error["code"])


class Client:
    """One connection that sends any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, *parts: bytes) -> None:
        """Send parts, each flushed alone."""
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    def pause(self) -> None:
        """Read nothing more."""
        cast("asyncio.Transport", self.writer.transport).pause_reading()

    def resume(self) -> None:
        """Read on."""
        cast("asyncio.Transport", self.writer.transport).resume_reading()

    async def receive(self, *, head_only: bool = False) -> Response:
        """The next response; `head_only` where the request was a HEAD."""
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = [tuple(line.split(": ", 1)) for line in head[1:] if line]
            response = Response(int(head[0].split()[1]), headers, b"")  # type: ignore[arg-type] # split in two
            length = int(response.header("Content-Length") or 0)
            if length and not head_only:
                response.body = await self.reader.readexactly(length)
            return response

    async def at_end(self) -> bool:
        """Whether the server closes without another byte."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.read() == b""

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@dataclass
class Door:
    """See the module's text."""

    source: Any = field(default_factory=ScriptedSource)
    settings: config.Server = field(default_factory=config.Server)
    cache: config.Cache = field(default_factory=config.Cache)
    forwarded: frozenset[str] = frozenset()
    credentials: frozenset[str] = frozenset()
    discovered: tuple[bytes, int] = (b'{"resources":{}}', 60_000)
    speaker: Speaker = field(default_factory=Speaker)
    alone: bool = True

    async def __aenter__(self) -> Self:
        self.federator = self.source
        self.now = 0.0
        self.lines = Lines()
        self.log = RequestLog("json", "debug", writer=self.lines, clock=lambda: 0.0)
        self.metrics = Metrics("0")
        self.hub = Hub(self.metrics)
        self.hub.adopt([self.speaker.voice])
        self.endpoint = Endpoint(
            self,
            self.settings,
            self.cache,
            forwarded_headers=self.forwarded,
            credential_headers=self.credentials,
            metrics=self.metrics,
            request_log=self.log,
            discover=lambda _: self.discovered,
            clock=lambda: self.now,
        )
        self.before = asyncio.all_tasks()
        self.troubles: list[dict[str, Any]] = []
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(lambda _, context: self.troubles.append(context))
        self.web = Server(self.endpoint.handle, self.endpoint.turned_away)
        self.server = await self.loop.create_server(self.web, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        self.clients: list[Client] = []
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self.clients:
            await client.close()
        self.server.close()
        self.endpoint.drain()
        await self.web.shutdown(PATIENCE)
        await self.endpoint.close()
        self.log.flush()
        left = asyncio.all_tasks() - self.before
        if left:
            await asyncio.wait(left, timeout=PATIENCE)
        if error is None:
            assert {task for task in left if not task.done()} == set()
            assert self.troubles == []
            assert self.endpoint.body_bytes == 0

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    async def ask(self, *parts: bytes, head_only: bool = False) -> Response:
        """Send raw bytes on a connection of their own."""
        client = await self.connect()
        await client.send(*parts)
        response = await client.receive(head_only=head_only)
        await client.close()
        return response

    async def post(
        self, message: Any, headers: Mapping[str, str | None] | Sequence[tuple[str, str]] = (), **also: Any
    ) -> Response:
        """POST a message; see `request`."""
        return await self.ask(request(message, headers, **also))

    @property
    def told(self) -> list[dict[str, Any]]:
        """The request log."""
        self.log.flush()
        return [json.loads(line) for line in "".join(self.lines.texts).splitlines()]

    @property
    def counted(self) -> dict[str, float]:
        """The series of `requests_total`, by their labels as written."""
        start = "mcp_federator_requests_total{"
        text = self.metrics.render()[0].decode()
        lines = [line.removeprefix(start).split("} ") for line in text.splitlines() if line.startswith(start)]
        return {labels: float(count) for labels, count in lines}


def message(
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    id: Any = 1,  # noqa: A002 - the protocol's word
    meta: Any = META,
) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": meta}}


def read(uri: str = "docs+x://1", **also: Any) -> dict[str, Any]:
    return message("resources/read", {"uri": uri}, **also)


def request(
    message: Any,
    headers: Mapping[str, str | None] | Sequence[tuple[str, str]] = (),
    *,
    verb: str = "POST",
    path: str = "/mcp",
) -> bytes:
    """An HTTP request as a good modern client sends it, but for `headers`: None leaves a field out.

    Args:
        message: a JSON-RPC message, or the bytes of a body.
        headers: replaces fields; given as pairs, adds fields.
        verb: the method.
        path: the target.
    """
    body = message if isinstance(message, bytes) else msgspec.json.encode(message)
    usual: dict[str, str | None] = {
        "Host": "127.0.0.1",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Content-Length": str(len(body)),
    }
    if isinstance(message, dict):
        usual["MCP-Protocol-Version"] = VERSION
        usual["Mcp-Method"] = message.get("method")
        params = message.get("params") or {}
        usual["Mcp-Name"] = params.get("uri") if isinstance(params.get("uri"), str) else None
    added: Sequence[tuple[str, str]] = ()
    if isinstance(headers, Mapping):
        usual.update(headers)
    else:
        added = headers
    fields = [(name, value) for name, value in usual.items() if value is not None]
    head = "".join(f"{name}: {value}\r\n" for name, value in [*fields, *added])
    return f"{verb} {path} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogateescape") + body


async def once(*parts: bytes, door: Door | None = None, asked: int = 0) -> Response:
    """One request over a door of its own; `asked` is how often the source must have been asked."""
    async with door or Door() as opened:
        response = await opened.ask(*parts)
        assert len(opened.source.asked) == asked
        return response


def compact(sent: Any) -> bytes:
    return json.dumps(sent, separators=(",", ":")).encode()


def read_fields(method: str = "resources/read") -> dict[str, str | None]:
    return {"MCP-Protocol-Version": VERSION, "Mcp-Method": method, "Mcp-Name": "docs+x://1"}


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}


class LegacyClient:
    """A client of the 2025 revisions, with a session."""

    def __init__(self, door: Door, session: str, version: str) -> None:
        self.door = door
        self.session = session
        self.version = version

    def sent(self, body: Any, headers: Mapping[str, str | None] | None = None, verb: str = "POST") -> bytes:
        """The HTTP request for these bytes, or this message."""
        fields: dict[str, str | None] = {
            "Mcp-Session-Id": self.session,
            "MCP-Protocol-Version": None if self.version == "2025-03-26" else self.version,
            **(headers or {}),
        }
        return request(body if isinstance(body, bytes) else compact(body), fields, verb=verb)

    async def post(self, body: Any, headers: Mapping[str, str | None] | None = None) -> Response:
        return await self.door.ask(self.sent(body, headers))

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        id: Any = 1,  # noqa: A002 - the protocol's word
    ) -> Response:
        return await self.post(plain(method, params, id=id))

    async def read(self, uri: str = "docs+x://1", **also: Any) -> Response:
        return await self.ask("resources/read", {"uri": uri}, **also)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> Response:
        return await self.post({"jsonrpc": "2.0", "method": method, "params": params or {}})

    async def delete(self, headers: Mapping[str, str | None] | None = None) -> Response:
        return await self.door.ask(self.sent(b"", headers, "DELETE"))

    async def listen(self, headers: Mapping[str, str | None] | None = None) -> Client:
        """A connection with a stream open, its head read."""
        client = await self.door.connect()
        await client.send(self.sent(b"", {"Accept": "text/event-stream", **(headers or {})}, "GET"))
        return client


def plain(
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    id: Any = 1,  # noqa: A002 - the protocol's word
) -> dict[str, Any]:
    """A request without `_meta`."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


async def began(door: Door, version: str = "2025-11-25") -> LegacyClient:
    """A client that has agreed on this version."""
    params = {**INITIALIZE["params"], "protocolVersion": version}  # type: ignore[dict-item] # it is a dict
    response = await door.ask(request(compact({**INITIALIZE, "params": params})))
    assert response.status == 200
    session = response.header("Mcp-Session-Id")
    assert session is not None
    return LegacyClient(door, session, response.message["result"]["protocolVersion"])


async def settle() -> None:
    """Let the loop turn once."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future
