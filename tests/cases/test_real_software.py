"""Real servers behind the federator, real clients before it: everything that is listed is read back as it is.

The servers are mcp's two and fastmcp's; the clients are theirs, with and without `server/discover`.  Neither
knows that the other is not there.
"""

import base64
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client.caching import CacheConfig
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents, Resource, TextResourceContents
from mcp_types.methods import validate_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import AnyUrl, ValidationError

from mcp_federator.federation.template import expand
from tests.instruments import clients, servers
from tests.instruments.clients import Connect
from tests.instruments.fronted import run
from tests.instruments.house import MODERN, House, Reply, house
from tests.instruments.servers import PRIVATE, Running, Shelf, running
from tests.instruments.wire import Wire, page, result

READ = "resources/read"
LIST = "resources/list"
TEMPLATES = "resources/templates/list"

AWKWARD = [
    "file:///a b.txt",
    "file:///café/x",
    "file:///a/../b",
    "http://Ex.com",
    "mem://A_b/c",
    "x://h/A%2fb",
    "x://h/%7Ea",
    "query://h?",
    "fragment://h#",
    "foo:///a",
    "memo:insights",
    "urn:isbn:0451450523",
    "data:text/plain,hi",
    "mailto:a@b",
    "FILE:///A",
    "http://ex.org:80/",
    "https://ex.net",
    "x://h//a///b",
    "x://h/a/.",
    "x://h/100%/%zz",
    "x://h/a+b?c+d",
    "x://h/cafe\u0301",
    "http://café.example/",
    "x://h/\U0001f600",
    "behind://h ",
    "x://h/\"'<>",
    "x://[::1]:1/a",
    "x://u:p@h/a",
    "low+x://looks-public",
    "ui://app/a b",
]
"""No two of one normal form, which nobody could tell apart once a URL class had them."""
NO_URLS = ["users/me", "=?base64?eA==?=", "x://h\\a\\b", " before://h"]
"""A client with a URL class refuses to ask for these, whichever server has them."""

MANY: servers.Contents = [
    TextResourceContents(uri="file:///dir/a", text="see file:///dir/b"),
    BlobResourceContents(uri="file:///dir/b", blob="AP8=", mime_type="application/gzip"),
    BlobResourceContents(uri="file:///dir/b", blob=""),
]
DESCRIBED = Resource.model_validate(
    {
        "uri": "x://described",
        "name": "n",
        "title": "t",
        "description": "",
        "mimeType": "text/plain",
        "size": 2**53 + 1,
        "annotations": {
            "audience": ["user"],
            "priority": 0.8,
            "lastModified": "2025-01-12T15:00:58Z",
        },
        "icons": [{"src": "https://h/i.png", "sizes": ["48x48"], "theme": "dark"}],
        "_meta": {"com.example/x": {"a": [None, 1.5]}},
    }
)


def bodies(uris: list[str]) -> dict[str, Any]:
    """Texts for most, a blob for every fifth."""
    return {uri: f"text of {uri}" if at % 5 else f"blob of {uri}".encode() for at, uri in enumerate(uris)}


SHELVES = {
    "low": Shelf(
        {**bodies(AWKWARD + NO_URLS), "file:///dir": MANY, "x://described": "text of it"},
        resources=[
            *(Resource(uri=uri, name=uri) for uri in [*AWKWARD, *NO_URLS, "file:///dir"]),
            DESCRIBED,
        ],
        templates=["repo://{owner}/{+path}{?ref,q}", "data://{id}{?format}"],
        page_size=7,
    ),
    "server": Shelf(
        bodies(AWKWARD + NO_URLS), templates=["repo://{owner}/{+path}{?ref,q}", "data://{id}{?format}"]
    ),
    "fast": Shelf(
        bodies(AWKWARD),
        templates=["repo://{owner}/{path}{?ref,q}", "data://{id}{?format}"],
        page_size=7,
    ),
}
MAKES = {"low": servers.lowlevel, "server": servers.mcpserver, "fast": servers.fastmcp}
Servers = dict[str, Running]


