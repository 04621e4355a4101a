"""A scripted MCP server on raw streams: it sends exactly the bytes a test says, and writes down what came.

    async with Wire({"resources/read": [drop(), result(contents("x://1"))]}) as wire:
        ...ask wire.url...
        assert wire.calls("resources/read")[1].header("mcp-name") == "x://1"

`Wire` takes an answer for each JSON-RPC method, or one for all.  A list of answers is used up in turn, and
its last one stays.  `server/discover` answers as a modern server with resources unless a test says otherwise;
a method without an answer gets 404 and -32601.

An answer is a function from the request to steps: bytes to send (each flushed alone), an `asyncio.Event` to
wait for, or an `End`.  In the bytes `$ID` stands for the request's id.  The functions below build the usual
answers; `raw` sends anything.  Port 0 of 127.0.0.1, no thread, no sleep.  It speaks just enough HTTP for one
request after the other on a connection, with `Content-Length`.
"""

import asyncio
import gzip
import json
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType
from typing import Any, Self, TypeAlias

PATIENCE = 10.0
"""Seconds after which waiting for a request is a failed test."""

_MAX_HEAD = 1 << 20
_REASONS = {200: "OK", 202: "Accepted", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}


class End(Enum):
    """How an answer ends, other than by its last byte."""

    CLOSE = auto()
    """The connection is closed in order."""
    RESET = auto()
    """The connection is torn down."""
    HOLD = auto()
    """Nothing more is sent, until the asker or the test closes."""


@dataclass
class Received:
    """One HTTP request, as it came."""

    verb: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int
    """Number of the connection, from 0."""
    nth: int
    """How many requests this connection brought before."""
    gone: asyncio.Event = field(repr=False)
    """Set once the asker has closed the connection."""

    def header(self, name: str) -> str | None:
        """The one value of a field, None where it is missing."""
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(values) < 2, f"{name} came {len(values)} times"
        return values[0] if values else None

    @property
    def message(self) -> Any:
        return json.loads(self.body) if self.body else {}

    @property
    def method(self) -> str:
        return str(self.message.get("method"))

    @property
    def params(self) -> dict[str, Any]:
        return dict(self.message.get("params", {}))


Step: TypeAlias = bytes | asyncio.Event | End
Answer: TypeAlias = Callable[[Received], Iterable[Step]]
Answers: TypeAlias = Answer | Sequence[Answer]


def raw(*steps: Step) -> Answer:
    """These steps and nothing else."""
    return lambda _: steps


def drop() -> Answer:
    """The connection is closed in order, without a byte."""
    return raw(End.CLOSE)


def reset() -> Answer:
    """The connection is torn down, without a byte."""
    return raw(End.RESET)


def never() -> Answer:
    """No byte ever comes."""
    return raw(End.HOLD)


def when_reused(then: Answer, otherwise: Answer) -> Answer:
    """`then` for any but the first request of a connection."""
    return lambda request: (then if request.nth else otherwise)(request)


def reply(
    body: bytes = b"",
    *,
    status: int = 200,
    content_type: str | None = "application/json",
    headers: Mapping[str, str] | None = None,
    cut: int | None = None,
    compress: bool = False,
    after: asyncio.Event | None = None,
) -> Answer:
    """One HTTP response.

    `cut`: in chunks of so many bytes instead of with `Content-Length`; `compress`: with gzip; `after`: not
    before this event.
    """

    def answer(request: Received) -> Iterable[Step]:
        text = _own(body, request)
        fields = {"Content-Type": content_type} if content_type is not None else {}
        if compress:
            text = gzip.compress(text)
            fields["Content-Encoding"] = "gzip"
        fields |= {"Content-Length": str(len(text))} if cut is None else {"Transfer-Encoding": "chunked"}
        if after is not None:
            yield after
        head = _head(status, fields | dict(headers or {}))
        if cut is None:
            yield head + text
        else:
            yield head
            for start in range(0, len(text), cut):
                yield _chunk(text[start : start + cut])
            yield b"0\r\n\r\n"

    return answer


