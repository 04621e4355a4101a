"""The configuration, as values: which keys exist, what each holds, and what it means.

A key is one field here: its type, its limits, its default and its description.  The loader, the JSON Schema
and the test over docs/configuration.md read these fields, so nothing about a key is said anywhere else.

Hazards:
- `repr` of a section shows no secret: a key that can hold one stands in its section's `_hidden`.
- Defaults are shared by all instances and never changed.
- `Meta.extra` carries notes for the loader: `expected` (what a message says instead of the pattern), `check`
  (what the pattern cannot say), `least` (of a duration or a size), `lower` (letter case has no meaning),
  `single` (a list that may be written as its only item), `file`, `directory` and `program` (a path, which
  begins at the directory of the configuration file), `written` (False: no key of the file).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from mcp_federator.model import Scope


class Duration(float):
    """Seconds; written `250ms`, `10s`, `5m`, `24h`, or a plain number of seconds."""


class Size(int):
    """Bytes; written `64MiB`, `8KiB`, `1GiB`, or a plain number of bytes."""


_PORT: Final = "(?:0|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_AUTHORITY: Final = rf"(?:\[[0-9A-Fa-f:.]+\]|[^\x00-\x20\x7f/?#@:\\\[\]]+)(?::{_PORT})?"
_URL: Final = rf"[Hh][Tt][Tt][Pp][Ss]?://{_AUTHORITY}(?:[/?][^\x00-\x20\x7f#]*)?"


def _text(pattern: str, expected: str, **notes: object) -> Meta:
    return Meta(pattern=f"^(?:{pattern})$", extra={"expected": expected, **notes})


def _is_address(url: str) -> bool:
    """Whether the host and port of a URL are such that a client can try them."""
    try:
        parts = urlsplit(url)
        return (parts.hostname or "").encode("idna") != b"" and parts.port != 0
    except ValueError:
        return False


def _means(description: str, **notes: object) -> Meta:
    return Meta(description=description, extra=notes or None)


Name: TypeAlias = Annotated[
    str, _text("[a-z][a-z0-9-]{0,30}", "1 to 31 lower-case letters, digits and hyphens, a letter first")
]
Host: TypeAlias = Annotated[str, _text("[0-9A-Za-z._:%-]+", "a host name or an IP address, without a port")]
Port: TypeAlias = Annotated[int, Meta(ge=0, le=65535)]
UrlPath: TypeAlias = Annotated[str, _text("/[0-9A-Za-z._~/-]*", "a path that begins with /")]
Origin: TypeAlias = Annotated[
    str,
    _text(
        rf"[A-Za-z][0-9A-Za-z+.-]*://{_AUTHORITY}",
        "an origin such as https://app.example.com",
        check=_is_address,
    ),
]
Url: TypeAlias = Annotated[
    str,
    _text(
        _URL,
        "an http:// or https:// URL without user-info (credentials go under `headers`) or fragment",
        check=_is_address,
    ),
]
RedisUrl: TypeAlias = Annotated[
    str,
    _text(
        r"(?:rediss?(?:\+(?:sentinel|cluster))?|unix)://[^\x00-\x20\x7f]+",
        "a URL such as redis://HOST:6379/0, rediss://USER:PASSWORD@HOST:6380/0, unix:///PATH,"
        " redis+sentinel://HOST:26379,HOST:26379/SERVICE or redis+cluster://HOST:6379,HOST:6379",
    ),
]
KeyPrefix: TypeAlias = Annotated[
    str, _text(r"[!-z|~]{1,64}", "1 to 64 printable ASCII characters without spaces and braces")
]
Proxy: TypeAlias = Annotated[
    str,
    _text(
        rf"env|{_URL}",
        "`env`, or an http:// or https:// URL without user-info or fragment",
        check=lambda text: text == "env" or _is_address(text),
    ),
]
HeaderName: TypeAlias = Annotated[
    str, _text("[!#$%&'*+.^_`|~0-9A-Za-z-]+", "the name of an HTTP header field", lower=True)
]
HeaderValue: TypeAlias = Annotated[
    str,
    _text(
        r"(?:[^\x00-\x20\x7f](?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)?",
        "a header value without control characters, and without space at its ends",
    ),
]
Secret: TypeAlias = Annotated[str, Meta(min_length=16)]
Count: TypeAlias = Annotated[int, Meta(ge=1)]
Wait: TypeAlias = Annotated[Duration, Meta(extra={"least": 0.001})]
File: TypeAlias = Annotated[str, _text(r"[^\x00]+", "the path of a file that is there", file=True)]
Directory: TypeAlias = Annotated[
    str, _text(r"[^\x00]+", "the path of a directory that is there", directory=True)
]
Program: TypeAlias = Annotated[str, _text(r"[^\x00]+", "the name or the path of a program", program=True)]
Argument: TypeAlias = Annotated[str, _text(r"[^\x00]*", "text without NUL")]
VariableName: TypeAlias = Annotated[str, _text(r"[^=\x00]+", "the name of an environment variable")]
ClassName: TypeAlias = Annotated[
    str,
    _text(
        r"[A-Za-z_][0-9A-Za-z_]*(?:\.[A-Za-z_][0-9A-Za-z_]*)*:[A-Za-z_][0-9A-Za-z_]*",
        "a class, written module:Class",
    ),
]

_OWN_HEADERS: Final = frozenset(
    {
        *("accept", "accept-encoding", "connection", "content-encoding", "content-length", "content-type"),
        *("expect", "host", "keep-alive", "last-event-id", "origin", "te", "trailer", "transfer-encoding"),
        *("upgrade", "baggage", "traceparent", "tracestate"),
    }
)
"""Header fields the federator writes itself toward an upstream; so are all that begin with `mcp-`."""


_UNSHARED: Final = (
    "expected beside `cache.redis`, the same for all processes that share it: make one with"
    " `openssl rand -hex 32`, set the variable MCP_FEDERATOR_SECRET to it, and write"
    " ${MCP_FEDERATOR_SECRET} here; without a file the variable is enough"
)


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A mapping of the file."""

    _hidden: ClassVar[frozenset[str]] = frozenset()
    one_of: ClassVar[tuple[str, ...]] = ()
    """Keys of which exactly one is given."""

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """What is wrong although each key is right by itself: (key, problem), `""` for the section itself."""
        yield from ()

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        fields = [(name, getattr(self, name)) for name in self.__struct_fields__]
        return [(name, "…" if value and name in self._hidden else value) for name, value in fields]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.__rich_repr__())})"
        )


