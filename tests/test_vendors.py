"""What import-linter cannot tell apart: the two halves of aiohttp, each at home on one side of the house."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = sorted(Path("mcp_federator").rglob("*.py"))
SERVER_SIDE = ("mcp_federator/endpoint/", "mcp_federator/app.py")
CLIENT_SIDE = ("mcp_federator/upstream/",)
SHARED = {"aiohttp.hdrs", "aiohttp.http", "aiohttp.http_exceptions", "aiohttp.abc", "aiohttp.streams"}
"""Words of HTTP that both halves use."""


def imported(path: Path) -> Iterator[str]:
    """The names a module imports of aiohttp, in full."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{name.name}" for name in node.names)


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_each_half_of_aiohttp_lives_on_one_side(path: Path) -> None:
    """The server in endpoint/ and app, the client in upstream/, and nothing of it anywhere else."""
    names = [name for name in imported(path) if name.partition(".")[0] == "aiohttp"]
    own = [name for name in names if SHARED.isdisjoint((name, name.rpartition(".")[0]))]
    halves = {"server" if name.startswith("aiohttp.web") else "client" for name in own}
    homes = {"server": SERVER_SIDE, "client": CLIENT_SIDE}
    assert [half for half in halves if not str(path).startswith(homes[half])] == []
