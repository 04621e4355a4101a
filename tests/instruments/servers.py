"""Real MCP servers for tests: mcp's low-level server and MCPServer, and fastmcp's, over streamable HTTP.

Each runs in a thread of its own, on a port the system chooses, and offers what a `Shelf` holds.  What reaches
it is written down before the SDK sees it, so a test can say how often an upstream was asked, with which
parameters and with which header fields.
"""

import asyncio
import base64
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from typing import Any, TypeVar

import uvicorn
from fastmcp import FastMCP
from fastmcp.resources import FunctionResource as FastFunctionResource
from fastmcp.resources import ResourceTemplate as FastResourceTemplate
from mcp.server.caching import CacheableMethod, CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resources import FunctionResource
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import (
    INVALID_PARAMS,
    BlobResourceContents,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    InputRequiredResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    PromptReference,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    TextResourceContents,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

Item = TypeVar("Item")
Contents = list[TextResourceContents | BlobResourceContents]
Act = Callable[[ReadResourceRequestParams, Mapping[str, str]], ReadResourceResult | InputRequiredResult]
"""What a low-level server does for one URI, given parameters and header fields; it may raise MCPError."""

PUBLIC = CacheHint(ttl_ms=60_000, scope="public")
PRIVATE = CacheHint(ttl_ms=60_000, scope="private")
NEVER = CacheHint()


@dataclass
class Shelf:
    """What a server offers.  The low-level one looks at it anew for each request, the others when they start.

    Attributes:
        bodies: what can be read, by URI; listed in this order unless `resources` says otherwise.
        resources: the list items, where more than a URI and a name is wanted (low level only).
        templates: URI templates; a URI that matches one is answered with itself as text
            (low level) or with its variables' values as JSON (the others).
        completions: by template, the values that each variable may have; without any, none are declared.
        page_size: items on a page of either list; MCPServer has no pages.
        list_hint, read_hint: the hints; fastmcp knows one for all, in whole seconds: `read_hint`.
    """

    bodies: dict[str, str | bytes | Contents | Act] = field(default_factory=dict)
    resources: list[Resource] | None = None
    templates: list[str] = field(default_factory=list)
    completions: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    page_size: int | None = None
    list_hint: CacheHint = PUBLIC
    read_hint: CacheHint = PUBLIC

    def listed(self) -> list[Resource]:
        return self.resources or [Resource(uri=uri, name=uri) for uri in self.bodies]

    def suggestions(
        self, ref: ResourceTemplateReference | PromptReference, argument: CompletionArgument
    ) -> Completion:
        """The values that begin as the argument does."""
        known = self.completions.get(ref.uri, {}) if isinstance(ref, ResourceTemplateReference) else {}
        values = [value for value in known.get(argument.name, []) if value.startswith(argument.value)]
        return Completion(values=values, total=len(values), has_more=False)


def shelf_of(count: int, *, prefix: str = "file:///", **options: Any) -> Shelf:
    """A shelf of `count` small texts, `file:///0` and so on."""
    return Shelf({f"{prefix}{n}": f"text of {n}" for n in range(count)}, **options)


@dataclass(frozen=True)
class Call:
    """One request as it arrived."""

    method: str
    params: dict[str, Any]
    headers: dict[str, str]
    body: bytes


class Calls(list[Call]):
    """What reached a server, in order."""

    def of(self, method: str) -> list[Call]:
        return [call for call in self if call.method == method]

    def count(self, method: object) -> int:
        return sum(call.method == method for call in self)


class Running:
    """A server that runs.  `stop` breaks all its connections; `start` brings it back on the same port."""

    def __init__(self, build: Callable[[], ASGIApp]) -> None:
        self._build = build
        self._port = 0
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._listener: socket.socket | None = None
        self._held = False
        self.calls = Calls()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/mcp"

    def start(self) -> None:
        config = uvicorn.Config(self._watch(self._build()), log_config=None, ws="none", lifespan="on")
        self._server = uvicorn.Server(config)
        self._listener = listener = socket.create_server(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        # The socket listens already: nobody has to wait for the thread.
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._server is None or self._thread is None or self._listener is None:
            return
        self._held = False
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(timeout=10)
        assert not self._thread.is_alive(), "the server did not end"
        self._listener.close()
        self._server = self._thread = self._listener = None

    async def reached(self, method: str, count: int = 1) -> None:
        """Wait until `count` requests of this method have arrived."""
        async with asyncio.timeout(10):
            while self.calls.count(method) < count:  # noqa: ASYNC110 - they arrive in another thread
                await asyncio.sleep(0.005)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nothing that arrives meanwhile is answered before this ends."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def _watch(self, app: ASGIApp) -> ASGIApp:
        async def watch(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or scope["method"] != "POST":
                await app(scope, receive, send)
                return
            body, more = b"", True
            while more:
                message = await receive()
                body += message.get("body", b"")
                more = message.get("more_body", False)
            request = json.loads(body)
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            self.calls.append(Call(request["method"], request.get("params", {}), headers, body))
            while self._held:  # noqa: ASYNC110 - the event comes from another thread
                await asyncio.sleep(0.005)
            unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def again() -> Message:
                return unread.pop() if unread else await receive()

            await app(scope, again, send)

        return watch


def _page(items: list[Item], size: int | None, cursor: str | None) -> tuple[list[Item], str | None]:
    """The page that begins where the cursor says, and the cursor of the next one."""
    try:
        start = int(cursor) if cursor is not None else 0
    except ValueError:
        raise MCPError(INVALID_PARAMS, "unknown cursor") from None
    end = len(items) if size is None else start + size
    return items[start:end], str(end) if end < len(items) else None


def lowlevel(shelf: Shelf) -> ASGIApp:
    """The low-level server of mcp: everything a shelf can say."""

    async def on_list(_: ServerRequestContext, params: PaginatedRequestParams | None) -> ListResourcesResult:
        items, cursor = _page(shelf.listed(), shelf.page_size, params.cursor if params else None)
        hint = shelf.list_hint
        return ListResourcesResult(
            resources=items, next_cursor=cursor, ttl_ms=hint.ttl_ms, cache_scope=hint.scope
        )

    async def on_templates(
        _: ServerRequestContext, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        items, cursor = _page(shelf.templates, shelf.page_size, params.cursor if params else None)
        templates = [ResourceTemplate(uri_template=text, name=text) for text in items]
        hint = shelf.list_hint
        return ListResourceTemplatesResult(
            resource_templates=templates, next_cursor=cursor, ttl_ms=hint.ttl_ms, cache_scope=hint.scope
        )

    async def on_read(
        ctx: ServerRequestContext, params: ReadResourceRequestParams
    ) -> ReadResourceResult | InputRequiredResult:
        uri = params.uri
        body = shelf.bodies.get(uri)
        if body is None and any(UriTemplate.parse(text).match(uri) is not None for text in shelf.templates):
            body = uri
        contents: Contents
        match body:
            case None:
                raise MCPError(INVALID_PARAMS, "unknown resource", {"uri": uri})
            case str():
                contents = [TextResourceContents(uri=uri, text=body)]
            case bytes():
                contents = [BlobResourceContents(uri=uri, blob=base64.b64encode(body).decode())]
            case list():
                contents = body
            case act:
                return act(params, ctx.request.headers if ctx.request is not None else {})
        hint = shelf.read_hint
        return ReadResourceResult(contents=contents, ttl_ms=hint.ttl_ms, cache_scope=hint.scope)

    async def on_completion(_: ServerRequestContext, params: CompleteRequestParams) -> CompleteResult:
        return CompleteResult(completion=shelf.suggestions(params.ref, params.argument))

    server = Server(
        "shelf",
        version="1.0",
        on_completion=on_completion if shelf.completions else None,
        on_list_resources=on_list,
        on_list_resource_templates=on_templates,
        on_read_resource=on_read,
    )
    return server.streamable_http_app()


def mcpserver(shelf: Shelf) -> ASGIApp:
    """The MCPServer of mcp: one page, one text or blob for each URI."""
    hints: dict[CacheableMethod, CacheHint] = {
        "resources/list": shelf.list_hint,
        "resources/templates/list": shelf.list_hint,
        "resources/read": shelf.read_hint,
    }
    server = MCPServer("shelf", version="1.0", log_level="ERROR", cache_hints=hints)
    for uri in shelf.bodies:
        server.add_resource(FunctionResource.from_function(_give(shelf, uri), uri=uri, name=uri))
    for text in shelf.templates:
        server.resource(text, name=text)(_echo(text))
    if shelf.completions:
        server.completion()(_suggesting(shelf))  # type: ignore[no-untyped-call] # the SDK leaves it untyped
    return server.streamable_http_app()


def fastmcp(shelf: Shelf) -> ASGIApp:
    """The server of fastmcp: pages, one text or blob for each URI, one hint for all.

    It normalises URIs as pydantic's AnyUrl does.
    """
    hint = shelf.read_hint
    cached: dict[str, Any] = (
        {"cache_ttl": hint.ttl_ms // 1000, "cache_scope": hint.scope} if hint.ttl_ms else {}
    )
    server = FastMCP("shelf", version="1.0", list_page_size=shelf.page_size, **cached)
    for uri in shelf.bodies:
        server.add_resource(FastFunctionResource.from_function(_give(shelf, uri), uri=uri, name=uri))
    for text in shelf.templates:
        server.add_template(FastResourceTemplate.from_function(_echo(text), uri_template=text, name=text))
    if shelf.completions:
        server.completion(_suggesting(shelf))
    return server.http_app(path="/mcp")


def _suggesting(shelf: Shelf) -> Callable[..., Awaitable[Completion]]:
    async def suggest(
        ref: ResourceTemplateReference | PromptReference,
        argument: CompletionArgument,
        _: CompletionContext | None,
    ) -> Completion:
        return shelf.suggestions(ref, argument)

    return suggest


def _give(shelf: Shelf, uri: str) -> Callable[[], Any]:
    return lambda: shelf.bodies[uri]


def _echo(template: str) -> Callable[..., str]:
    """A function that takes the template's variables by name and answers with their values."""
    names = UriTemplate.parse(template).variable_names

    def echo(**values: str) -> str:
        return json.dumps(values)

    parameters = [Parameter(name, Parameter.KEYWORD_ONLY, default="", annotation=str) for name in names]
    echo.__signature__ = Signature(parameters, return_annotation=str)  # type: ignore[attr-defined] # inspect reads it
    echo.__annotations__ = dict.fromkeys([*names, "return"], str)
    return echo


Make = Callable[[Shelf], ASGIApp]
KINDS: dict[str, Make] = {"mcp-lowlevel": lowlevel, "mcp-mcpserver": mcpserver, "fastmcp": fastmcp}


@contextmanager
def running(shelf: Shelf, make: Make = lowlevel) -> Iterator[Running]:
    """A real server with this shelf, from here to the end of the block."""
    server = Running(lambda: make(shelf))
    server.start()
    try:
        yield server
    finally:
        server.stop()