class Log(Section, frozen=True):
    """`server.log`."""

    format: Annotated[Literal["text", "json"], _means("Form of the lines on stderr.")] = "text"
    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _means("Least level that is written. Requests are `info`; their URIs appear at `debug` only."),
    ] = "info"


class Server(Section, frozen=True):
    """`server`."""

    _hidden = frozenset({"secret"})

    host: Annotated[Host, _means("Address the endpoint listens on; `0.0.0.0` in a container.")] = "127.0.0.1"
    port: Annotated[Port, _means("Port of the endpoint; 0 takes a free one.")] = 8080
    path: Annotated[UrlPath, _means("Path of the endpoint.")] = "/mcp"
    admin_host: Annotated[Host, _means("Address the admin listener listens on.")] = "127.0.0.1"
    admin_port: Annotated[Port, _means("Port of the admin listener; 0 takes a free one.")] = 8081
    allowed_origins: Annotated[
        tuple[Origin, ...],
        _means("Origins whose pages may ask. Loopback origins may, too, while `host` is loopback."),
    ] = ()
    allowed_hosts: Annotated[
        tuple[Host, ...], _means("Names by which the admin listener may be addressed, beside IP addresses.")
    ] = ()
    auth: Annotated[
        Literal["none"], _means("How clients prove who they are; `none` is the only value so far.")
    ] = "none"
    secret: Annotated[
        tuple[Secret, ...],
        _means(
            "Key of cursors, sessions and partitions, one or a list: the first seals, all open."
            " Without one, each start makes its own, and cursors and sessions do not outlive the process.",
            single=True,
        ),
    ] = ()
    max_request_bytes: Annotated[Size, _means("Largest request body.", least=1)] = Size(1 << 20)
    max_in_flight: Annotated[
        Count,
        _means(
            "Most requests of clients that wait for upstreams at one time, and most requests to all upstreams"
            " together. Answers out of memory take no place."
        ),
    ] = 1000
    max_response_bytes_in_flight: Annotated[
        Size,
        _means(
            "Most bytes of answers that are being received from all upstreams together, after inflating."
            " One upstream may hold half of them.",
            least=1,
        ),
    ] = Size(256 << 20)
    request_timeout: Annotated[Wait, _means("Longest time from a request to its answer.")] = Duration(30)
    grace: Annotated[
        Duration, _means("How long requests in flight may take to end when the process is told to stop.")
    ] = Duration(20)
    instructions: Annotated[str, _means("Instructions for the model that `server/discover` hands out.")] = ""
    log: Annotated[Log, _means("What is written on stderr.")] = Log()

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """Two listeners cannot share an address."""
        if self.host == self.admin_host and self.port == self.admin_port != 0:
            yield "admin_port", "expected another port than `server.port`"


