import ast
import asyncio
import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_federator import cli, client, config
from mcp_federator.endpoint import wire
from mcp_federator.federation import rewrite
from mcp_federator.protocol import legacy, sse
from mcp_federator.protocol.text import MAX_VALUES
from mcp_federator.upstream import discovery

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")],
    key=str,
)
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
_COMMAND = re.compile(r"^(?:\$ )?(?:[A-Z]+=\S+ )?((?:\S*/)?mcp-federator .*)$", re.MULTILINE)
_SAID = re.compile(r"`((?:[A-Z]+=\S+ )?mcp-federator [^`]+)`")


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """The fenced blocks in one language: (where, text)."""
    for page in PAGES:
        for number, (said, text) in enumerate(_FENCE.findall(page.read_text())):
            if said == language:
                yield f"{page.relative_to(ROOT)} {number}", text


def commands() -> Iterator[tuple[str, str]]:
    """What is said to be typed: on a line of its own in a block, or within a sentence."""
    for language in ("sh", ""):
        for where, text in blocks(language):
            yield from ((where, line) for line in _COMMAND.findall(text))
    for page in PAGES:
        for said in _SAID.findall(_FENCE.sub("", page.read_text())):
            yield f"{page.relative_to(ROOT)} said", said[said.index("mcp-federator") :]


def scripts() -> Iterator[tuple[str, str]]:
    for where, text in blocks("sh"):
        yield from ((where, line) for line in re.findall(r"^python3? (examples/.*)$", text, re.MULTILINE))


def named(pairs: Iterator[tuple[str, str]]) -> list[object]:
    return [pytest.param(text, id=where) for where, text in pairs]


@pytest.mark.parametrize("line", named(commands()))
def test_each_command_is_one_the_program_takes(line: str) -> None:
    """What the documentation says to type is understood by the command line."""
    own, _ = cli._split(shlex.split(line, comments=True)[1:])
    cli._parser().parse_args(own)


@pytest.mark.parametrize("line", named(scripts()))
def test_each_script_is_there(line: str) -> None:
    """So is every option of it that the documentation says to give."""
    script, *words = shlex.split(line)
    text = (ROOT / script).read_text() + (ROOT / "examples" / "serving.py").read_text()
    assert all(f'"{word}"' in text for word in words if word.startswith("--"))


@pytest.mark.parametrize("text", named(blocks("yaml")))
def test_each_configuration_can_be_used(text: str, tmp_path: Path) -> None:
    """Every configuration shown is accepted as it stands, given the variables and files it names."""
    for name in re.findall(r"\$\{file:([^}]+)\}", text):
        secret = tmp_path / Path(name).name
        secret.write_text("a secret of some length\n")
        text = text.replace(name, str(secret))
    for name in re.findall(r"^ *directory: (\S+)$", text, re.MULTILINE):
        (tmp_path / name).mkdir(parents=True)
    # A variable with a default shows a value of its kind; the others are secrets.
    environ = dict.fromkeys(re.findall(r"\$\{([A-Z_]+)\}", text), "a secret of some length")
    assert config.parse(text, source="docs", directory=tmp_path, environ=environ).files is not None


@pytest.mark.parametrize("text", named(blocks("json")))
def test_each_block_of_servers_can_be_used(text: str, tmp_path: Path) -> None:
    """So is every configuration of a desktop client that is shown."""
    environ = dict.fromkeys(re.findall(r"\$\{(?:env:)?([A-Z_]+)\}", text), "a secret")
    read = config.parse(text, source="docs.json", directory=tmp_path, environ=environ)
    assert read.upstreams


