"""What one process makes of its settings, and what it says of Redis."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from mcp_federator.cache.envelope import Flaw
from mcp_federator.cache.redis_tier import QUIET, RedisTier
from mcp_federator.config import Redis
from mcp_federator.errors import ConfigError
from mcp_federator.metrics import Metrics
from tests.cache.replica import until
from tests.cache.stage import Clock

PASSWORD = "hunter2"


def tier(url: str = "redis://127.0.0.1:1", clock: Callable[[], float] | None = None) -> RedisTier:
    return RedisTier(Redis(url=url), [b"0123456789abcdef"], Metrics("0"), clock or Clock())


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (f"redis://:{PASSWORD}@h/x", "expected redis://HOST:PORT/DATABASE"),
        (f"redis://:{PASSWORD}@h?{PASSWORD}", "expected redis://, "),
        (f"rediss://:{PASSWORD}@h?ssl_ca_certs=/nowhere", "the certificates cannot be used: No such file"),
        (f"redis+sentinel://:{PASSWORD}@h", "expected redis+sentinel://HOST:PORT"),
    ],
)
def test_a_url_that_cannot_be_used_is_a_mistake_in_the_configuration(url: str, said: str) -> None:
    """It is told with its place, and without its password."""
    with pytest.raises(ConfigError) as caught:
        tier(url)
    assert str(caught.value).startswith(f"cache.redis.url: {said}")
    assert PASSWORD not in str(caught.value)


def test_the_log_says_when_an_operation_fails_and_when_it_works_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once a minute for each operation, however often it comes and goes; nothing of the URL."""
    caplog.set_level(logging.DEBUG, "mcp_federator")
    clock = Clock()
    one = tier(f"redis://:{PASSWORD}@127.0.0.1:1", clock)
    for _ in range(3):
        one._observe("land", 0.1, "oom")
        one._observe("look", 0.1, "")
        one._observe("land", 0.1, "")
    assert [record.message for record in caplog.records] == [
        "redis: land failed (oom); answers come from memory and upstreams",
        "redis: land works again",
    ]
    one._observe("look", 0.1, "timeout")
    clock.now += QUIET
    one._observe("land", 0.1, "timeout")
    assert len(caplog.records) == 4
    assert one.failing == "look (timeout), land (timeout)"
    assert PASSWORD not in caplog.text


def test_the_status_tells_what_is_wrong() -> None:
    """Whether it answers and the others are heard, what waits, what fails, what was found and is no entry."""

    async def check() -> Any:
        one = tier()
        one._note(Flaw.VERSION)
        one.start()
        await until(lambda: bool(one.failing))
        status = one.status()
        await one.close()
        return status

    assert asyncio.run(check()) == {
        "up": False,
        "breaker": "closed",
        "listening": False,
        "changes_to_tell": 0,
        "failing": {"subscribe": "unreachable"},
        "flawed_entries": {"version": 1},
    }
