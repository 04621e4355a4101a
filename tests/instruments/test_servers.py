"""The instruments themselves: every real client gets from every real server what is on the shelf."""

import asyncio
from collections.abc import Mapping

import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ReadResourceRequestParams, ReadResourceResult, TextResourceContents

from tests.instruments import clients, servers


@pytest.mark.parametrize("make", servers.KINDS.values(), ids=servers.KINDS)
@pytest.mark.parametrize("connect", clients.KINDS.values(), ids=clients.KINDS)
def test_a_client_lists_and_reads_what_is_on_the_shelf(make: servers.Make, connect: clients.Connect) -> None:
    """All pages, all templates and a read come through, in the modern era, and each call is counted."""
    shelf = servers.shelf_of(5, templates=["note://{name}"], page_size=2)

    async def body(url: str) -> None:
        async with connect(url) as reader:
            assert reader.version == clients.MODERN
            assert [item.uri for item in await clients.resources(reader)] == list(shelf.bodies)
            assert [item.uri_template for item in await clients.templates(reader)] == ["note://{name}"]
            result = await reader.read("file:///3")
            assert [each.text for each in result.contents if hasattr(each, "text")] == ["text of 3"]
            assert (result.ttl_ms, result.cache_scope) == (60_000, "public")

    with servers.running(shelf, make) as server:
        asyncio.run(body(server.url))
        pages = 1 if make is servers.mcpserver else 3
        assert server.calls.count("resources/list") == pages
        assert server.calls.count("resources/read") == 1
        assert server.calls.of("resources/read")[0].headers["mcp-name"] == "file:///3"


def test_a_server_comes_back_on_its_port() -> None:
    """A stopped server refuses connections, a started one answers at the same address."""

    async def read(url: str) -> str:
        async with clients.sdk_pinned(url) as reader:
            [content] = (await reader.read("file:///0")).contents
            return getattr(content, "text", "")

    with servers.running(servers.shelf_of(1)) as server:
        url = server.url
        assert asyncio.run(read(url)) == "text of 0"
        server.stop()
        with pytest.raises(ExceptionGroup) as refused:
            asyncio.run(read(url))
        assert refused.group_contains(httpx2.ConnectError) or refused.group_contains(MCPError)
        server.start()
        assert asyncio.run(read(url)) == "text of 0"
        assert server.url == url


def test_a_held_server_answers_when_it_is_let_go() -> None:
    """A request that arrives while the server is held is counted at once and answered later."""

    async def body(server: servers.Running) -> None:
        async with clients.sdk_pinned(server.url) as reader:
            with server.held():
                asking = asyncio.create_task(reader.read("file:///0"))
                await server.reached("resources/read")
                assert not asking.done()
            await asking

    with servers.running(servers.shelf_of(1)) as server:
        asyncio.run(body(server))


def test_what_a_server_does_may_depend_on_the_request() -> None:
    """A function on the shelf sees the parameters and the header fields, and gives its own hint."""

    def whose(params: ReadResourceRequestParams, headers: Mapping[str, str]) -> ReadResourceResult:
        content = TextResourceContents(uri=params.uri, text=headers["authorization"])
        return ReadResourceResult(contents=[content], ttl_ms=5, cache_scope="private")

    async def body(url: str) -> ReadResourceResult:
        async with clients.fast(url, {"Authorization": "Bearer a"}) as reader:
            return await reader.read("whose://this")

    with servers.running(servers.Shelf({"whose://this": whose})) as server:
        result = asyncio.run(body(server.url))
    assert getattr(result.contents[0], "text", "") == "Bearer a"
    assert (result.ttl_ms, result.cache_scope) == (5, "private")