@pytest.fixture(scope="module")
def started() -> Iterator[Servers]:
    """The three servers, running."""
    with (
        running(SHELVES["low"], MAKES["low"]) as low,
        running(SHELVES["server"], MAKES["server"]) as server,
        running(SHELVES["fast"], MAKES["fast"]) as fast,
    ):
        yield {"low": low, "server": server, "fast": fast}


@pytest.fixture
def upstreams(started: Servers) -> Servers:
    """The same, with nothing written down yet."""
    for server in started.values():
        server.calls.clear()
    return started


@asynccontextmanager
async def before(upstreams: Servers, **sections: Any) -> AsyncIterator[House]:
    async with house({name: server.url for name, server in upstreams.items()}, **sections) as it:
        yield it


def as_listed(name: str, uri: str) -> str:
    """The native URI as the server itself lists it: fastmcp keeps URIs in a URL class."""
    return str(AnyUrl(uri)) if name == "fast" else uri


def public(name: str, native: str) -> str:
    return native.replace("ui://", f"ui://{name}/", 1) if native.startswith("ui://") else f"{name}+{native}"


def told(contents: list[TextResourceContents | BlobResourceContents]) -> list[tuple[str, str | bytes]]:
    """URI and body of contents."""
    return [
        (one.uri, one.text if isinstance(one, TextResourceContents) else base64.b64decode(one.blob))
        for one in contents
    ]


EXPECTED = {
    public(name, as_listed(name, uri)): [(public(name, as_listed(name, uri)), body)]
    if not isinstance(body, list)
    else [(f"{name}+{uri}", body) for uri, body in told(body)]
    for name, shelf in SHELVES.items()
    for uri, body in shelf.bodies.items()
}
"""All there is, by public URI."""

each_client = pytest.mark.parametrize("connect", clients.KINDS.values(), ids=clients.KINDS)


@each_client
def test_every_resource_is_listed_and_read(connect: Connect, upstreams: Servers) -> None:
    """All pages of all servers; each listed URI gives its own body, however the client writes it."""
    normalises = connect in (clients.fast, clients.fast_pinned)

    async def check() -> None:
        async with before(upstreams) as it, connect(it.url) as reader:
            assert reader.version == MODERN
            listed = [item.uri for item in await clients.resources(reader)]
            assert sorted(listed) == sorted(EXPECTED)
            for name in upstreams:
                mine = [public(name, as_listed(name, uri)) for uri in SHELVES[name].bodies]
                assert [uri for uri in listed if uri in mine] == mine
            asked = [uri for uri in listed if not (normalises and uri.endswith(tuple(NO_URLS)))]
            for uri in asked:
                assert told((await reader.read(uri)).contents) == EXPECTED[uri]
            for name, server in upstreams.items():
                reached = [call.params["uri"] for call in server.calls.of(READ)]
                mine = [as_listed(name, uri) for uri in SHELVES[name].bodies]
                wanted = [uri for uri in mine if public(name, uri) in asked]
                if normalises:
                    assert [uri for uri in reached if uri in wanted] == wanted
                else:
                    assert reached == wanted

    run(check())


@each_client
def test_every_template_is_listed_and_expands(connect: Connect, upstreams: Servers) -> None:
    """The public template, expanded by the client, names a resource of the server."""
    values = {"owner": "o", "path": "a/b.md", "ref": "main", "q": "1", "id": "123", "format": "json"}

    async def check() -> None:
        async with before(upstreams) as it, connect(it.url) as reader:
            listed = [item.uri_template for item in await clients.templates(reader)]
            assert sorted(listed) == sorted(
                f"{name}+{text}" for name, shelf in SHELVES.items() for text in shelf.templates
            )
            for template in listed:
                name, _, text = template.partition("+")
                asked = expand(template, values)
                assert asked == f"{name}+{expand(text, values)}"
                ((uri, body),) = told((await reader.read(asked)).contents)
                assert uri == asked
                meant = asked.removeprefix("low+") if name == "low" else None
                assert body == meant or json.loads(body).items() <= values.items()
            for name, server in upstreams.items():
                assert {call.params["uri"] for call in server.calls.of(READ)} == {
                    expand(text, values) for text in SHELVES[name].templates
                }

    run(check())


