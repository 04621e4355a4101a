import logging
import socket
from collections.abc import Iterator

import pytest

from tests.instruments import redis_server
from tests.instruments.redis_server import Server


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    """A command that sets up the process's log leaves nothing of it to the next test."""
    root, ours = logging.getLogger(), logging.getLogger("mcp_federator")
    levels, handlers = (root.level, ours.level), root.handlers[:]
    yield
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    root.handlers[:] = handlers


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[Server]:
    if redis_server.WITHOUT:
        pytest.skip(redis_server.WITHOUT)
    with redis_server.server() as one:
        yield one


@pytest.fixture
def redis(shared_redis: Server) -> Server:
    """A Redis that holds nothing and knows no script."""
    shared_redis.ask("FLUSHALL")
    shared_redis.ask("SCRIPT", "FLUSH")
    return shared_redis


@pytest.fixture
def own() -> Iterator[Server]:
    """A Redis that the test may break."""
    if redis_server.WITHOUT:
        pytest.skip(redis_server.WITHOUT)
    with redis_server.server() as one:
        yield one


@pytest.fixture
def black_hole() -> Iterator[str]:
    """The address of a Redis that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
