"""Where Redis is: one URL for each way in which it is deployed, and the client that URL asks for.

One URL says how: `redis://`, `rediss://`, `unix://`,
`redis+sentinel://[user:password@]host:port,.../service/db`, `redis+cluster://[user:password@]host:port,...`,
`rediss+sentinel://` and `rediss+cluster://`; options stand in the query.

With `redis_store` the only room that knows `redis`.

Hazard: a URL may hold a password.  No message tells any part of it.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

Client: TypeAlias = "Redis | RedisCluster"

_QUERY: Final = frozenset(
    {
        "db",
        "sentinel_password",
        "sentinel_username",
        "ssl_ca_certs",
        "ssl_cert_reqs",
        "ssl_certfile",
        "ssl_check_hostname",
        "ssl_keyfile",
    }
)

_FORMS: Final = (
    "redis://, rediss://, unix://, redis+sentinel://HOST:PORT,.../SERVICE, redis+cluster://HOST:PORT,..., "
    "rediss+sentinel:// or rediss+cluster://"
)


def connect(url: str, timeout: float) -> tuple[Client, Sequence[Redis], int]:
    """The client a URL asks for, those of its sentinels, and how many places may have to be asked.

    No connection is made yet; each step of one may take `timeout` seconds.

    Raises:
        ValueError: the URL; says what was expected, and nothing that may be secret.
    """
    try:
        client, sentinels, places = _read(url, timeout)
        _share_context(client)
    except OSError as problem:
        raise ValueError(f"the certificates cannot be used: {problem.strerror or 'no PEM'}") from None
    except RedisError:
        raise ValueError("expected options of TLS as redis-py has them") from None
    return client, sentinels, places


def _read(url: str, timeout: float) -> tuple[Client, Sequence[Redis], int]:
    scheme, _, rest = url.partition("://")
    base, _, form = scheme.partition("+")
    forms = {"redis": _CLUSTERED, "rediss": _CLUSTERED, "unix": {""}}
    if not rest or form not in forms.get(base, ()):
        raise ValueError(f"expected {_FORMS}")
    parts, query = _split(base, rest)
    if base != "unix" and not parts.hostname:
        raise ValueError(f"expected {_FORMS}")
    watcher = {name: query.pop(name) for name in ("sentinel_username", "sentinel_password") if name in query}
    common: dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        # The limit is ours; theirs does not wait.
        "max_connections": 1 << 16,
    }
    user, _, hosts = parts.netloc.rpartition("@")
    options = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    path = [unquote(part) for part in parts.path.split("/") if part]
    if not form:
        database = f"/{path[0]}" if path and base != "unix" else parts.path
        named = _named(f"{base}://{parts.netloc}{database}?{options}")
        if base != "unix" and (len(path) > 1 or not all(part.isdecimal() for part in path)):
            raise ValueError(f"expected {base}://HOST:PORT/DATABASE")
        return Redis(**named, **common), (), 1
    named = _named(f"{base}://{user and user + '@'}host/?{options}")
    del named["host"]
    places = [_place(host, 26379 if form == "sentinel" else 6379) for host in hosts.split(",")]
    if form == "cluster":
        if path or "db" in named:
            raise ValueError("expected no database: a cluster has one")
        nodes = [ClusterNode(*place) for place in places]
        return RedisCluster(startup_nodes=nodes, **named, **common), (), len(places)
    service, database = {1: (*path, "0"), 2: path}.get(len(path), ("", ""))
    if not database.isdecimal():
        raise ValueError("expected redis+sentinel://HOST:PORT,.../SERVICE or .../SERVICE/DATABASE")
    secure = {name: value for name, value in named.items() if name.startswith("ssl")}
    login = {name.removeprefix("sentinel_"): value for name, value in watcher.items()}
    sentinel = Sentinel(  # type: ignore[no-untyped-call]  # theirs
        places, sentinel_kwargs={**common, **secure, **login}
    )
    client: Redis = sentinel.master_for(service, **{"db": int(database), **named, **common})
    return client, sentinel.sentinels, len(places)


_CLUSTERED: Final = frozenset({"", "sentinel", "cluster"})


def _split(base: str, rest: str) -> tuple[SplitResult, dict[str, str]]:
    try:
        parts = urlsplit(f"{base}://{rest}")
        query = {
            name: values[0]
            for name, values in parse_qs(parts.query, strict_parsing=bool(parts.query)).items()
        }
    except ValueError:
        # The message would tell the URL, and so the password.
        raise ValueError(f"expected {_FORMS}") from None
    if unknown := set(query) - _QUERY:
        raise ValueError(f"unknown option {min(unknown)!r}; known are {', '.join(sorted(_QUERY))}")
    return parts, query


def _named(url: str) -> dict[str, Any]:
    """What a simple URL says, as parameters of any client."""
    try:
        named: dict[str, Any] = {**parse_url(url)}
    except ValueError:
        raise ValueError(f"expected {_FORMS}") from None
    if named.pop("connection_class", None) is not None and "path" not in named:
        named["ssl"] = True
    if "path" in named:
        named["unix_socket_path"] = named.pop("path")
    return named


def _place(text: str, default: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host:
        raise ValueError("expected HOST:PORT,HOST:PORT")
    return host, port or default


def _share_context(client: Client) -> None:
    """Let all connections of a client have one TLS context.

    Theirs makes one for each, which takes some 50 ms of the loop's time: that of two hundred look-ups.
    """
    contexts: list[Any] = []

    def sharing(kind: type[Any]) -> type[Any]:
        class Sharing(kind):  # type: ignore[misc]  # which class it is, is known at run time
            ssl_context: Any

            def __init__(self, **named: Any) -> None:
                super().__init__(**named)
                if not contexts:
                    self.ssl_context.get()
                    contexts.append(self.ssl_context)
                self.ssl_context = contexts[0]

        return Sharing

    if isinstance(client, Redis):
        pool: Any = client.connection_pool
        if issubclass(pool.connection_class, SSLConnection):
            pool.connection_class = sharing(pool.connection_class)
            pool.make_connection()
    else:
        options = client.nodes_manager.connection_kwargs
        if options["connection_class"] is SSLConnection:
            options["connection_class"] = sharing(SSLConnection)
            for node in client.nodes_manager.startup_nodes.values():
                node.connection_class = options["connection_class"]
