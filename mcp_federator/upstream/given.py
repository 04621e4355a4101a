"""What a repository gives, looked at and written as a result of the protocol.

Everything is checked here, with a sentence that says what was expected: the author of a repository is nearer
than that of a server, and can mend it.  Pure: objects in, JSON or a `ValueError` out, whatever is wrong.

Hazards:
- The objects are users': to look at one runs code of theirs, which may raise anything.
- A message stays short and quotes no value but a URI.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from mcp_federator.federation import shape
from mcp_federator.federation.reversal import Reversal
from mcp_federator.federation.rewrite import MAX_ITEMS
from mcp_federator.log import clean
from mcp_federator.model import Scope
from mcp_federator.protocol.text import check_text
from mcp_federator.repository import Content, Page
from mcp_federator.upstream.limits import TooLargeError

MAX_CURSOR_BYTES: Final = 4096

_GROWTH: Final = 6
"""How many times as long a text can be in JSON: a control character takes six bytes there."""

_HOUSING: Final = 64 << 10
"""Bytes for what stands around the texts and blobs of a read."""

_MOST_MS: Final = 1 << 52

_BYTES: Final = (bytes, bytearray, memoryview)

_encode: Final = msgspec.json.Encoder().encode
_Resources: Final = msgspec.json.Decoder(list[shape.Resource])
_Contents: Final = msgspec.json.Decoder(list[shape.Content])
_Template: Final = msgspec.json.Decoder(shape.Template)


def largest(limit: int) -> int:
    """Bytes of a result, as JSON, that holds `limit` bytes of texts and blobs."""
    return limit * _GROWTH + _HOUSING


def listing(given: Any, prefix: str, reversal: Reversal | None, limit: int) -> bytes:
    """The members of a page's result, without braces.

    Args:
        given: what `list` returned.
        prefix: what every URI must begin with.
        reversal: of the template every URI must match, where there is one.
        limit: bytes that all items may have together, as JSON.

    Raises:
        ValueError: it is no page, or an item of it cannot stand in one.
        TooLargeError: it has more bytes than that.
    """
    page = given if isinstance(given, Page) else Page(given)
    found: Any = page.items
    if not isinstance(found, list | tuple):
        raise ValueError(f"expected a list of resources or a Page, found {_kind(found)}")  # noqa: TRY004 - see the module
    items = _joined(_some(found, "resources on one page"), limit, limit)
    check_text(items)
    try:
        read = _Resources.decode(items)
    except msgspec.ValidationError as problem:
        raise ValueError(f"no resource as the protocol has it: {problem}") from None
    for one in read:
        uri = one.uri
        if not uri.startswith(prefix):
            raise ValueError(f"the URI {clean(uri)} is outside its prefix")
        if reversal is not None and reversal.match(uri) is None:
            raise ValueError(f"the URI {clean(uri)} could not be read: it does not match the template")
    cursor: Any = page.next_cursor
    if cursor is None:
        return b'"resources":%b' % items
    if not isinstance(cursor, str) or len(cursor.encode()) > MAX_CURSOR_BYTES:
        raise ValueError(f"next_cursor: expected text of at most {MAX_CURSOR_BYTES} bytes or None")
    return b'"resources":%b,"nextCursor":%b' % (items, _encode(cursor))


def reading(given: Any, uri: str, prefix: str, limit: int) -> bytes:
    """The members of the result of a read, without braces.

    Args:
        given: what `read` returned.
        uri: the URI that was asked for.
        prefix: what every URI must begin with.
        limit: bytes that all texts and blobs may have together, before they are encoded.

    Raises:
        ValueError: it is nothing that can be read.
        TooLargeError: it has more bytes than that.
    """
    parts = _some(given, "contents") if isinstance(given, list | tuple) else [given]
    if not parts:
        raise ValueError("read gave no contents; where there is no such resource, it is to raise NotFound")
    left = limit
    for part in parts:
        # Before anything is made of it: what is too large must not be encoded first.
        left -= _size(part, left)
        if left < 0:
            raise TooLargeError(f"more than {limit} bytes")
    contents = _joined((_content(part, uri) for part in parts), largest(limit), limit)
    check_text(contents)
    try:
        read = _Contents.decode(contents)
    except msgspec.ValidationError as problem:
        raise ValueError(f"no contents as the protocol has them: {problem}") from None
    for one in read:
        if one.uri is not None and not one.uri.startswith(prefix):
            raise ValueError(f"the URI {clean(one.uri)} of a content is outside its prefix")
    return b'"contents":%b' % contents


def control(given: Any) -> tuple[Scope, int]:
    """A scope and milliseconds, as `cache_control` gives them; raises ValueError."""
    try:
        scope, ttl = given
        if isinstance(scope, str) and isinstance(ttl, int) and not isinstance(ttl, bool) and ttl >= 0:
            # Text and a number of their own may do odd things: from here on they are ours.
            return Scope(str.__str__(scope)), min(int.__int__(ttl), _MOST_MS)
    except BaseException:  # noqa: BLE001, S110 - see the hazards; said below
        pass
    raise ValueError('expected "public" or "private" and whole milliseconds, such as ("public", 60_000)')


def template_item(given: Any, name: str) -> tuple[str, bytes]:
    """The text of a template, and the item that shows it to clients; raises ValueError.

    Args:
        given: the text, or a mapping with `uriTemplate` and more.
        name: of the template, where it has none.
    """
    if isinstance(given, str):
        given = {"uriTemplate": given}
    if not isinstance(given, Mapping):
        raise ValueError(f"expected text or a mapping, found {_kind(given)}")  # noqa: TRY004 - see the module
    try:
        item = _encode({"name": name, **given})
        check_text(item)
        return _Template.decode(item).uri, item
    except (msgspec.MsgspecError, TypeError, ValueError) as problem:
        raise ValueError(f"no template as the protocol has it: {clean(str(problem))}") from None
    except BaseException as problem:  # see the hazards
        raise ValueError(f"no template: to look at it raised {type(problem).__name__}") from problem


def said(problem: BaseException) -> str:
    """What an exception says; nothing where its class, which may be theirs, cannot say it."""
    try:
        return str.__str__(str(problem))
    except BaseException:  # noqa: BLE001 - see the hazards
        return ""


def _some(found: Iterable[Any], what: str) -> list[Any]:
    """Not more of them than a result may have."""
    some = list(islice(found, MAX_ITEMS + 1))
    if len(some) > MAX_ITEMS:
        raise ValueError(f"more than {MAX_ITEMS} {what}")
    return some


def _joined(items: Iterable[Any], most: int, limit: int) -> bytes:
    """An array of these, written one after another while it has at most `most` bytes; `limit` is told."""
    written = []
    for item in items:
        written.append(_encode(item))
        most -= len(written[-1])
        if most < 0:
            raise TooLargeError(f"more than {limit} bytes")
    return b"[%b]" % b",".join(written)


def _size(part: Any, most: int) -> int:
    """Bytes of a content's text or blob; of a text that has more than `most` characters, those."""
    bodies: list[Any] = [part]
    if isinstance(part, Content):
        bodies = [part.body]
    elif isinstance(part, Mapping):
        bodies = [part.get("text"), part.get("blob")]
    size = 0
    for body in bodies:
        if isinstance(body, str):
            size += len(body) if len(body) > most else len(body.encode("utf-8", "surrogatepass"))
        elif isinstance(body, memoryview):
            size += body.nbytes
        elif isinstance(body, (bytes, bytearray)):
            size += len(body)
    return size


def _content(part: Any, uri: str) -> Any:
    """One content, in the protocol's names."""
    if isinstance(part, Content):
        body = part.body
        more = [
            ("uri", uri if part.uri is None else part.uri),
            ("mimeType", part.mime_type),
            ("_meta", part.meta),
        ]
        return {**_body(body), **_present(more)}
    if isinstance(part, (str, *_BYTES)):
        return {"uri": uri, **_body(part)}
    if part is None:
        raise ValueError("read gave None; where there is no such resource, it is to raise NotFound")
    if isinstance(part, Mapping) and isinstance(part.get("text"), _BYTES):
        raise ValueError("expected a text under `text`; bytes go under `blob`")  # noqa: TRY004 - likewise
    return part


def _body(body: Any) -> dict[str, Any]:
    if isinstance(body, str):
        return {"text": body}
    if isinstance(body, _BYTES):
        return {"blob": body}
    raise ValueError(f"expected a text or bytes, found {_kind(body)}")


def _present(members: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, value in members if value is not None}


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
