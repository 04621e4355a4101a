"""Every client of every era, before every kind of upstream: each lists, reads and completes all there is.

One federator stands before all upstreams at once.  What a client must find is what the SDK's own client finds
at the upstream itself, or, where the upstream is none that speaks MCP, what was put there.
"""

import asyncio
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, TextResourceContents

from mcp_federator.protocol.vocabulary import LEGACY
from tests.instruments import clients, legacy
from tests.instruments.clients import MODERN, Reader
from tests.instruments.processes import python
from tests.instruments.servers import Shelf, lowlevel, running

ROOT = Path(__file__).parents[1]
OLD = LEGACY[0]
SHELF = Shelf(
    {
        **{f"file:///{n}.txt": f"text of {n}" for n in range(5)},
        "urn:isbn:1": "a book",
        "x://h/b": b"\x00\xff",
    },
    templates=["data://{id}{?format}"],
    completions={"data://{id}{?format}": {"id": ["one", "two", "ü"]}},
    page_size=3,
)
FILES = {"a.txt": b"text of a", "deep/c.bin": b"\x00\xff", "deep/er/b%20b.md": "# ü".encode()}
PEOPLE = {
    "people://design/Ada%20Byron": "Ada Byron works on the engine.",
    "people://design/Bo%20Ek": "Bo Ek works on its drawings.",
    "people://sales/Zo%C3%AB%20%C3%96lund": "Zoë Ölund works in the north.",
}

Contents = list[tuple[str, str | bytes]]


class Found(NamedTuple):
    """What somebody finds: URIs and templates in order, contents by URI, completions by template.

    The completions are of the template's first variable; none where the server completes nothing.
    """

    resources: list[str]
    templates: list[str]
    reads: dict[str, Contents]
    completions: dict[str, list[str]]

    def of(self, prefix: str) -> "Found":
        """What of it stands under a prefix."""
        return Found(
            [uri for uri in self.resources if uri.startswith(prefix)],
            [text for text in self.templates if text.startswith(prefix)],
            {uri: contents for uri, contents in self.reads.items() if uri.startswith(prefix)},
            {text: values for text, values in self.completions.items() if text.startswith(prefix)},
        )

    def under(self, prefix: str) -> "Found":
        """The same with a prefix before every URI."""
        return Found(
            [prefix + uri for uri in self.resources],
            [prefix + text for text in self.templates],
            {
                prefix + uri: [(prefix + part, body) for part, body in contents]
                for uri, contents in self.reads.items()
            },
            {prefix + text: values for text, values in self.completions.items()},
        )


class Kind(NamedTuple):
    """A kind of client: how it looks at a URL, and which version it must settle on, if it tells."""

    look: Callable[[str], tuple[str | None, Found]]
    version: str | None


class Street(NamedTuple):
    """The running federator, and what is at each upstream."""

    url: str
    admin: str
    there: Mapping[str, Callable[[], Found]]


async def whole(reader: Reader) -> Found:
    """Everything that a Python client finds."""
    resources = [str(item.uri) for item in await clients.resources(reader)]
    templates = [item.uri_template for item in await clients.templates(reader)]
    reads = {}
    for uri in resources:
        reads[uri] = [
            (str(one.uri), one.text if isinstance(one, TextResourceContents) else b64decode(one.blob))
            for one in (await reader.read(uri)).contents
        ]
    return Found(resources, templates, reads, {text: await suggested(reader, text) for text in templates})


async def suggested(reader: Reader, template: str) -> list[str]:
    """What a template's first variable may be; nothing where the server has no completions."""
    variable = re.search(r"\{\W?(\w+)", template)
    assert variable is not None
    # A client that is pinned to a version asks no server for its capabilities: the answer tells.
    try:
        return (await reader.complete(template, variable[1], "")).values
    except MCPError as problem:
        if problem.code != METHOD_NOT_FOUND:
            raise
        return []


def through(connect: Callable[..., Any], server: Any, **how: str) -> tuple[str | None, Found]:
    async def body() -> tuple[str, Found]:
        async with connect(server, **how) as reader:
            return reader.version, await whole(reader)

    return asyncio.run(body())


