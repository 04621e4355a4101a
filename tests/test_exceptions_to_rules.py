import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = [
    path
    for folder in ("mcp_federator", "tests", "benchmarks", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "node_modules" not in path.parts
]
BARE = re.compile(r"#\s*(noqa(:\s*[A-Z0-9, ]+)?|type:\s*ignore(\[[a-z, -]+\])?)\s*$")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_an_exception_to_a_rule_says_why(path: Path) -> None:
    """Whoever silences a tool on a line gives the reason on that line."""
    lines = enumerate(path.read_text().splitlines(), 1)
    assert [number for number, line in lines if BARE.search(line)] == []
