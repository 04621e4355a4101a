"""Peers that need software of their own: the SDK's legacy generation, and TypeScript.

`make test` sets both up: `.venv-legacy` with `mcp` 1.30, and `tests/node/node_modules` where there is Node.
Elsewhere `MCP_LEGACY_PYTHON` and `MCP_NODE_MODULES` say where they are.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.instruments.processes import child

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("MCP_LEGACY_PYTHON", str(ROOT / ".venv-legacy/bin/python"))
SERVER = str(ROOT / "tests/legacy/server.py")
CLIENT = str(ROOT / "tests/legacy/client.py")
NODE_FOLDER = ROOT / "tests/node"
NODE_MODULES = Path(os.environ.get("MCP_NODE_MODULES", NODE_FOLDER / "node_modules"))

needs_node = pytest.mark.skipif(
    shutil.which("node") is None, reason="there is no Node here, and this is about TypeScript software"
)

_TIMEOUT = 60


@contextmanager
def http_server() -> Iterator[str]:
    """A legacy server over streamable HTTP, and its URL."""
    with child(PYTHON, "-u", SERVER, "http", "0") as process:
        yield process.wait_for(r"listens on (\S+)")[1]


def stdio_server() -> dict[str, Any]:
    """The configuration of a legacy server over stdio."""
    return {"command": PYTHON, "args": [SERVER, "stdio"]}


def client_report(url: str) -> Any:
    """What the legacy client found at a server; see tests/legacy/client.py."""
    return _report([PYTHON, CLIENT, url])


def typescript_report(mode: str, url: str) -> Any:
    """What a TypeScript client found; see tests/node/client.mjs.  `mode`: auto, legacy, modern or sdk1."""
    return _report(["node", str(NODE_FOLDER / "client.mjs"), mode, url])


def package(name: str, *path: str) -> str:
    """A file of an npm package."""
    return str(NODE_MODULES.joinpath(name, *path))


def _report(command: list[str]) -> Any:
    done = subprocess.run(  # noqa: S603 - our own programs
        command, capture_output=True, text=True, timeout=_TIMEOUT, check=False, cwd=NODE_FOLDER
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # Not by `splitlines`: a text may hold characters that end a line only there.
    return json.loads(done.stdout.rstrip("\n").rpartition("\n")[2])