@each_client
def test_what_one_client_read_another_is_given(connect: Connect, upstreams: Servers) -> None:
    """Public copies serve all, and the servers are asked once."""

    async def check() -> None:
        async with before(upstreams) as it:
            async with clients.sdk(it.url) as reader:
                await clients.resources(reader)
                for uri in EXPECTED:
                    await reader.read(uri)
            for server in upstreams.values():
                server.calls.clear()
            async with connect(it.url) as reader:
                for uri in [item.uri for item in await clients.resources(reader)]:
                    if uri.endswith("A%2fb"):  # which no client writes otherwise
                        assert told((await reader.read(uri)).contents) == EXPECTED[uri]
            assert [list(server.calls) for server in upstreams.values()] == [[], [], []]

    run(check())


@each_client
def test_an_item_is_what_its_server_says(connect: Connect, upstreams: Servers) -> None:
    """Title, icons, annotations, size and metadata come through; only the URI is another."""

    async def check() -> None:
        async with before(upstreams) as it, connect(it.url) as reader:
            (shown,) = [item for item in await clients.resources(reader) if item.uri == "low+x://described"]
            assert shown == DESCRIBED.model_copy(update={"uri": "low+x://described"})

    run(check())


@each_client
@pytest.mark.parametrize("uri", ["low+x://nothing", "server+x://nothing", "fast+x://nothing", "nobody+x://a"])
def test_what_is_not_there_is_not_found(connect: Connect, uri: str, upstreams: Servers) -> None:
    """-32602, with the URI that the client asked for."""

    async def check() -> None:
        async with before(upstreams) as it, connect(it.url) as reader:
            with pytest.raises(MCPError) as error:
                await reader.read(uri)
            assert error.value.error.code == -32602
            assert error.value.error.data == {"uri": uri}

    run(check())


@each_client
def test_a_cursor_of_no_list_is_refused(connect: Connect, upstreams: Servers) -> None:
    """Clients see -32602."""

    async def check() -> None:
        async with before(upstreams) as it, connect(it.url) as reader:
            with pytest.raises(MCPError) as error:
                await reader.page("bogus")
            assert error.value.error.code == -32602

    run(check())


@each_client
def test_one_server_down_costs_its_own_resources(connect: Connect) -> None:
    """While it is down the others are listed and read, its own reads fail as such, and then it is back."""
    one, other = servers.shelf_of(3, list_hint=servers.NEVER), servers.shelf_of(3, list_hint=servers.NEVER)

    async def check(up: Running, down: Running) -> None:
        async with house({"up": up.url, "down": down.url}) as it, connect(it.url) as reader:
            assert len(await clients.resources(reader)) == 6
            down.stop()
            page = await reader.page()
            assert [item.uri for item in page.resources] == [f"up+file:///{n}" for n in range(3)]
            assert (page.ttl_ms, page.next_cursor) == (0, None)
            missing = [{"upstream": "down", "reason": "unreachable"}]
            assert (page.meta or {})["dev.mcp-federator/incomplete"] == missing
            with pytest.raises(MCPError) as error:
                await reader.read("down+file:///0")
            assert error.value.error.code == -32603
            assert error.value.error.data == {"upstream": "down", "reason": "unreachable"}
            down.start()
            assert len(await clients.resources(reader)) == 6
            assert told((await reader.read("down+file:///0")).contents)[0][1] == "text of 0"

    with running(one) as up, running(other) as down:
        run(check(up, down))


