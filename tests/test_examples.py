"""The servers of examples/, each by itself, as the official SDK's client sees them."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents, TextResourceContents

from mcp_federator.client import Client
from tests.instruments import clients
from tests.instruments.processes import Child, python

EXAMPLES = Path(__file__).parent.parent / "examples"


@contextmanager
def example(name: str) -> Iterator[tuple[Child, str]]:
    """One of the servers, as its own process, and its URL."""
    with python(str(EXAMPLES / f"{name}.py"), "--port", "0") as process:
        yield process, process.wait_for(r"listens on (\S+)\n")[1]


def ask(
    name: str, questions: Callable[[clients.Reader], Awaitable[None]], version: str = clients.MODERN
) -> None:
    async def body(url: str) -> None:
        async with clients.sdk(url) as reader:
            assert reader.version == version
            await questions(reader)

    with example(name) as (_, url):
        asyncio.run(body(url))


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("handbook", signal.SIGTERM),
        ("desk", signal.SIGINT),
        ("cabinet", signal.SIGTERM),
        ("ledger", signal.SIGINT),
        ("ledger", signal.SIGTERM),
    ],
    ids=["handbook-SIGTERM", "desk-SIGINT", "cabinet-SIGTERM", "ledger-SIGINT", "ledger-SIGTERM"],
)
def test_a_server_says_one_line_and_ends_cleanly(name: str, number: signal.Signals) -> None:
    """A signal ends the process with 0, and it has said nothing but where it listened."""
    with example(name) as (process, url):
        process.signal(number)
        assert process.ended() == 0
        assert process.output == f"{name} listens on {url}\n"


def test_a_taken_port_is_an_error() -> None:
    """A server whose port is taken ends with an error code and names the port."""
    with example("handbook") as (_, url):
        port = url.split(":")[2].removesuffix("/mcp")
        with python(str(EXAMPLES / "desk.py"), "--port", port) as second:
            assert second.ended() != 0
            assert port in second.output


def test_the_handbook_has_five_public_pages() -> None:
    """Fifty articles on five pages, public, good for a minute; one template that fits them all."""

    async def questions(reader: clients.Reader) -> None:
        sizes, cursor = [], None
        while True:
            page = await reader.page(cursor)
            assert (page.ttl_ms, page.cache_scope) == (60_000, "public")
            sizes.append(len(page.resources))
            cursor = page.next_cursor
            if cursor is None:
                break
        assert sizes == [10, 10, 10, 10, 10]
        assert [each.uri_template for each in await clients.templates(reader)] == [
            "file:///handbook/{chapter}/{topic}.md"
        ]
        article = await reader.read("file:///handbook/travel/costs.md")
        assert (article.ttl_ms, article.cache_scope) == (60_000, "public")
        with pytest.raises(MCPError, match="cursor"):
            await reader.page("no cursor of ours")
        with pytest.raises(MCPError) as unknown:
            await reader.read("file:///handbook/nothing.md")
        assert (unknown.value.code, unknown.value.data) == (-32602, {"uri": "file:///handbook/nothing.md"})

    ask("handbook", questions)


def test_the_desk_changes_with_every_look() -> None:
    """Two reads of the same URI differ; they are private and good for ten seconds."""

    async def questions(reader: clients.Reader) -> None:
        first, second = [await reader.read("desk://clock") for _ in range(2)]
        assert first.contents != second.contents
        assert (first.ttl_ms, first.cache_scope) == (10_000, "private")
        note = await reader.read("desk://notes/shopping")
        assert isinstance(note.contents[0], TextResourceContents)
        assert note.contents[0].text.startswith("shopping: look number")

    ask("desk", questions)


def test_everything_in_the_cabinet_can_be_read() -> None:
    """Every listed URI reads back under its own name, the folder as what is in it; so do templates' URIs."""

    async def questions(reader: clients.Reader) -> None:
        listed = await clients.resources(reader)
        uris = [each.uri for each in listed]
        assert {"urn:isbn:0451450523", "memo:insights", "file:///handbook/travel/costs.md"} <= set(uris)
        for uri in uris:
            contents = (await reader.read(uri)).contents
            inside = [each for each in uris if uri.endswith("/") and each.startswith(uri) and each != uri]
            assert [each.uri for each in contents] == (inside or [uri])
        [photo] = (await reader.read("cabinet:photo?size=1#thumb")).contents
        assert isinstance(photo, BlobResourceContents)
        assert photo.mime_type == "image/png"
        assert len(await clients.templates(reader)) == 3
        for uri in ("memo:anything", "repo://me/a/b/c.py?ref=main", "search:/one/two?q=x&limit=3"):
            [content] = (await reader.read(uri)).contents
            assert content.uri == uri

    ask("cabinet", questions)


def test_the_ledger_is_of_2025() -> None:
    """A session, two pages, no hints, and the error code of that time for what is not there."""

    async def questions(reader: clients.Reader) -> None:
        page = await reader.page()
        assert (len(page.resources), page.next_cursor) == (4, "4")
        assert page.model_fields_set.isdisjoint({"ttl_ms", "cache_scope"})
        uris = [each.uri for each in await clients.resources(reader)]
        assert uris == [f"ledger://2026/{month:02}" for month in range(1, 7)]
        for uri in uris:
            [content] = (await reader.read(uri)).contents
            assert content.uri == uri
        assert [each.uri_template for each in await clients.templates(reader)] == ["ledger://{year}/{month}"]
        with pytest.raises(MCPError, match="cursor"):
            await reader.page("no cursor of ours")
        with pytest.raises(MCPError) as unknown:
            await reader.read("ledger://2026/13")
        assert (unknown.value.code, unknown.value.data) == (-32002, {"uri": "ledger://2026/13"})

    ask("ledger", questions, version="2025-11-25")


def test_the_client_shows_all_it_can_do() -> None:
    """Of a server that it starts itself, and of one at a URL."""
    with python(str(EXAMPLES / "client.py")) as process:
        assert process.ended() == 0
        assert process.output.splitlines() == [
            "notebook 1.0 speaks 2025-11-25 (legacy) over stdio",
            "the first page has 4, to be kept 0 ms, private",
            "all pages have 7",
            "template note:{day}",
            "note:monday: 17 bytes",
            "note:tuesday: 36 bytes",
            "note:wednesday: 28 bytes",
            "nowhere:at/all: -32602",
        ]
    with example("handbook") as (_, url), python(str(EXAMPLES / "client.py"), url) as process:
        assert process.ended() == 0
        assert "the first page has 10, to be kept 60000 ms, public\nall pages have 50\n" in process.output


def test_the_configuration_of_a_desktop_client_serves() -> None:
    """As it stands, from anywhere; what is switched off is told."""
    ports = ("--port", "0", "--admin-port", "0")
    with python("-m", "mcp_federator", "serve", "-c", str(EXAMPLES / "mcp-servers.json"), *ports) as process:
        url = process.wait_for(r"MCP endpoint (\S+) ")[1]

        async def ask() -> None:
            async with Client(url) as client:
                resources = await client.list_all()
                assert resources[0].uri == "notebook+note:monday"
                assert len(resources) == 7
                [content] = await client.read("notebook+note:friday")
                assert content.text == "Sharpen the saw."

        asyncio.run(ask())
        process.wait_for("left out, as it is switched off: mcpServers.handbook")