def result(members: dict[str, Any] | bytes, **options: Any) -> Answer:
    """A JSON-RPC result; bytes are JSON text.  Options: see `reply`."""
    text = members if isinstance(members, bytes) else json.dumps(members).encode()
    return reply(b'{"jsonrpc":"2.0","id":$ID,"result":' + text + b"}", **options)


def error(code: int, message: str = "no", data: Any = None, *, status: int = 400, **options: Any) -> Answer:
    """A JSON-RPC error.  Options: see `reply`."""
    members = {"code": code, "message": message} | ({} if data is None else {"data": data})
    text = json.dumps(members).encode()
    return reply(b'{"jsonrpc":"2.0","id":$ID,"error":' + text + b"}", status=status, **options)


def stream(*parts: Step, headers: Mapping[str, str] | None = None) -> Answer:
    """An event stream, each part in one chunk; it ends in order unless an `End` is among the parts."""

    def answer(request: Received) -> Iterable[Step]:
        fields = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
        yield _head(200, fields | dict(headers or {}))
        for part in parts:
            yield _chunk(_own(part, request)) if isinstance(part, bytes) else part
        yield b"0\r\n\r\n"

    return answer


def event(members: dict[str, Any]) -> bytes:
    """The event that carries a JSON-RPC result, for `stream`."""
    return b'event: message\ndata: {"jsonrpc":"2.0","id":$ID,"result":%b}\n\n' % json.dumps(members).encode()


def contents(uri: str, text: str = "text", *, ttl: int = 60_000, scope: str = "public") -> dict[str, Any]:
    """The result of a read."""
    return {
        "resultType": "complete",
        "contents": [{"uri": uri, "text": text}],
        "ttlMs": ttl,
        "cacheScope": scope,
    }


def page(*uris: str, cursor: str | None = None, ttl: int = 60_000, scope: str = "public") -> dict[str, Any]:
    """The result of a list."""
    members: dict[str, Any] = {
        "resultType": "complete",
        "resources": [{"uri": uri, "name": uri} for uri in uris],
        "ttlMs": ttl,
        "cacheScope": scope,
    }
    return members if cursor is None else members | {"nextCursor": cursor}


def discovered(
    capabilities: Mapping[str, Any] | None = None, *, ttl: int = 3_600_000, **members: Any
) -> dict[str, Any]:
    """The result of `server/discover`; `members` replace or add."""
    return {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {"resources": {}} if capabilities is None else dict(capabilities),
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "wire", "version": "1.0"}},
        "ttlMs": ttl,
        "cacheScope": "public",
    } | members


def initialized(
    version: str = "2025-11-25",
    capabilities: Mapping[str, Any] | None = None,
    *,
    session: str | None = None,
    **members: Any,
) -> Answer:
    """A legacy server's answer to `initialize`; `session` is its id, `members` replace or add."""
    found = {
        "protocolVersion": version,
        "capabilities": {"resources": {}} if capabilities is None else dict(capabilities),
        "serverInfo": {"name": "wire", "version": "1.0"},
    } | members
    return result(found, headers={} if session is None else {"Mcp-Session-Id": session})


def accepted() -> Answer:
    """What is said to a notification."""
    return reply(status=202, content_type=None)


def by_uri(known: Mapping[str, dict[str, Any] | bytes]) -> Answer:
    """A read, answered on exact match alone."""

    def answer(request: Received) -> Iterable[Step]:
        uri = request.params["uri"]
        found = result(known[uri]) if uri in known else error(-32602, "not found", {"uri": uri})
        return found(request)

    return answer


def by_cursor(pages: Mapping[str | None, dict[str, Any] | bytes]) -> Answer:
    """A list, answered by its cursor; None is the first page."""

    def answer(request: Received) -> Iterable[Step]:
        cursor = request.params.get("cursor")
        found = result(pages[cursor]) if cursor in pages else error(-32602, "no such cursor")
        return found(request)

    return answer


