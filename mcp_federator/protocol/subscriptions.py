"""`subscriptions/listen`: what clients want to hear of and how they are told, and the same toward upstreams.

The notifications of a change are those of the legacy revisions too, less the subscription id, which belongs
to a stream of this one (basic/patterns/subscriptions, "Receiving Notifications").

What may not come in: where a URI leads, and who hears of what.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from mcp_federator.protocol.text import members
from mcp_federator.protocol.vocabulary import META_SUBSCRIPTION

LISTEN: Final = "subscriptions/listen"

MAX_URIS: Final = 1000
"""How many URIs one filter may name; who wants more opens several streams."""

_FLAGS: Final = ("resourcesListChanged", "toolsListChanged", "promptsListChanged")
_VALUES: Final = {b"": False, b"null": False, b"false": False, b"true": True}
_URIS: Final = "resourceSubscriptions"

_TEXTS: Final = msgspec.json.Decoder(list[str])
_ENCODER: Final = msgspec.json.Encoder()
_ABSENT: Final = msgspec.Raw()

_UPDATED: Final = b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{%b"uri":%b}}'
_LIST_CHANGED: Final = b'{"jsonrpc":"2.0","method":"notifications/resources/list_changed"%b}'
_ACKNOWLEDGED: Final = (
    b'{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{%b"notifications":{%b}}}'
)
_ENDED: Final = b'{"jsonrpc":"2.0","id":%b,"result":{%b"resultType":"complete"}}'
_META: Final = b'"_meta":{"%b":%%b},' % META_SUBSCRIPTION.encode()


_FIRST: Final = "notifications/subscriptions/acknowledged"


class _Told(msgspec.Struct):
    method: str
    params: dict[str, msgspec.Raw] = {}


_TOLD: Final = msgspec.json.Decoder(_Told)


class Filter(msgspec.Struct, frozen=True):
    """What of a filter concerns us (schema, `SubscriptionFilter`).

    Attributes:
        lists: `resourcesListChanged`.
        uris: `resourceSubscriptions`, in order, each once.
    """

    lists: bool = False
    uris: tuple[str, ...] = ()


def decode_params(params: Mapping[str, msgspec.Raw]) -> Filter:
    """The filter; kinds of notifications that we never send are only looked at.

    Raises:
        ValueError: what is wrong, as a sentence: a member is missing or of another type than the schema says,
            two members have the same name, or there are too many URIs.
    """
    text = bytes(params.get("notifications", _ABSENT))
    if not text.startswith(b"{"):
        raise ValueError("params.notifications must be an object")
    try:
        found = members(text)
    except ValueError as problem:
        raise ValueError(f"params.notifications: {problem}") from None
    flags = {name: _VALUES.get(bytes(found.get(name, _ABSENT))) for name in _FLAGS}
    for name, flag in flags.items():
        if flag is None:
            raise ValueError(f"params.notifications.{name} must be true or false")
    return Filter(bool(flags[_FLAGS[0]]), _uris(found.get(_URIS, _ABSENT)))


def _uris(raw: msgspec.Raw) -> tuple[str, ...]:
    if bytes(raw) in {b"", b"null"}:
        return ()
    try:
        uris = _TEXTS.decode(raw)
    except msgspec.DecodeError:
        raise ValueError(f"params.notifications.{_URIS} must be an array of strings") from None
    if len(uris) > MAX_URIS:
        raise ValueError(f"params.notifications.{_URIS} may name {MAX_URIS} URIs: open several streams")
    return tuple(dict.fromkeys(uris))


class Heard(msgspec.Struct, frozen=True):
    """What an upstream's message is, apart from what it says.

    Attributes:
        subscription: the id of the stream that it belongs to, as JSON; `b""` where it names none.
        acknowledged: it is the first one of a stream.
    """

    subscription: bytes = b""
    acknowledged: bool = False


def decode_heard(message: bytes) -> Heard:
    """Look at what came on a stream of an upstream; nothing that it may be raises."""
    try:
        told = _TOLD.decode(message)
        meta = msgspec.json.decode(told.params.get("_meta", b"{}"), type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return Heard()
    return Heard(bytes(meta.get(META_SUBSCRIPTION, b"")), told.method == _FIRST)


def listen_params(lists: bool, uris: Iterable[str], meta: bytes) -> bytes:
    """The params of our call to an upstream; `meta` is the member `_meta`."""
    return b'{"notifications":{%b},%b}' % (_granted(lists, uris), meta)


def acknowledged(id: bytes, granted: Filter) -> bytes:  # noqa: A002 - the protocol's word
    """The first message of a stream; kinds that are not granted are left out ("Acknowledgment")."""
    return _ACKNOWLEDGED % (_META % id, _granted(granted.lists, granted.uris))


def _granted(lists: bool, uris: Iterable[str]) -> bytes:
    named = list(uris)
    kinds = [b'"resourcesListChanged":true'] if lists else []
    if named:
        kinds.append(b'"resourceSubscriptions":' + _ENCODER.encode(named))
    return b",".join(kinds)


def updated(uri: str, id: bytes | None = None) -> bytes:  # noqa: A002 - the protocol's word
    """The message that a resource changed; `id` is that of the stream, where it has one."""
    return _UPDATED % (b"" if id is None else _META % id, _ENCODER.encode(uri))


def list_changed(id: bytes | None = None) -> bytes:  # noqa: A002 - the protocol's word
    """The message that the list of resources, or that of templates, is another one."""
    return _LIST_CHANGED % (b"" if id is None else b',"params":{%b}' % (_META % id)[:-1])


def ended(id: bytes) -> bytes:  # noqa: A002 - the protocol's word
    """The response with which we end a stream ("Graceful Closure")."""
    return _ENDED % (id, _META % id)