class Lists(Section, frozen=True):
    """`lists`."""

    window: Annotated[
        int, Meta(ge=1, le=64), _means("How many upstreams one page of a merged list asks at once.")
    ] = 8
    soft_deadline: Annotated[
        Wait, _means("How long a merged page waits for slow upstreams once others have answered.")
    ] = Duration(2)
    max_pages: Annotated[Count, _means("Most pages of one upstream the federator walks by itself.")] = 1000
    max_items: Annotated[Count, _means("Most items of one upstream the federator walks by itself.")] = 100_000


class Redis(Section, frozen=True):
    """`cache.redis`."""

    _hidden = frozenset({"url"})

    url: Annotated[RedisUrl, _means("Where Redis is; docs/operations.md has the forms for each deployment.")]
    timeout: Annotated[
        Wait, _means("Longest time a request waits for one answer of Redis, connecting included.")
    ] = Duration(0.25)
    key_prefix: Annotated[
        KeyPrefix, _means("What all keys and the channel begin with; federators that share it share answers.")
    ] = "mcpf:"
    max_value_bytes: Annotated[
        Size, _means("Largest entry that is written; a larger one stays in the memory tier.", least=1)
    ] = Size(8 << 20)
    outage_freshness: Annotated[
        Duration,
        _means(
            "How long copies in memory count as fresh at most while other processes cannot be heard through"
            " Redis, which may have learnt of a change."
        ),
    ] = Duration(30)
    encrypt_private: Annotated[
        bool,
        _means(
            "Encipher private answers, under keys that are derived from `server.secret` for each partition."
        ),
    ] = True


class Cache(Section, frozen=True):
    """`cache`."""

    memory: Annotated[Size, _means("Budget of the memory tier; 0 keeps nothing.")] = Size(64 << 20)
    redis: Annotated[
        Redis | None,
        _means("The tier that all processes share; null is none. It needs `server.secret`."),
    ] = None
    max_ttl: Annotated[
        Duration,
        _means("Longest life of an entry, whatever its upstream says; clients are told no more, either."),
    ] = Duration(24 * 3600)
    stale_if_error: Annotated[
        Duration, _means("How long past its life a copy may be served while its upstream gives no answer.")
    ] = Duration(300)
    client_refresh: Annotated[
        Literal["always", "loopback", "never"],
        _means(
            "Whose `Cache-Control: no-cache` fetches anew: anyone's, only one from loopback, or no one's."
        ),
    ] = "loopback"


class Breaker(Section, frozen=True):
    """`upstreams.NAME.breaker`."""

    failures: Annotated[
        Count, _means("Failures in a row after which the upstream is not asked for a while.")
    ] = 5
    open_for: Annotated[Wait, _means("How long it is not asked; doubled each time the trial fails.")] = (
        Duration(5)
    )
    max_open_for: Annotated[Wait, _means("Longest time it is not asked.")] = Duration(120)

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """The longest time is not shorter than the first."""
        if self.max_open_for < self.open_for:
            yield "max_open_for", "expected no less than `open_for`"


class Tls(Section, frozen=True):
    """`upstreams.NAME.tls`."""

    ca_file: Annotated[File | None, _means("Certificates to trust instead of the system's (PEM).")] = None
    cert_file: Annotated[File | None, _means("Certificate shown to the upstream (PEM).")] = None
    key_file: Annotated[File | None, _means("Key of `cert_file`, where it stands in a file of its own.")] = (
        None
    )
    server_name: Annotated[
        Host | None, _means("Name the upstream's certificate must be for, instead of the URL's host.")
    ] = None
    verify: Annotated[bool, _means("Check the upstream's certificate; `false` is for experiments only.")] = (
        True
    )

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """A key belongs to a certificate."""
        if self.key_file is not None and self.cert_file is None:
            yield "key_file", "expected `cert_file` beside it"


