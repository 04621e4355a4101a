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
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

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

_NULL = Raw(b"null")

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
        ValueError: the page cannot be read, the list is no list, or the cursor no text.
    """
    surface = _SURFACES[method]
    raw = members.get(surface.items, _NULL)
    given = [] if raw == _NULL else _items(raw, surface)
    # Most pages hold no null at all: one scan of the text is cheaper than a look at every item.
    items, uris = _rewritten(given, surface, mapping, nulls=b"null" in bytes(raw))
    cursor = members.get("nextCursor", _NULL)
    own = {surface.items, "nextCursor"}
    return Page(
        items=_encode(items)[1:-1],
        count=len(items),
        uris=uris,
        next_cursor=None if cursor == _NULL else _decoded(_decode_text, cursor, "nextCursor"),
        extra=_encode({name: value for name, value in members.items() if name not in own})[1:-1],
        dropped=len(given) - len(items),
    )


def contents(members: dict[str, Raw], mapping: Mapping, asked: str | None = None) -> Contents:
    """Rewrite the result of `resources/read`.

    Contents without a URI of their own that could be shown get that of the resource that was `asked` for
    (native), where it is given; otherwise they are left out.  So are those that have not the schema's shape.

    Raises:
        ValueError: there is no list of contents, it cannot be read, or nothing in it can be shown.  An empty
            list is passed on: to say "not found" is for the upstream, and perhaps the resource is empty.
    """
    surface = _SURFACES[Method.READ]
    given = _items(members.get(surface.items, _NULL), surface)
    shown = None if asked is None else mapping.public(asked)
    otherwise = None if asked is None or shown is None else (asked, shown)
    items, uris = _rewritten(given, surface, mapping, otherwise=otherwise)
    if given and not items:
        raise ValueError("contents: none can be shown")
    body = _encode({**members, surface.items: items})[1:-1]
    return Contents(body=body, count=len(items), uris=uris, dropped=len(given) - len(items))


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


def _items(raw: Raw, surface: Surface) -> list[_Given]:
    """The items of a list.  Almost always all have their shape; otherwise each is looked at alone."""
    try:
        return list(zip(_decode_objects(raw), surface.decode_all(raw), strict=True))
    except (msgspec.DecodeError, RecursionError):
        return [_item(one, surface) for one in _decoded(_decode_list, raw, surface.items)]


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
