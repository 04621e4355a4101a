import ast
import importlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_federator import cli, client, config

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")],
    key=str,
)
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """The fenced blocks in one language: (where, text)."""
    for page in PAGES:
        for number, (said, text) in enumerate(_FENCE.findall(page.read_text())):
            if said == language:
                yield f"{page.relative_to(ROOT)} {number}", text


def commands() -> Iterator[tuple[str, str]]:
    for where, text in blocks("sh"):
        for line in text.splitlines():
            if re.match(r"(\S*/)?mcp-federator ", line):
                yield where, line


def named(pairs: Iterator[tuple[str, str]]) -> list[object]:
    return [pytest.param(text, id=where) for where, text in pairs]


@pytest.mark.parametrize("line", named(commands()))
def test_each_command_is_one_the_program_takes(line: str) -> None:
    """What the documentation says to type is understood by the command line."""
    words, _ = cli._split(shlex.split(line, comments=True)[1:])
    cli._parser().parse_args(words)


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_somewhere(page: Path) -> None:
    """Links inside the project name files that exist."""
    for target, _ in _LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_each_target_of_make_is_told() -> None:
    """`make help` and CONTRIBUTING know every target."""
    made = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)) - {"help", "clean"}
    told = set(re.findall(r"`make ([a-z]+)`", (ROOT / "CONTRIBUTING.md").read_text()))
    assert made - {"demo"} <= told
