import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that sets up the process's log leaves nothing of it to the next test."""
    root, ours = logging.getLogger(), logging.getLogger("mcp_federator")
    levels, handlers = (root.level, ours.level), root.handlers[:]
    yield
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    root.handlers[:] = handlers
