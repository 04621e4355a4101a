"""The values themselves: what they show, and that what stands in the design is what holds by default."""

from pathlib import Path

import msgspec
import pytest

from mcp_federator.config import Cache, Config, Duration, Redis, Server, Upstream

SECRET = "hunter2-hunter2-hunter2"
CONFIG = Config(
    server=Server(secret=(SECRET,)),
    cache=Cache(redis=Redis(url=f"redis://:{SECRET}@h")),
    upstreams={
        "docs": Upstream(url=f"https://x/?key={SECRET}", headers={"X-Key": SECRET}, timeout=Duration(12)),
        "files": Upstream(command="run", args=("--key", SECRET), env={"KEY": SECRET}),
        "people": Upstream(repository="company:People", options={"password": SECRET}),
    },
    files=(Path("federator.yaml"),),
)


@pytest.mark.parametrize("show", [repr, str, format, ascii], ids=["repr", "str", "format", "ascii"])
def test_no_secret_is_shown(show: object) -> None:
    """Neither by the configuration nor by a section of it."""
    assert callable(show)
    for value in (CONFIG, CONFIG.server, CONFIG.upstreams, *CONFIG.upstreams.values()):
        assert SECRET not in show(value)


def test_all_else_is_shown() -> None:
    """A debugger needs the rest."""
    shown = repr(CONFIG)
    assert "secret='…'" in shown
    assert "headers='…'" in shown
    assert "timeout=12.0" in shown
    assert "secret=()" in repr(Config())


def test_tools_that_print_nicely_get_no_secret_either() -> None:
    """Tracebacks of some tools show locals by `__rich_repr__`."""
    assert SECRET not in str(CONFIG.server.__rich_repr__())
    for upstream in CONFIG.upstreams.values():
        assert SECRET not in str(upstream.__rich_repr__())


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (Upstream(url="https://x"), "http"),
        (Upstream(command="run"), "stdio"),
        (Upstream(repository="company:People"), "repository"),
        (Upstream(directory="/srv"), "directory"),
    ],
)
def test_an_upstream_is_of_the_kind_of_its_key(settings: Upstream, kind: str) -> None:
    """One of four."""
    assert settings.kind == kind


def test_the_defaults_are_those_of_the_design() -> None:
    """Design, section 8."""
    assert msgspec.json.decode(msgspec.json.encode(Config(), enc_hook=float)) == {
        "server": {
            "host": "127.0.0.1",
            "port": 8080,
            "path": "/mcp",
            "admin_host": "127.0.0.1",
            "admin_port": 8081,
            "allowed_origins": [],
            "allowed_hosts": [],
            "auth": "none",
            "secret": [],
            "max_request_bytes": 1 << 20,
            "max_in_flight": 1000,
            "max_response_bytes_in_flight": 256 << 20,
            "request_timeout": 30,
            "grace": 20,
            "instructions": "",
            "log": {"format": "text", "level": "info"},
        },
        "lists": {"window": 8, "soft_deadline": 2, "max_pages": 1000, "max_items": 100_000},
        "cache": {
            "memory": 64 << 20,
            "redis": None,
            "max_ttl": 86400,
            "stale_if_error": 300,
            "client_refresh": "loopback",
        },
        "upstreams": {},
        "files": [],
        "notes": [],
    }


def test_the_defaults_of_redis_are_those_of_the_design() -> None:
    """Design, section 8."""
    assert msgspec.json.decode(msgspec.json.encode(Redis(url="redis://h"), enc_hook=float)) == {
        "url": "redis://h",
        "timeout": 0.25,
        "key_prefix": "mcpf:",
        "max_value_bytes": 8 << 20,
        "outage_freshness": 30,
        "encrypt_private": True,
    }


def test_the_defaults_of_an_upstream_are_those_of_the_design() -> None:
    """Design, section 8."""
    upstream = Upstream(url="https://x")
    assert msgspec.json.decode(msgspec.json.encode(upstream, enc_hook=float)) == {
        "url": "https://x",
        "command": None,
        "args": [],
        "env": {},
        "cwd": None,
        "probe_timeout": 5,
        "repository": None,
        "options": {},
        "directory": None,
        "headers": {},
        "forward": [],
        "credential_headers": [],
        "prefix": None,
        "native_prefix": "",
        "timeout": 10,
        "connect_timeout": 3,
        "required": False,
        "max_connections": 64,
        "max_in_flight": 256,
        "max_response_bytes": 16 << 20,
        "breaker": {"failures": 5, "open_for": 5, "max_open_for": 120},
        "tls": {"ca_file": None, "cert_file": None, "key_file": None, "server_name": None, "verify": True},
        "proxy": None,
        "client_capabilities": {},
        "baggage": False,
        "cache": {
            "default_ttl": 0,
            "default_scope": "private",
            "list_scope": "auto",
            "trust_public": True,
            "subscribe": True,
        },
    }
