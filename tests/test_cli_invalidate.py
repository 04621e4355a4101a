"""`mcp-federator invalidate`: what is kept in Redis is declared changed, or it is said why not."""

import json
import re
from collections.abc import Mapping  # noqa: TC003 - as elsewhere
from pathlib import Path
from typing import Any

import pytest

from mcp_federator import cli
from tests.instruments.redis_server import Server

PASSWORD = "hunter2"
URL = "http://127.0.0.1:9/mcp"


def written(folder: Path, redis: str | None, **sections: Any) -> str:
    file = folder / "federator.json"
    cache: Mapping[str, Any] = {} if redis is None else {"redis": {"url": redis}}
    tree = {
        "server": {"secret": "a secret of the house"},
        "cache": cache,
        "upstreams": {"docs": {"url": URL}, "notes": {"url": URL, "prefix": "notes://"}},
        **sections,
    }
    file.write_text(json.dumps(tree))
    return str(file)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("nobody",), 2, "expected the name of an upstream: docs, notes"),
        (("docs", "x://1"), 2, "expected a URI of docs as clients see it: docs+..."),
        (("notes", "docs+x://1"), 2, "expected a URI of notes as clients see it: notes://..."),
        (("docs",), 1, "Redis was not told: invalidate (unreachable)"),
        (("docs", "docs+x://1"), 1, "Redis was not told: invalidate (unreachable)"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: tuple[str, ...], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 for a mistake, 1 where Redis gives no answer; nothing of its URL is shown."""
    file = written(tmp_path, f"redis://:{PASSWORD}@127.0.0.1:1")
    assert cli.main(["invalidate", "-c", file, *arguments]) == code
    assert capsys.readouterr() == ("", f"mcp-federator: {said}\n")


def test_without_redis_there_is_nobody_to_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2: what one process keeps by itself cannot be reached."""
    assert cli.main(["invalidate", "-c", written(tmp_path, None), "docs"]) == 2
    assert capsys.readouterr().err.startswith("mcp-federator: cache.redis: missing: ")


@pytest.fixture
def denying(own: Server) -> str:
    """A Redis that lets our user in, and write nothing."""
    own.ask("ACL", "SETUSER", "reader", "on", f">{PASSWORD}", "~*", "&*", "+get")
    return f"redis://reader:{PASSWORD}@127.0.0.1:{own.port}"


def test_who_may_not_write_is_told(denying: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command waits for Redis to take it, and says that it did not."""
    assert cli.main(["invalidate", "-c", written(tmp_path, denying), "docs"]) == 1
    assert capsys.readouterr().err == "mcp-federator: Redis was not told: invalidate (denied)\n"


@pytest.mark.parametrize("by_option", [False, True])
def test_one_upstream_or_one_resource_is_declared_changed(
    redis: Server, by_option: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In Redis, before the command ends: all of an upstream in 64 keys, one resource besides in its own."""
    file = written(tmp_path, "redis://127.0.0.1:1" if by_option else redis.url)
    more = ("--redis", redis.url) if by_option else ()
    redis.ask("CONFIG", "RESETSTAT")
    assert cli.main(["invalidate", "-c", file, "docs", *more]) == 0
    stats = redis.ask("INFO", "commandstats")
    assert (stats["cmdstat_del"]["calls"], stats["cmdstat_publish"]["calls"]) == (64, 1)
    redis.ask("CONFIG", "RESETSTAT")
    assert cli.main(["invalidate", "-c", file, "docs", "docs+x://1", *more]) == 0
    stats = redis.ask("INFO", "commandstats")
    calls = {name: stats[f"cmdstat_{name}"]["calls"] for name in ("del", "hdel", "publish")}
    assert calls["publish"] == 1
    assert calls["hdel"] == 64
    assert calls["del"] >= 1
    assert capsys.readouterr() == ("", "")


def test_the_help_names_its_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """`mcp-federator invalidate -c FILE UPSTREAM [URI]`."""
    with pytest.raises(SystemExit):
        cli.main(["invalidate", "--help"])
    assert re.search(r"-c FILE .*UPSTREAM \[URI\]", " ".join(capsys.readouterr().out.split()))