@pytest.mark.parametrize("text", named(blocks("python")))
def test_each_piece_of_python_can_be_read(text: str) -> None:
    """What the documentation says to write is Python, and the names it imports of ours are there."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mcp_federator"):
            there = importlib.import_module(node.module or "")
            assert all(hasattr(there, alias.name) for alias in node.names)


def test_the_client_is_told_whole() -> None:
    """docs/client.md has every public name of the client, every method, and every attribute of a result."""
    told = (ROOT / "docs" / "client.md").read_text()
    names = {
        *client.__all__,
        *(name for name in vars(client.Reader) if not name.startswith("_")),
        *(
            name
            for result in (client.Page, client.Resource, client.ReadResult, client.Content, client.Completion)
            for name in result.__struct_fields__
        ),
    }
    assert {name for name in names if not re.search(rf"`{name}\b", told)} == set()


HINTED = [text for where, text in blocks("python") if where.startswith("docs/configuration.md")]


@pytest.mark.parametrize("text", HINTED, ids=["mcp", "fastmcp"])
@pytest.mark.parametrize("told", [True, False], ids=["told", "not told"])
def test_a_server_says_how_long_its_copies_live(text: str, told: bool, tmp_path: Path) -> None:
    """Told as is shown here, it says a minute; told nothing it says 0, and `default_ttl` stays out."""
    made = text if told else re.sub(r'(= \w+)\(\s*"docs",.*\)', r'\1("docs")', text, flags=re.DOTALL)
    assert (made == text) is told
    script = tmp_path / "server.py"
    script.write_text(f'{made}\n@server.resource("x://a")\ndef a() -> str:\n    return "a"\n\nserver.run()\n')

    async def ask() -> None:
        command = [sys.executable, str(script)]
        patience = {"timeout": "60s", "probe_timeout": "60s"}
        async with client.Client(command, **patience, cache={"default_ttl": "30s"}) as asking:
            for answer in (await asking.list_page(), await asking.read_result("x://a")):
                assert (answer.ttl_ms, answer.cache_scope) == ((60_000, "public") if told else (0, "private"))

    asyncio.run(ask())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_somewhere(page: Path) -> None:
    """Links inside the project name files and headings that exist."""
    for target, anchor in _LINK.findall(page.read_text()):
        if "://" in target:
            continue
        there = page.parent / target if target else page
        assert there.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", there.read_text(), re.MULTILINE)
            assert anchor[1:] in {re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_metric_that_is_named_is_there(page: Path) -> None:
    """Whatever is written like a metric of ours is one, the queries' included."""
    known = set(
        re.findall(r"^\| `(mcp_federator_\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE)
    )
    series = {f"{name}{end}" for name in known for end in ("", "_bucket", "_count", "_sum")}
    assert set(re.findall(r"\bmcp_federator_\w+", page.read_text())) <= series


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_key_that_is_named_is_there(page: Path) -> None:
    """Whatever is written like the path of a key is one."""
    keys = config.schema()["properties"]
    one = keys["upstreams"]["additionalProperties"]["properties"]
    sections = {name: {*keys[name]["properties"]} for name in ("server", "lists", "cache")}
    # Of an upstream, `cache.` alone is enough where it is clear whose.
    sections["cache"] |= {*one["cache"]["properties"]}
    sections["breaker"], sections["tls"] = {*one["breaker"]["properties"]}, {*one["tls"]["properties"]}
    named = re.findall(r"`(server|lists|cache|breaker|tls)\.([a-z_]+)\b", page.read_text())
    assert {f"{section}.{key}" for section, key in named if key not in sections[section]} == set()


_HEAD_KIB, _FIELD_KIB = wire.MAX_HEAD_BYTES >> 10, wire.MAX_FIELD_BYTES >> 10
BOUNDS = [
    ("architecture", f"| connections of a listener | {wire.MAX_CONNECTIONS:,} |"),
    ("architecture", f"| {_HEAD_KIB} KiB, {_FIELD_KIB} KiB a line, {wire.MAX_FIELDS} fields |"),
    ("architecture", f"| {_HEAD_KIB} KiB at a stretch, and {wire.MAX_FIELDS} trailer fields |"),
    ("operations", f"each listener takes at most {wire.MAX_CONNECTIONS:,} connections"),
    ("operations", f"`resources: more than {rewrite.MAX_ITEMS} items`"),
    ("operations", f"`more than {rewrite.MAX_ITEMS} resources on one page`"),
    ("operations", f"`the text holds more than {MAX_VALUES} values`"),
    ("operations", f"`more than {config.Upstream().max_response_bytes:d} bytes`"),
    ("operations", f"`the stream has more than {sse.MAX_LINES} lines`"),
    ("operations", f"`a batch of more than {legacy._MAX_MESSAGES} messages`"),
    ("operations", f"`resources: more than {rewrite.MAX_REFUSED} items have not the shape of one`"),
    ("operations", f"is believed for {discovery.DOUBT:g} seconds"),
]


@pytest.mark.parametrize(("page", "said"), BOUNDS)
def test_each_bound_is_told_as_it_is(page: str, said: str) -> None:
    """Where the documentation names a number of the program, it is that number."""
    assert said.lower() in (ROOT / "docs" / f"{page}.md").read_text().lower()


def test_each_target_of_make_is_told() -> None:
    """`make help` and CONTRIBUTING know every target."""
    made = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)) - {"help", "clean"}
    told = set(re.findall(r"`make ([a-z]+)`", (ROOT / "CONTRIBUTING.md").read_text()))
    assert made - {"demo"} <= told