class Wire:
    """The server.  Running inside `async with`; `stop` and `start` take it down and up on its port.

    Attributes:
        received: every request, in order.
        answers: by JSON-RPC method, `""` for any other; a test may change them while it runs.
        connections: how many were opened.
    """

    def __init__(self, answers: Mapping[str, Answers] | Answer, *, tls: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, Answers] = {"server/discover": result(discovered())}
        self.answers |= {"": answers, "server/discover": answers} if callable(answers) else answers
        self.received: list[Received] = []
        self.connections = 0
        self.port = 0
        self._tls = tls
        self._used: dict[str, int] = {}
        self._arrival = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._failures: list[BaseException] = []

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/mcp"

    def calls(self, method: str) -> list[Received]:
        """The requests of one JSON-RPC method."""
        return [request for request in self.received if request.method == method]

    async def arrived(self, method: str, count: int = 1) -> list[Received]:
        """Wait until so many requests of the method are here."""
        async with asyncio.timeout(PATIENCE), self._arrival:
            await self._arrival.wait_for(lambda: len(self.calls(method)) >= count)
        return self.calls(method)

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, "127.0.0.1", self.port, ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is None:
            return
        self._server.close()
        for task, writer in list(self._tasks.items()):
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
        if self._failures and value is None:
            raise self._failures[0]

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        reader = _Reader(limit=_MAX_HEAD)

        def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._serve(reader, writer, self.connections))
            self._tasks[task] = writer
            self.connections += 1

        return asyncio.StreamReaderProtocol(reader, connected)

    async def _serve(self, reader: "_Reader", writer: asyncio.StreamWriter, number: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            nth = 0
            while (request := await _receive(reader, number, nth)) is not None:
                nth += 1
                self.received.append(request)
                async with self._arrival:
                    self._arrival.notify_all()
                if not await self._play(self._answer(request), request, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the asker went away, which a test sees by `gone`
        except Exception as failure:  # noqa: BLE001 - shown at the end of the block
            self._failures.append(failure)
        finally:
            writer.close()
            del self._tasks[task]

    def _answer(self, request: Received) -> Answer:
        name = request.method if request.method in self.answers else ""
        answers = self.answers.get(name, error(-32601, "Method not found", status=404))
        if callable(answers):
            return answers
        used = self._used.get(name, 0)
        self._used[name] = used + 1
        return answers[min(used, len(answers) - 1)]

    async def _play(self, answer: Answer, request: Received, writer: asyncio.StreamWriter) -> bool:
        """Send an answer; false where the connection ends with it."""
        for step in answer(request):
            match step:
                case bytes():
                    writer.write(_own(step, request))
                    await writer.drain()
                    await asyncio.sleep(0)  # the asker's turn: what follows comes in another piece
                case asyncio.Event():
                    await step.wait()
                case End.CLOSE:
                    return False
                case End.RESET:
                    writer.transport.abort()
                    return False
                case End.HOLD:
                    await request.gone.wait()
                    return False
        return True


class _Reader(asyncio.StreamReader):
    """Says at once that the other side closed, also while nobody reads."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit=limit)
        self.gone = asyncio.Event()

    def feed_eof(self) -> None:
        self.gone.set()
        super().feed_eof()

    def set_exception(self, exc: Exception) -> None:
        self.gone.set()
        super().set_exception(exc)


async def _receive(reader: _Reader, connection: int, nth: int) -> Received | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as ended:
        if ended.partial:
            raise
        return None
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    verb, target, _ = first.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    request = Received(verb, target, headers, b"", connection, nth, reader.gone)
    request.body = await reader.readexactly(int(request.header("content-length") or 0))
    return request


def _own(text: bytes, request: Received) -> bytes:
    return text.replace(b"$ID", json.dumps(request.message.get("id")).encode()) if b"$ID" in text else text


def _head(status: int, fields: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Other')}", *(f"{k}: {v}" for k, v in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _chunk(text: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(text), text)
