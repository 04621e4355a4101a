"""Real MCP clients for tests: mcp's and fastmcp's, seen through one face.

Their own caches are off unless asked for: what a test sees was served by the other side.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import httpx2
from fastmcp.client import Client as FastClient
from fastmcp.client.transports import StreamableHttpTransport
from mcp.client.caching import CacheConfig
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import (
    Completion,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    ResourceTemplateReference,
    ServerCapabilities,
)

MODERN = "2026-07-28"
MAX_PAGES = 200


class Reader(Protocol):
    """What a test does with a client."""

    @property
    def version(self) -> str: ...
    @property
    def capabilities(self) -> ServerCapabilities: ...
    async def page(self, cursor: str | None = None) -> ListResourcesResult: ...
    async def template_page(self, cursor: str | None = None) -> ListResourceTemplatesResult: ...
    async def read(self, uri: str) -> ReadResourceResult: ...
    async def complete(
        self, template: str, name: str, value: str, context: Mapping[str, str] | None = None
    ) -> Completion: ...


async def resources(reader: Reader) -> list[Resource]:
    """Every page's resources, in order."""
    page = await reader.page()
    found = list(page.resources)
    for _ in range(MAX_PAGES):
        if page.next_cursor is None:
            return found
        page = await reader.page(page.next_cursor)
        found += page.resources
    raise AssertionError("the list does not end")


async def templates(reader: Reader) -> list[ResourceTemplate]:
    """Every page's templates, in order."""
    page = await reader.template_page()
    found = list(page.resource_templates)
    for _ in range(MAX_PAGES):
        if page.next_cursor is None:
            return found
        page = await reader.template_page(page.next_cursor)
        found += page.resource_templates
    raise AssertionError("the list does not end")


class _Sdk:
    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def version(self) -> str:
        return self.client.protocol_version

    @property
    def capabilities(self) -> ServerCapabilities:
        return self.client.server_capabilities

    async def page(self, cursor: str | None = None) -> ListResourcesResult:
        return await self.client.list_resources(cursor=cursor)

    async def template_page(self, cursor: str | None = None) -> ListResourceTemplatesResult:
        return await self.client.list_resource_templates(cursor=cursor)

    async def read(self, uri: str) -> ReadResourceResult:
        return await self.client.read_resource(uri)

    async def complete(
        self, template: str, name: str, value: str, context: Mapping[str, str] | None = None
    ) -> Completion:
        result = await self.client.complete(
            ResourceTemplateReference(uri=template),
            {"name": name, "value": value},
            None if context is None else dict(context),
        )
        return result.completion


class _Fast:
    def __init__(self, client: FastClient[StreamableHttpTransport]) -> None:
        self.client = client

    @property
    def version(self) -> str:
        return self.client.session.protocol_version or ""

    @property
    def capabilities(self) -> ServerCapabilities:
        return self.client.session.server_capabilities or ServerCapabilities()

    async def page(self, cursor: str | None = None) -> ListResourcesResult:
        return await self.client.list_resources_mcp(cursor=cursor)

    async def template_page(self, cursor: str | None = None) -> ListResourceTemplatesResult:
        return await self.client.list_resource_templates_mcp(cursor=cursor)

    async def read(self, uri: str) -> ReadResourceResult:
        return await self.client.read_resource_mcp(uri)

    async def complete(
        self, template: str, name: str, value: str, context: Mapping[str, str] | None = None
    ) -> Completion:
        return await self.client.complete(
            ResourceTemplateReference(uri=template),
            {"name": name, "value": value},
            None if context is None else dict(context),
        )


@asynccontextmanager
async def sdk(
    url: str,
    headers: Mapping[str, str] | None = None,
    *,
    mode: str = "auto",
    cache: CacheConfig | None = None,
) -> AsyncIterator[Reader]:
    """The client of mcp; `auto` asks `server/discover` first, a pinned version does not."""
    async with httpx2.AsyncClient(headers=dict(headers or {}), timeout=30) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode, cache=cache) as client:
            yield _Sdk(client)


@asynccontextmanager
async def sdk_pinned(url: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[Reader]:
    """The client of mcp that takes the modern version for granted."""
    async with sdk(url, headers, mode=MODERN) as reader:
        yield reader


@asynccontextmanager
async def sdk_stdio(server: StdioServerParameters, *, mode: str = "auto") -> AsyncIterator[Reader]:
    """The client of mcp before a server that it starts itself."""
    async with Client(server, mode=mode, cache=None) as client:
        yield _Sdk(client)


@asynccontextmanager
async def fast(
    url: str, headers: Mapping[str, str] | None = None, *, mode: str = "auto"
) -> AsyncIterator[Reader]:
    """The client of fastmcp, which normalises the URIs it reads."""
    transport = StreamableHttpTransport(url, headers=dict(headers or {}))
    async with FastClient(transport, mode=mode) as client:
        yield _Fast(client)


@asynccontextmanager
async def fast_pinned(url: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[Reader]:
    """The client of fastmcp that takes the modern version for granted."""
    async with fast(url, headers, mode=MODERN) as reader:
        yield reader


Connect = Callable[..., AbstractAsyncContextManager[Reader]]
"""A client for a URL and, as second argument, header fields to send."""
KINDS: dict[str, Connect] = {
    "mcp-auto": sdk,
    "mcp-pinned": sdk_pinned,
    "fastmcp": fast,
    "fastmcp-pinned": fast_pinned,
}
