"""Where URIs stand in what an upstream answers, and how they get their public form.

The one table of surfaces (design, section 3, rule 9) is `_SURFACES`; beside it stand the two URIs that are
in no list of a result: `error.data.uri` and `_meta.ui.resourceUri`.  What is asked for (a read's `uri`, a
completion's `ref.uri`) was made native by the route; nothing in a completion is a URI, which is here for its
shape.  All else is carried through byte for byte: what is decoded is just deep enough to reach a URI, the
rest stays `msgspec.Raw`, and text bodies are never looked into.

What comes in has passed `protocol.jsonrpc.check_text` (UTF-8, depth).  What goes out is joined bytes that
keep no buffer alive.  What cannot be read as the schema has it is a `ValueError`: a bad reply.

Hazards:
    A native URI that slips through unrewritten may look like a public URI of another upstream.  What has no
    public form is therefore left out, never passed as it is.
    Strict clients refuse a whole page, and with it the items of other upstreams, for one member of a wrong
    type (case H13).  An item that has one is left out.  A `null` where an optional member may be costs only
    that member; a `null` anywhere else means something to somebody.
    One decode of a long list stops the whole process, in whatever thread it is done, and an item that is
    looked at alone costs ten times as much as one among good ones.  So lists are taken in portions, and the
    number of items, and of those that are wrong, is limited.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from mcp_federator.federation.prefix import Mapping
from mcp_federator.federation.shape import (
    Annotations,
    Completion,
    Content,
    Icon,
    Named,
    Resource,
    Template,
    optional,
)
from mcp_federator.model import Method

MAX_ITEMS: Final = 100_000
"""How many items a list may have; as many as we walk by default (`lists.max_items`)."""

MAX_REFUSED: Final = 5_000
"""How many items of a list may be wrong; with more it is no list of such items."""

_PORTION: Final = 1_000
_SHORT: Final = 128 << 10
"""Bytes up to which a list is one portion."""

_T = TypeVar("_T")
_Item = dict[str, Any]
"""A JSON object, decoded one level deep: its members are `Raw`, or what they have been replaced with."""
_Given: TypeAlias = "tuple[_Item, Named] | None"
"""An item, and what was read of it; None where it has not the shape of one."""


class Surface:
    """A list of a result whose items have a URI.

    Args:
        items: the member of the result that is the list.
        uri: the member of each item that is the URI, or the template.
        shown: gives it its public form, or None where the item is not published.
        shape: of an item.

    Attributes:
        decode_all: decodes the list, if every item has the shape.
        decode_one: decodes an item.
        optional: members of an item that the schema declares optional and not nullable.
    """

    def __init__(
        self, items: str, uri: str, shown: Callable[[Mapping, str], str | None], shape: type[Named]
    ) -> None:
        self.items = items
        self.uri = uri
        self.shown = shown
        self.decode_all: Callable[[Raw], list[Named]] = msgspec.json.Decoder(list[shape]).decode  # type: ignore[valid-type] # a type made at run time
        self.decode_one: Callable[[Raw], Named] = msgspec.json.Decoder(shape).decode
        self.optional = optional(shape)


_SURFACES = {
    Method.LIST: Surface("resources", "uri", Mapping.public, Resource),
    Method.TEMPLATES: Surface("resourceTemplates", "uriTemplate", Mapping.template, Template),
    # An item of contents has a text or a blob; some servers write the other as null.
    Method.READ: Surface("contents", "uri", Mapping.public, Content),
}
_OF_ICONS, _OF_ANNOTATIONS, _OF_COMPLETION = optional(Icon), optional(Annotations), optional(Completion)

MAX_VALUES = 100
"""How many values a completion may have (server/utilities/completion, "Completion Results")."""

_NULL, _EMPTY = Raw(b"null"), Raw(b"[]")

_decode_text = msgspec.json.Decoder(str).decode
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_objects = msgspec.json.Decoder(list[dict[str, Raw]]).decode
_decode_completion = msgspec.json.Decoder(Completion).decode
_decode_list = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.Encoder().encode


class Page(msgspec.Struct, frozen=True):
    """One page of a list.

    Attributes:
        items: in public form, joined by commas, without brackets.
        count: how many.
        uris: their native URIs (or templates), in order.
        next_cursor: the upstream's; None on the last page.
        extra: the result's other members, joined by commas, without braces.
        dropped: how many items have not the shape of one, are not published, or are no template.
    """

    items: bytes
    count: int
    uris: tuple[str, ...]
    next_cursor: str | None = None
    extra: bytes = b""
    dropped: int = 0


class Contents(msgspec.Struct, frozen=True):
    """The contents of a resource.

    Attributes:
        body: the result's members with `contents` in public form, joined by commas, without braces.
        count: number of contents.
        uris: their native URIs, in order.
        dropped: how many items have not the shape of one, or are not published.
    """

    body: bytes
    count: int
    uris: tuple[str, ...]
    dropped: int = 0


def page(members: dict[str, Raw], method: Method, mapping: Mapping) -> Page:
    """Rewrite one page of `resources/list` or `resources/templates/list`.

    An item that cannot be shown costs only itself; a list that is absent or null is an empty one.

    Raises:
        ValueError: the page cannot be read, the list is no list or too long, or the cursor no text.
    """
    surface = _SURFACES[method]
    raw = members.get(surface.items, _NULL)
    # Most pages hold no null at all: one scan of the text is cheaper than a look at every item.
    shown = _shown(_EMPTY if raw == _NULL else raw, surface, mapping, nulls=b"null" in bytes(raw))
    cursor = members.get("nextCursor", _NULL)
    own = {surface.items, "nextCursor"}
    return Page(
        items=shown.text,
        count=len(shown.uris),
        uris=shown.uris,
        next_cursor=None if cursor == _NULL else _decoded(_decode_text, cursor, "nextCursor"),
        extra=_encode({name: value for name, value in members.items() if name not in own})[1:-1],
        dropped=shown.dropped,
    )


def contents(members: dict[str, Raw], mapping: Mapping, asked: str | None = None) -> Contents:
    """Rewrite the result of `resources/read`.

    Contents without a URI of their own that could be shown get that of the resource that was `asked` for
    (native), where it is given; otherwise they are left out.  So are those that have not the schema's shape.

    Raises:
        ValueError: there is no list of contents, it is too long or cannot be read, or nothing in it can be
            shown.  An empty list is passed on: to say "not found" is for the upstream, and perhaps the
            resource is empty.
    """
    surface = _SURFACES[Method.READ]
    public = None if asked is None else mapping.public(asked)
    otherwise = None if asked is None or public is None else (asked, public)
    shown = _shown(members.get(surface.items, _NULL), surface, mapping, otherwise=otherwise)
    if shown.dropped and not shown.uris:
        raise ValueError("contents: none can be shown")
    body = _encode({**members, surface.items: Raw(b"[%b]" % shown.text)})[1:-1]
    return Contents(body=body, count=len(shown.uris), uris=shown.uris, dropped=shown.dropped)


def completion(members: dict[str, Raw]) -> bytes:
    """The members of the result of `completion/complete`, joined by commas, without braces.

    Strict clients refuse more values than the schema allows, so the first of them stay, and there are more.

    Raises:
        ValueError: there is no completion, or it has not the schema's shape.
    """
    raw = members.get("completion", _NULL)
    given = _decoded(_decode_completion, raw, "completion")
    shown = _without_nulls(_decode_object(raw), _OF_COMPLETION)
    if len(given.values) > MAX_VALUES:
        shown = {**shown, "values": given.values[:MAX_VALUES], "hasMore": True}
    return _encode({**members, "completion": shown})[1:-1]


def error_data(data: bytes | None, mapping: Mapping, asked: str | None = None) -> bytes | None:
    """Rewrite `error.data.uri` (server/resources, "Error Handling").

    Args:
        data: the error's `data`.
        mapping: of the upstream that gave it.
        asked: the public URI as it was asked for.  It stands for what it means, in the asker's own spelling,
            and for a URI that is not published; without it the latter is left out.

    Raises:
        ValueError: `data` cannot be read.
    """
    error = None if data is None else _decoded(_object, Raw(data), "error.data")
    native = None if error is None else _text(error.get("uri"))
    if error is None or native is None:
        return data
    same = asked is not None and mapping.native(asked) == native
    return _encode(_replaced(error, "uri", asked if same else mapping.public(native) or asked))


class _Shown(msgspec.Struct, frozen=True):
    """Items in public form, joined by commas; their native URIs; and how many were left out."""

    text: bytes
    uris: tuple[str, ...]
    dropped: int


def _shown(
    raw: Raw,
    surface: Surface,
    mapping: Mapping,
    *,
    nulls: bool = True,
    otherwise: tuple[str, str] | None = None,
) -> _Shown:
    """What can be shown of a list; arguments as of `_rewritten`.  Raises ValueError."""
    texts: list[bytes] = []
    uris: list[str] = []
    count = refused = 0
    for portion in _portions(raw, surface):
        given = _items(portion, surface, MAX_REFUSED - refused)
        count += len(given)
        refused += given.count(None)
        items, found = _rewritten(given, surface, mapping, nulls=nulls, otherwise=otherwise)
        if items:
            texts.append(_encode(items)[1:-1])
            uris += found
    return _Shown(b",".join(texts), tuple(uris), count - len(uris))


def _portions(raw: Raw, surface: Surface) -> Iterator[Raw]:
    """A list as lists of so many of its items that one after the other can be decoded at once."""
    if memoryview(raw).nbytes <= _SHORT:
        yield raw
        return
    items = _decoded(_decode_list, raw, surface.items)
    if len(items) > MAX_ITEMS:
        raise ValueError(f"{surface.items}: more than {MAX_ITEMS} items")
    if len(items) <= _PORTION:
        yield raw
        return
    for start in range(0, len(items), _PORTION):
        yield Raw(b"[%b]" % b",".join(items[start : start + _PORTION]))


def _rewritten(
    given: list[_Given],
    surface: Surface,
    mapping: Mapping,
    *,
    nulls: bool = True,
    otherwise: tuple[str, str] | None = None,
) -> tuple[list[_Item], tuple[str, ...]]:
    """The items that can be shown, and their native URIs.

    Args:
        given: is consumed.
        surface: what they are.
        mapping: of the upstream they come from.
        nulls: False spares looking for nulls.
        otherwise: (native, public) URI of an item that has none; without it such an item is left out.
    """
    where, shown, optional = surface.uri, surface.shown, surface.optional
    items = []
    uris = []
    for each in given:
        if each is None:
            continue
        item, shape = each
        native = shape.uri
        public = None if native is None else shown(mapping, native)
        if native is None or public is None:
            if otherwise is None:
                continue
            native, public = otherwise
        item[where] = public
        if nulls:
            item = _tidied(item, optional)
        if shape.meta is not None and shape.meta.ui:
            item["_meta"] = _meta(item["_meta"], mapping)
        items.append(item)
        uris.append(native)
    return items, tuple(uris)


def _tidied(item: _Item, optional: frozenset[str]) -> _Item:
    """The item without nulls where optional members may be."""
    item = _without_nulls(item, optional)
    if "annotations" in item and "annotations" in optional and b"null" in bytes(item["annotations"]):
        item["annotations"] = _without_nulls(_decode_object(item["annotations"]), _OF_ANNOTATIONS)
    if "icons" in item and "icons" in optional and b"null" in bytes(item["icons"]):
        item["icons"] = [_without_nulls(icon, _OF_ICONS) for icon in _decode_objects(item["icons"])]
    return item


def _meta(raw: Raw, mapping: Mapping) -> Raw | _Item:
    """`_meta.ui.resourceUri` names the MCP App that shows the thing; it is a URI like any other."""
    meta = _object(raw)
    ui = None if meta is None else _object(meta.get("ui"))
    native = None if ui is None else _text(ui.get("resourceUri"))
    if meta is None or ui is None or native is None:
        return raw
    return {**meta, "ui": _replaced(ui, "resourceUri", mapping.public(native))}


def _replaced(members: _Item, name: str, value: str | None) -> _Item:
    """The members with another value at the same place, or without it."""
    if value is None:
        return {one: other for one, other in members.items() if one != name}
    return {**members, name: value}


def _without_nulls(members: _Item, optional: frozenset[str]) -> _Item:
    if _NULL not in members.values():
        return members
    return {name: value for name, value in members.items() if value != _NULL or name not in optional}


def _items(raw: Raw, surface: Surface, refusable: int) -> list[_Given]:
    """The items of a list.  Almost always all have their shape; otherwise each is looked at alone.

    Raises:
        ValueError: it is no list, or more than so many have not.
    """
    try:
        return list(zip(_decode_objects(raw), surface.decode_all(raw), strict=True))
    except (msgspec.DecodeError, RecursionError):
        pass
    given: list[_Given] = []
    for one in _decoded(_decode_list, raw, surface.items):
        item = _item(one, surface)
        refusable -= item is None
        if refusable < 0:
            raise ValueError(f"{surface.items}: more than {MAX_REFUSED} items have not the shape of one")
        given.append(item)
    return given


def _item(raw: Raw, surface: Surface) -> _Given:
    try:
        return _decode_object(raw), surface.decode_one(raw)
    except msgspec.ValidationError:
        return None


def _object(raw: Raw | None) -> _Item | None:
    try:
        return None if raw is None else _decode_object(raw)
    except msgspec.ValidationError:
        return None


def _text(raw: Raw | None) -> str | None:
    try:
        return None if raw is None else _decode_text(raw)
    except msgspec.ValidationError:
        return None


def _decoded(decode: Callable[[Raw], _T], raw: Raw, what: str) -> _T:
    try:
        return decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{what}: {error}") from error
