from collections.abc import Iterator

import pytest

from tests.instruments import redis_server
from tests.instruments.redis_server import Server


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