class UpstreamCache(Section, frozen=True):
    """`upstreams.NAME.cache`."""

    default_ttl: Annotated[Duration, _means("Life of an answer that comes without `ttlMs`.")] = Duration(0)
    default_scope: Annotated[Scope, _means("Scope of an answer that comes without `cacheScope`.")] = (
        Scope.PRIVATE
    )
    list_scope: Annotated[
        Literal["auto", "public", "private"],
        _means("Scope of this upstream's part of merged lists; `auto` learns it from its answers."),
    ] = "auto"
    trust_public: Annotated[
        bool, _means("Believe the upstream's `public`; `false` treats all its answers as private.")
    ] = True
    subscribe: Annotated[
        bool,
        _means(
            "Listen to the upstream for changes of what is kept of it, where it tells of them. Not done with"
            " `forward`: credentials of callers are used for their own requests alone."
        ),
    ] = True


Kind: TypeAlias = Literal["http", "stdio", "repository", "directory"]

_KINDS: Final[dict[str, Kind]] = {
    "url": "http",
    "command": "stdio",
    "repository": "repository",
    "directory": "directory",
}


class Upstream(Section, frozen=True):
    """`upstreams.NAME`."""

    _hidden = frozenset({"url", "headers", "args", "env", "options"})
    one_of = ("url", "command", "repository", "directory")

    url: Annotated[Url | None, _means("Where the upstream's MCP endpoint is.")] = None
    command: Annotated[
        Program | None,
        _means(
            "Program to start as the upstream, spoken to over stdin and stdout. One with a `/` in it begins"
            " at the directory of the configuration file, any other is looked for in `PATH`."
        ),
    ] = None
    args: Annotated[tuple[Argument, ...], _means("Arguments of `command`.")] = ()
    env: Annotated[
        dict[VariableName, Argument],
        _means(
            "Environment of `command`, beside `PATH`, `HOME`, `LANG`, `LC_*`, `TZ`, `TMPDIR`, `USER`,"
            " `LOGNAME`, `SHELL` and `TERM`, which it gets from the federator's."
        ),
    ] = {}
    cwd: Annotated[
        Directory | None, _means("Where `command` is started; null is where the federator was.")
    ] = None
    probe_timeout: Annotated[
        Wait, _means("How long `command` may be silent at first before it is taken for a legacy server.")
    ] = Duration(5)
    repository: Annotated[
        ClassName | None, _means("A repository: a class that is imported and answers in this process.")
    ] = None
    options: Annotated[dict[str, Any], _means("Keyword arguments of `repository`.")] = {}
    directory: Annotated[
        Directory | None, _means("A directory whose files are the resources, as `file:///` and their path.")
    ] = None
    headers: Annotated[
        dict[HeaderName, HeaderValue], _means("Header fields sent with every request, for instance a token.")
    ] = {}
    forward: Annotated[
        tuple[HeaderName, ...],
        _means(
            "Header fields of the caller that go upstream. Private entries are kept apart by credentials,"
            " all entries by any other of these fields."
        ),
    ] = ()
    credential_headers: Annotated[
        tuple[HeaderName, ...],
        _means(
            "Which of `forward` are credentials, beside `authorization`, `cookie`, `proxy-authorization`"
            " and `x-api-key`."
        ),
    ] = ()
    prefix: Annotated[
        str | None,
        _means('What stands before this upstream\'s URIs; null is its name and `+`, `""` is no rewriting.'),
    ] = None
    native_prefix: Annotated[
        str, _means("The beginning of native URIs that `prefix` replaces; URIs without it are not published.")
    ] = ""
    timeout: Annotated[Wait, _means("Longest time from a request to the upstream to its answer.")] = Duration(
        10
    )
    connect_timeout: Annotated[Wait, _means("Longest time until a connection stands.")] = Duration(3)
    required: Annotated[
        bool, _means("Fail a merged list when this upstream fails, instead of leaving it out.")
    ] = False
    max_connections: Annotated[Count, _means("Most connections to the upstream.")] = 64
    max_in_flight: Annotated[Count, _means("Most requests to the upstream at one time.")] = 256
    max_response_bytes: Annotated[Size, _means("Largest answer, after inflating.", least=1)] = Size(16 << 20)
    breaker: Annotated[Breaker, _means("When to stop asking an upstream that keeps failing.")] = Breaker()
    tls: Annotated[Tls, _means("How to trust an https upstream.")] = Tls()
    proxy: Annotated[
        Proxy | None, _means("HTTP proxy on the way; `env` takes the environment's proxy variables.")
    ] = None
    client_capabilities: Annotated[
        dict[str, Any], _means("Client capabilities that shared requests declare to the upstream.")
    ] = {}
    baggage: Annotated[bool, _means("Pass W3C `baggage` on, beside the trace context.")] = False
    cache: Annotated[UpstreamCache, _means("What holds for this upstream's answers.")] = UpstreamCache()

    @property
    def kind(self) -> Kind:
        """What sort of upstream it is, by the one of its four keys that is given."""
        return next((kind for key, kind in _KINDS.items() if getattr(self, key) is not None), "http")

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """An upstream is of one kind and has the keys of that kind; header fields have one source each."""
        given = [key for key in self.one_of if getattr(self, key) is not None]
        if len(given) != 1:
            found = " and ".join(f"`{key}`" for key in given) or "none"
            yield "", f"expected exactly one of `url`, `command`, `repository`, `directory`, found {found}"
            return
        for keys, kinds in _BELONGING:
            if given[0] not in kinds:
                beside = " or ".join(f"`{kind}`" for kind in kinds)
                yield from (
                    (key, f"expected only beside {beside}")
                    for key in keys
                    if getattr(self, key) != getattr(_DEFAULTS, key)
                )
        yield from self._header_conflicts()

    def _header_conflicts(self) -> Iterator[tuple[str, str]]:
        static = [name.lower() for name in self.headers]
        for name, folded in zip(self.headers, static, strict=True):
            if _is_own(folded):
                yield f"headers.{name}", "the federator writes this header field itself"
            elif static.count(folded) > 1:
                yield f"headers.{name}", "expected each header field once, in whatever letter case"
        for index, name in enumerate(self.forward):
            if _is_own(name):
                yield f"forward[{index}]", "the federator writes this header field itself"
            elif name in static or name in self.forward[:index]:
                yield (
                    f"forward[{index}]",
                    "expected each header field once in `headers` and `forward` together",
                )
        for index, name in enumerate(self.credential_headers):
            if name not in self.forward:
                yield f"credential_headers[{index}]", "expected a header field that `forward` names"