def reported(ask: Callable[[str], Any], url: str) -> tuple[str | None, Found]:
    """What a client in another environment found."""
    report = ask(url)
    reads = {
        uri: [(one["uri"], one["text"] if "text" in one else b64decode(one["blob"])) for one in contents]
        for uri, contents in report["reads"].items()
    }
    return report.get("version"), Found(
        report["resources"], report["templates"], reads, report["completions"]
    )


def over_stdio(command: Mapping[str, Any]) -> Found:
    """What the SDK's client finds at a server that it starts itself."""
    return through(clients.sdk_stdio, StdioServerParameters(**command), mode="legacy")[1]


def over_http(url: str) -> Found:
    return through(clients.sdk, url, mode="legacy")[1]


def in_directory() -> Found:
    reads: dict[str, Contents] = {}
    for name, body in FILES.items():
        uri = f"file:///{name.replace('%', '%25')}"
        reads[uri] = [(uri, body if b"\x00" in body else body.decode())]
    return Found(list(reads), [], reads, {})


def in_table() -> Found:
    reads: dict[str, Contents] = {uri: [(uri, text)] for uri, text in PEOPLE.items()}
    return Found(list(reads), ["people://{team}/{name}"], reads, {"people://{team}/{name}": []})


CLIENTS = {
    "mcp-auto": Kind(partial(through, clients.sdk), MODERN),
    "mcp-pinned": Kind(partial(through, clients.sdk_pinned), MODERN),
    "mcp-legacy": Kind(partial(through, clients.sdk, mode="legacy"), OLD),
    "fastmcp": Kind(partial(through, clients.fast), MODERN),
    "fastmcp-legacy": Kind(partial(through, clients.fast, mode="legacy"), OLD),
    "mcp-1.30": Kind(partial(reported, legacy.client_report), OLD),
    **{
        f"typescript-{mode}": Kind(partial(reported, partial(legacy.typescript_report, mode)), version)
        for mode, version in {"auto": MODERN, "legacy": OLD, "modern": MODERN, "sdk1": None}.items()
    },
}
ERAS = {
    "http": ("modern", MODERN, "streamable_http"),
    "oldhttp": ("legacy", OLD, "streamable_http"),
    "pipe": ("modern", MODERN, "stdio"),
    "oldpipe": ("legacy", OLD, "stdio"),
    "people": ("modern", "", "repository"),
    "folder": ("modern", "", "directory"),
    "everything": ("legacy", OLD, "stdio"),
    "memory": ("legacy", OLD, "stdio"),
}
"""Era, version and transport of each upstream, as `/status` must tell them."""
FROM_NPM = ("everything", "memory")

each_upstream = pytest.mark.parametrize(
    "upstream",
    [pytest.param(name, marks=legacy.needs_node if name in FROM_NPM else ()) for name in ERAS],
)


def from_npm(folder: Path) -> dict[str, dict[str, Any]]:
    """Servers that others wrote in TypeScript, where there is Node."""
    node = shutil.which("node")
    if node is None:
        return {}
    script = partial(legacy.package, "@modelcontextprotocol")
    memory = {"MEMORY_FILE_PATH": str(folder / "memory.json")}
    return {
        "everything": {"command": node, "args": [script("server-everything", "dist", "index.js"), "stdio"]},
        "memory": {"command": node, "args": [script("server-memory", "dist", "index.js")], "env": memory},
    }


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Street]:
    """A federator before all of them."""
    folder = tmp_path_factory.mktemp("every-era")
    for name, body in FILES.items():
        (folder / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "files" / name).write_bytes(body)
    with ExitStack() as stack:
        new = stack.enter_context(running(SHELF, lowlevel)).url
        old = stack.enter_context(legacy.http_server())
        script = str(ROOT / "tests/instruments/shelf_over_stdio.py")
        programs: dict[str, dict[str, Any]] = {
            "pipe": {"command": sys.executable, "args": [script]},
            "oldpipe": legacy.stdio_server(),
            **from_npm(folder),
        }
        upstreams = {
            "http": {"url": new},
            "oldhttp": {"url": old},
            "people": {"repository": "people:PeopleRepository", "options": {"table": "staff"}},
            "folder": {"directory": str(folder / "files")},
            **programs,
        }
        # Programs that still start are waited for: else they would stand on a later page, out of their order.
        given = {"upstreams": upstreams, "lists": {"soft_deadline": "30s"}}
        (folder / "federator.json").write_text(json.dumps(given))
        ports = ("--port", "0", "--admin-port", "0")
        serve = ("-m", "mcp_federator", "serve", "-c", str(folder / "federator.json"), *ports)
        environment = {"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}"}
        process = stack.enter_context(python(*serve, env=environment))
        said = process.wait_for(r"MCP endpoint (\S+) +admin (\S+)\n")
        yield Street(
            said[1],
            said[2],
            {
                "http": cache(partial(over_http, new)),
                "oldhttp": cache(partial(over_http, old)),
                "people": in_table,
                "folder": in_directory,
                **{name: cache(partial(over_stdio, command)) for name, command in programs.items()},
            },
        )


