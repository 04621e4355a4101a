"""Who may knock, and how: verdicts over header fields, before anything of a request is read or done.

Everything here is a function of text; no request, no reply and no clock comes in.  A client repeats the same
values with each request, so verdicts are remembered, in `Memo`s, which are small and forget everything when
they are full.

Hazards:
- Names of header fields are compared without regard to case; `Mcp-Name` and `mcp-name` are one name.
- A page of any site, in a browser here, can reach a listener on this machine.  The Origin check keeps it
  from being heard (transports/streamable-http, "Security & Endpoint"): what is not understood is not allowed.
- Two fields of one name are two sources of truth: what one part reads from the first, another reads from the
  last.
"""

import re
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Final, Generic, TypeVar

import msgspec

from mcp_federator.errors import ConfigError
from mcp_federator.federation.partition import DEFAULT_CREDENTIAL_HEADERS

MCP_FIELDS: Final = frozenset(
    {"content-type", "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id", "last-event-id"}
)
"""Fields whose value decides what a request means; each may stand once."""

_UNUSUAL: Final = frozenset({"content-encoding", "transfer-encoding", "cache-control"})
_MEMO_ENTRIES: Final = 512
_MEMO_LENGTH: Final = 1024
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_ORIGIN: Final = re.compile(
    r"([a-z][a-z0-9+.-]*)://(\[[0-9a-f:.]+\]|[a-z0-9._~-]+)(?::([0-9]{1,5}))?", re.ASCII
)
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?", re.ASCII)

K = TypeVar("K", str, bytes)
T = TypeVar("T")


class Memo(dict[K, T], Generic[K, T]):
    """Remembers what `judge` said of a text; look up with `memo[text]`.

    At most 512 texts of a length up to 1,024 are kept, so that no client can make it grow.
    """

    def __init__(self, judge: Callable[[K], T]) -> None:
        super().__init__()
        self._judge: Callable[[K], T] = judge

    def __missing__(self, text: K) -> T:
        verdict = self._judge(text)
        if len(text) <= _MEMO_LENGTH:
            if len(self) >= _MEMO_ENTRIES:
                self.clear()
            self[text] = verdict
        return verdict


class Fields(msgspec.Struct, frozen=True):
    """What the names of a request's header fields say.

    Attributes:
        origins: how many Origin fields there are.
        repeated: the lower-case name of a field that may stand once and does not, or None.
        forwarded: lower-case names of fields that go upstream for this caller, each once.
        unusual: there is a field that changes how the body is read or who is answered: Content-Encoding,
            Transfer-Encoding, Cache-Control.
        relayed: another proxy passed this request on, so the peer is not the client.
    """

    origins: int = 0
    repeated: str | None = None
    forwarded: tuple[str, ...] = ()
    unusual: bool = False
    relayed: bool = False


class FieldNames:
    """Reads the names of header fields.

    Args:
        forwarded: lower-case names of the fields that some upstream's `forward` names.
        credentials: lower-case names of fields that hold credentials, beyond the well-known ones.
    """

    def __init__(self, forwarded: frozenset[str], credentials: frozenset[str]) -> None:
        self._forwarded = forwarded
        self._single = MCP_FIELDS | DEFAULT_CREDENTIAL_HEADERS | credentials

    def read(self, joined: bytes) -> Fields:
        """What the names, all of them joined by line breaks, say."""
        names = joined.decode("latin-1").lower().split("\n")
        once = dict.fromkeys(names)
        return Fields(
            origins=names.count("origin"),
            repeated=next((name for name in once if name in self._single and names.count(name) > 1), None),
            forwarded=tuple(name for name in once if name in self._forwarded),
            unusual=not once.keys().isdisjoint(_UNUSUAL),
            relayed="forwarded" in once or "x-forwarded-for" in once or "via" in once,
        )


