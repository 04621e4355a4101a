"""A configuration from a few words, and the lines of a message."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from mcp_federator.config import Config, Upstream, parse
from mcp_federator.errors import ConfigError

NOWHERE = Path("/nowhere")
SECRET = "hunter2-hunter2-hunter2"


def read(text: str, environ: Mapping[str, str] | None = None, directory: Path = NOWHERE) -> Config:
    return parse(text, source="federator.yaml", directory=directory, environ=environ or {})


def read_upstream(text: str, environ: Mapping[str, str] | None = None, directory: Path = NOWHERE) -> Upstream:
    return read(f"upstreams: {{docs: {{url: 'https://x', {text}}}}}", environ, directory).upstreams["docs"]


def wrong(text: str, environ: Mapping[str, str] | None = None, directory: Path = NOWHERE) -> list[str]:
    """The lines of the message, less the file's name."""
    with pytest.raises(ConfigError) as caught:
        read(text, environ, directory)
    lines = str(caught.value).splitlines()
    assert all(line.startswith("federator.yaml: ") for line in lines)
    assert SECRET not in str(caught.value)
    return [line.removeprefix("federator.yaml: ") for line in lines]