Look = Callable[[str], Found]


def attempt(url: str, client: str) -> tuple[str | None, Found | Exception]:
    try:
        return CLIENTS[client].look(url)
    except Exception as problem:  # noqa: BLE001 - told to each test that asks
        return None, problem


@pytest.fixture(scope="module")
def look(street: Street) -> Look:
    """What a client finds; it looks once, at everything, also where that fails."""
    looked = cache(partial(attempt, street.url))

    def found(client: str) -> Found:
        version, it = looked(client)
        if isinstance(it, Exception):
            raise it
        assert version == CLIENTS[client].version
        return it

    return found


@each_upstream
@pytest.mark.parametrize(
    "client",
    [
        pytest.param(name, marks=legacy.needs_node if name.startswith("typescript") else ())
        for name in CLIENTS
    ],
)
def test_everyone_finds_all_that_is_there(client: str, upstream: str, street: Street, look: Look) -> None:
    """Resources and templates in the same order, the same contents and completions, under the prefix."""
    there = street.there[upstream]()
    assert len(there.resources) >= 1
    assert look(client).of(f"{upstream}+") == there.under(f"{upstream}+")


@pytest.mark.parametrize("client", ["mcp-auto", "mcp-legacy"])
def test_nothing_else_is_found(client: str, street: Street, look: Look) -> None:
    """All that is listed is of one of the upstreams, each in its turn."""
    found = look(client)
    assert sum(len(found.of(f"{name}+").resources) for name in street.there) == len(found.resources)


@each_upstream
def test_status_tells_what_each_is(upstream: str, street: Street) -> None:
    """Era, version and transport, each as it is."""
    with urllib.request.urlopen(f"{street.admin}/status", timeout=10) as answer:  # noqa: S310 - our own port
        told = {each["name"]: each for each in json.load(answer)["upstreams"]}
    one = told[upstream]
    assert (one["era"], one["version"], one["transport"]) == ERAS[upstream]
    assert one["up"]


@pytest.mark.parametrize("era", ["legacy", "auto", "modern"])
@legacy.needs_node
def test_the_inspector_lists_and_reads(era: str, street: Street, look: Look) -> None:
    """Its command line, in each of its eras."""

    def inspect(*arguments: str) -> Any:
        launcher = legacy.package("@modelcontextprotocol", "inspector", "clients/launcher/build/index.js")
        command = ["node", launcher, "--cli", "--server-url", street.url, "--transport", "http"]
        done = subprocess.run(  # noqa: S603 - a program of the test's own
            [*command, "--protocol-era", era, *arguments],
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)

    found = look("mcp-auto")
    listed = inspect("--method", "resources/list")["resources"]
    assert [one["uri"] for one in listed] == found.resources
    [content] = inspect("--method", "resources/read", "--uri", "oldpipe+file:///notes/7.md")["contents"]
    assert (content["uri"], content["text"]) == ("oldpipe+file:///notes/7.md", "note 7")