_DEFAULTS: Final = Upstream()

_BELONGING: Final = (
    (
        (
            *("headers", "forward", "credential_headers", "connect_timeout"),
            *("max_connections", "tls", "proxy"),
        ),
        ("url",),
    ),
    (("args", "env", "cwd", "probe_timeout"), ("command",)),
    (("options",), ("repository",)),
    (("client_capabilities", "baggage", "breaker"), ("url", "command")),
)
"""Keys that mean something for some kinds of upstream alone; all others do for every kind."""


class Config(Section, frozen=True):
    """The whole file.

    Two fields are no keys: `files` names what the configuration was read from, to be watched for changes,
    `notes` says what stood there and was left out.
    """

    server: Annotated[Server, _means("How clients and operators reach the federator.")] = Server()
    lists: Annotated[Lists, _means("How lists are merged.")] = Lists()
    cache: Annotated[Cache, _means("How long answers are kept.")] = Cache()
    upstreams: Annotated[dict[Name, Upstream], _means("The servers to federate, by name.")] = {}
    files: Annotated[tuple[Path, ...], _means("", written=False)] = ()
    notes: Annotated[tuple[str, ...], _means("", written=False)] = ()

    def conflicts(self) -> Iterator[tuple[str, str]]:
        """What processes share through Redis is closed under a secret that they share."""
        if self.cache.redis is not None and not self.server.secret:
            yield "server.secret", _UNSHARED


def _is_own(name: str) -> bool:
    return name in _OWN_HEADERS or name.startswith("mcp-")