ODD: list[Any] = [
    None,
    {"name": "no uri"},
    {"uri": "x://no-name"},
    {"uri": "x://title", "name": "n", "title": 5},
    {"uri": "x://size", "name": "n", "size": 0.5},
    {"uri": "x://icons", "name": "n", "icons": [{"sizes": ["any"]}]},
    {"uri": "x://annotations", "name": "n", "annotations": {"priority": 5}},
    {"uri": "x://meta", "name": "n", "_meta": []},
]
NULLS = {
    "title": None,
    "size": None,
    "icons": [{"src": "s", "theme": None}],
    "annotations": {"audience": None},
}


@each_client
def test_H13_a_strict_client_lists_what_is_good(connect: Connect) -> None:
    """Both refuse a whole page for one odd item of one server; so they never see it."""
    items = [*ODD, {"uri": "x://1", "name": "n", **NULLS}]
    odd = page() | {"resources": items}

    async def check() -> None:
        async with (
            Wire({LIST: result(odd)}) as one,
            Wire({LIST: result(page("x://2"))}) as other,
            house({"odd": one.url, "fine": other.url}) as it,
        ):
            async with connect(it.url) as reader:
                found = await clients.resources(reader)
                assert [item.uri for item in found] == ["odd+x://1", "fine+x://2"]
            async with connect(one.url) as reader:
                with pytest.raises((ValidationError, MCPError)):
                    await clients.resources(reader)

    run(check())


def test_the_sdks_own_cache_believes_our_hints(upstreams: Servers) -> None:
    """What we say of life and scope is such that a caching client need not ask twice."""

    async def check() -> None:
        async with before(upstreams) as it, clients.sdk(it.url, cache=CacheConfig()) as reader:
            for _ in range(3):
                await reader.read("server+x://h/A%2fb")
                await reader.page()
            assert await it.samples("mcp_federator_requests_total", method=READ) == 1
            assert await it.samples("mcp_federator_requests_total", method=LIST) == 1

    run(check())


@pytest.mark.parametrize("make", servers.KINDS.values(), ids=servers.KINDS)
def test_private_answers_are_private_to_the_client(make: servers.Make) -> None:
    """The scope of each server's hints comes through on lists, templates and reads."""
    shelf = servers.shelf_of(2, templates=["x://{a}"], list_hint=PRIVATE, read_hint=PRIVATE)

    async def check(server: Running) -> None:
        async with house({"alpha": server.url}) as it, clients.sdk(it.url) as reader:
            page = await reader.page()
            templates = await reader.template_page()
            read = await reader.read("alpha+file:///0")
            for result in (page, templates, read):
                assert result.cache_scope == "private"
                assert 0 < result.ttl_ms <= 60_000

    with running(shelf, make) as server:
        run(check(server))


def valid(reply: Reply, method: str) -> Any:
    """The result, which the official wire types of the version accept."""
    assert MODERN in MODERN_PROTOCOL_VERSIONS
    validate_server_result(method, MODERN, reply.result)
    return reply.result


def test_what_we_emit_is_valid(upstreams: Servers) -> None:
    """Discover, every page of both lists, and every read."""

    async def check() -> None:
        async with before(upstreams) as it:
            valid(await it.post("server/discover"), "server/discover")
            for method in (LIST, TEMPLATES):
                for page in await it.walk(method):
                    valid(page, method)
            for uri in EXPECTED:
                valid(await it.read(uri), READ)

    run(check())


def test_a_federator_is_a_server_like_any_other(upstreams: Servers) -> None:
    """Behind another federator it is listed and read whole."""

    async def check() -> None:
        async with (
            before(upstreams) as inner,
            house({"outer": inner.url}) as it,
            clients.sdk(it.url) as reader,
        ):
            listed = [item.uri for item in await clients.resources(reader)]
            assert sorted(listed) == sorted(public("outer", uri) for uri in EXPECTED)
            for uri in listed:
                ((_, body), *_) = told((await reader.read(uri)).contents)
                inner_uri = uri.replace("ui://outer/", "ui://") if uri.startswith("ui:") else uri[6:]
                assert body == EXPECTED[inner_uri][0][1]

    run(check())
