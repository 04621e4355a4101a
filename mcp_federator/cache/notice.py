"""What replicas tell each other over Redis' channel: what changed, and which flight landed.

Pure.  A message begins with its version; one that cannot be read is none, whoever sent it.

Hazard: a message names an upstream by `Names.tag`, its identity included: a federator with another
configuration may have another server under the same name.
"""

from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from mcp_federator.model import Change, Event, Method

MAX_MESSAGE_BYTES: Final = 1 << 20

_VERSION: Final = b"1"


class Kind(StrEnum):
    """What a notice declares."""

    RESOURCE = "resource"
    """One resource changed, and whatever it is a part of."""
    RESOURCES = "resources"
    """Any resource may have changed."""
    LIST = "list"
    """The list of resources changed."""
    TEMPLATES = "templates"
    """The list of templates changed."""
    GAP = "gap"
    """Changes may have been missed: entries are stale, not gone."""
    ALL = "all"
    """Everything of the upstream may have changed."""
    PRIVATE_LIST = "private_list"
    """The list of resources has a private page.  No change, and nothing that has to be written again."""
    PRIVATE_TEMPLATES = "private_templates"
    """The list of templates has one."""


class Notice(msgspec.Struct, frozen=True):
    """One change, as it is written in Redis and told to others.  `uri` is native, only with `RESOURCE`."""

    kind: Kind
    uri: str | None = None


ALL: Final = Notice(Kind.ALL)


class Verdict(StrEnum):
    """What those who wait for a flight are to do."""

    LOOK = "look"
    """Look again: its answer is kept, or a change overtook it."""
    UNKEPT = "unkept"
    """Go upstream: its answer may not be kept, and the next will not be either."""
    FAILED = "failed"
    """Go upstream: it brought nothing that could be kept, which says nothing of the next."""


class Told(msgspec.Struct, frozen=True, tag_field="t", tag="c", array_like=True):
    """A notice: by which process, of which upstream."""

    by: bytes
    upstream: str
    kind: Kind
    uri: str | None = None


class Landed(msgspec.Struct, frozen=True, tag_field="t", tag="f", array_like=True):
    """A flight has ended; `lane` is its key."""

    lane: bytes
    verdict: Verdict


class Asked(msgspec.Struct, frozen=True, tag_field="t", tag="q", array_like=True):
    """Whether all that this process said before is heard."""

    by: bytes
    number: int


class Heard(msgspec.Struct, frozen=True, tag_field="t", tag="h", array_like=True):
    """It is, by one who listens: the answer to what that process asked."""

    by: bytes
    number: int


Message: TypeAlias = Told | Landed | Asked | Heard

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Message).decode


def notices(event: Event) -> tuple[Notice, ...]:
    """An event, as it is declared in Redis."""
    match event.change:
        case Change.LIST:
            return (Notice(Kind.LIST), Notice(Kind.TEMPLATES))
        case Change.RESOURCE:
            return (Notice(Kind.RESOURCES) if event.uri is None else Notice(Kind.RESOURCE, event.uri),)
        case Change.GAP:
            return (Notice(Kind.GAP),)


def events(upstream: str, notice: Notice) -> tuple[Event, ...]:
    """What another replica declared, in the words in which the upstream would have; nothing for a gap.

    Another replica may have missed changes.  We hear the upstream ourselves.
    """
    match notice.kind:
        case Kind.LIST:
            # Where an upstream said so, the templates are declared beside it: one event is enough.
            return (Event(upstream, Change.LIST),)
        case Kind.RESOURCE | Kind.RESOURCES:
            return (Event(upstream, Change.RESOURCE, notice.uri),)
        case Kind.ALL:
            return (Event(upstream, Change.LIST), Event(upstream, Change.RESOURCE))
        case Kind.TEMPLATES | Kind.GAP | Kind.PRIVATE_LIST | Kind.PRIVATE_TEMPLATES:
            return ()


def pages(method: Method) -> Notice:
    """All pages of one list do not belong together any more."""
    return Notice(Kind.LIST if method is Method.LIST else Kind.TEMPLATES)


PRIVATE: Final = {Method.LIST: Kind.PRIVATE_LIST, Method.TEMPLATES: Kind.PRIVATE_TEMPLATES}
"""How it is told that a list has a private page."""


def write(message: Message) -> bytes:
    """The message as it is published."""
    return _VERSION + _encode(message)


def read(payload: object) -> Message | None:
    """What was published, or None where it cannot be read."""
    if not isinstance(payload, bytes) or payload[:1] != _VERSION or len(payload) > MAX_MESSAGE_BYTES:
        return None
    try:
        return _decode(payload[1:])
    except (msgspec.DecodeError, RecursionError):
        return None
