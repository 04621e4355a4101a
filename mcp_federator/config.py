"""The configuration, as values.  (Loading, interpolation, checks and the schema are to be written here.)"""

from typing import Any, Literal

import msgspec

from mcp_federator.model import Scope


class Duration(float):
    """Seconds; written `250ms`, `10s`, `5m`, `24h`, or a plain number of seconds."""


class Size(int):
    """Bytes; written `64MiB`, `8KiB`, `1GiB`, or a plain number of bytes."""


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A mapping of the file."""


class Log(_Section):
    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


class Server(_Section):
    host: str = "127.0.0.1"
    port: int = 8080
    path: str = "/mcp"
    admin_host: str = "127.0.0.1"
    admin_port: int = 8081
    allowed_origins: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    auth: Literal["none"] = "none"
    secret: tuple[str, ...] = ()
    """The first seals, all open; empty: a random one is made at start."""
    max_request_bytes: Size = Size(1 << 20)
    max_in_flight: int = 1000
    request_timeout: Duration = Duration(30)
    grace: Duration = Duration(20)
    instructions: str = ""
    log: Log = Log()


class Lists(_Section):
    window: int = 8
    soft_deadline: Duration = Duration(2)
    max_pages: int = 1000
    max_items: int = 100_000


class Cache(_Section):
    memory: Size = Size(64 << 20)
    max_ttl: Duration = Duration(24 * 3600)
    stale_if_error: Duration = Duration(300)
    client_refresh: Literal["always", "loopback", "never"] = "loopback"


class Breaker(_Section):
    failures: int = 5
    open_for: Duration = Duration(5)
    max_open_for: Duration = Duration(120)


class Tls(_Section):
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    verify: bool = True


class UpstreamCache(_Section):
    default_ttl: Duration = Duration(0)
    default_scope: Scope = Scope.PRIVATE
    list_scope: Literal["auto", "public", "private"] = "auto"
    trust_public: bool = True


class Upstream(_Section):
    url: str
    headers: dict[str, str] = {}
    forward: tuple[str, ...] = ()
    credential_headers: tuple[str, ...] = ()
    prefix: str | None = None
    """None: the default, the upstream's name and `+`."""
    native_prefix: str = ""
    timeout: Duration = Duration(10)
    connect_timeout: Duration = Duration(3)
    required: bool = False
    max_connections: int = 64
    max_in_flight: int = 256
    max_response_bytes: Size = Size(16 << 20)
    breaker: Breaker = Breaker()
    tls: Tls = Tls()
    proxy: str | None = None
    client_capabilities: dict[str, Any] = {}
    baggage: bool = False
    cache: UpstreamCache = UpstreamCache()


class Config(_Section):
    server: Server = Server()
    lists: Lists = Lists()
    cache: Cache = Cache()
    upstreams: dict[str, Upstream] = {}