def is_loopback(host: str) -> bool:
    """Whether a host, a name or an address without brackets and port, is this machine for sure."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Origins:
    """Which values of Origin are let in; a request without the field is no affair of a browser's page.

    Loopback origins of any port are allowed when the listener is bound to loopback: tools in a browser on the
    same machine, such as the inspector.  A default port counts the same written out or not.

    Args:
        allowed: `server.allowed_origins`.
        bound_to: the address the listener is bound to.

    Raises:
        ConfigError: an allowed origin is not of the form `scheme://host[:port]`.
    """

    def __init__(self, allowed: Iterable[str], bound_to: str) -> None:
        self._loopback = is_loopback(bound_to)
        self._allowed: set[tuple[str, str, str]] = set()
        for index, text in enumerate(allowed):
            parts = _origin(text.lower())
            if parts is None:
                raise ConfigError(
                    f"server.allowed_origins[{index}]", "expected scheme://host or scheme://host:port"
                )
            self._allowed.add(parts)

    def allow(self, origin: str) -> bool:
        """The verdict on the one Origin of a request."""
        # Browsers write scheme and host in lower case; who writes them otherwise means the same.
        parts = _origin(origin.lower())
        if parts is None:
            return False
        if parts in self._allowed:
            return True
        scheme, host, _ = parts
        return self._loopback and scheme in _DEFAULT_PORTS and is_loopback(host.strip("[]"))


def _origin(text: str) -> tuple[str, str, str] | None:
    """Scheme, host and port; None when it is no origin, `null` among them."""
    match = _ORIGIN.fullmatch(text)
    if match is None:
        return None
    scheme, host, port = match.groups()
    return scheme, host, port or _DEFAULT_PORTS.get(scheme, "")


class Hosts:
    """Which values of Host the admin listener answers to: no page can reach it under a name of its own.

    IP literals (a probe's way to call), `localhost` when bound to loopback, and `server.allowed_hosts`; the
    port does not matter.
    """

    def __init__(self, allowed: Iterable[str], bound_to: str) -> None:
        self._names = {_HOST.sub(r"\1", name.lower()).removesuffix(".") for name in allowed}
        if is_loopback(bound_to):
            self._names.add("localhost")

    def allow(self, host: str) -> bool:
        """The verdict on the Host of a request."""
        match = _HOST.fullmatch(host.lower())
        if match is None:
            return False
        name = match[1].removesuffix(".")
        if name in self._names:
            return True
        try:
            ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def is_json(content_type: str) -> bool:
    """Whether a Content-Type is `application/json`; JSON is UTF-8, so another charset is not."""
    kind, *parameters = content_type.lower().split(";")
    if kind.strip() != "application/json":
        return False
    for parameter in parameters:
        name, _, value = parameter.strip().partition("=")
        if name == "charset" and value.strip('"') not in {"utf-8", "utf8"}:
            return False
    return True


_JSON_RANGES: Final = ("application/json", "application/*", "*/*")
_EVENT_RANGES: Final = ("text/event-stream", "text/*", "*/*")


def accepts(accept: str) -> bool:
    """Whether an Accept allows JSON or an event stream (RFC 9110, 12.5.1); an empty one allows all."""
    return _allows(accept, _JSON_RANGES) or _allows(accept, _EVENT_RANGES)


def accepts_events(accept: str) -> bool:
    """Whether an Accept allows an event stream, likewise."""
    return _allows(accept, _EVENT_RANGES)


def _allows(accept: str, ranges: tuple[str, ...]) -> bool:
    """Whether an Accept allows what these ranges, the most specific one first, describe."""
    qualities: dict[str, float] = {}
    for item in accept.lower().split(","):
        media, *parameters = [part.strip() for part in item.split(";")]
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                quality = _quality(value.strip())
        qualities[media] = max(quality, qualities.get(media, 0.0))
    if set(qualities) == {""}:
        return True
    return next((qualities[media] for media in ranges if media in qualities), 0.0) > 0


def _quality(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 1.0


def asks_refresh(cache_control: str) -> bool:
    """Whether a request's Cache-Control holds `no-cache`."""
    return any(directive.strip() == "no-cache" for directive in cache_control.lower().split(","))


def sendable(value: str) -> bool:
    """Whether a field's value can go upstream as it came: text without control characters (RFC 9110, 5.5)."""
    return value.replace("\t", " ").isprintable()
