"""What a server answers, as frozen values: named attributes for what MCP names, and all members beside them.

Pure: an answer in, a value out.  The door has checked the shapes already, so nothing is checked here but what
passes it unread: the requests of an interim result.

Hazard: text comes from outside; it may be of any length and hold any character.
"""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from mcp_federator.model import Answer, Missing, Scope
from mcp_federator.protocol.headers import cache_status
from mcp_federator.protocol.vocabulary import META_INCOMPLETE

COMPLETE: Final = "complete"
INPUT_REQUIRED: Final = "input_required"

_T = TypeVar("_T")


class Resource(msgspec.Struct, frozen=True):
    """One item of a list of resources.

    `members` is the item as the server gave it; the attributes are what MCP says of every resource.
    """

    uri: str
    name: str
    title: str | None
    description: str | None
    mime_type: str | None
    size: int | None
    members: Mapping[str, Any]


class ResourceTemplate(msgspec.Struct, frozen=True):
    """One item of a list of resource templates (RFC 6570); `members` as of a resource."""

    uri_template: str
    name: str
    title: str | None
    description: str | None
    mime_type: str | None
    members: Mapping[str, Any]


class Content(msgspec.Struct, frozen=True):
    """One of the contents of a resource: `text`, or `blob` in base64.  `members` as of a resource."""

    uri: str
    mime_type: str | None
    text: str | None
    blob: str | None
    members: Mapping[str, Any]

    @property
    def data(self) -> bytes:
        """The bytes of either; raises ValueError for a blob that is not base64."""
        if self.text is not None:
            return self.text.encode()
        return base64.b64decode(self.blob or "")


class Page(msgspec.Struct, Generic[_T], frozen=True):
    """One page of a list.

    Attributes:
        items: in the server's order; an item that is not as the schema has it is left out.
        next_cursor: of the next page, any text at all; None on the last page.
        ttl_ms: how long this page may be kept; 0 where the server does not say.
        cache_scope: for whom; private where the server does not say.
        meta: the result's `_meta`, less what belongs to the connection.
        members: the result's members that are not named here.
        incomplete: of a federator's list, who is missing and why.
        cache_status: what caches on the way said (RFC 9211); `""` where none did.
    """

    items: tuple[_T, ...]
    next_cursor: str | None
    ttl_ms: int
    cache_scope: Scope
    meta: Mapping[str, Any]
    members: Mapping[str, Any]
    incomplete: tuple[Missing, ...]
    cache_status: str


class InputRequest(msgspec.Struct, frozen=True):
    """One thing that a server wants to know first (basic/patterns/mrtr, "InputRequests").

    Attributes:
        key: the server's name of it.
        method: `elicitation/create`, `sampling/createMessage` or `roots/list`.
        params: of the method.
    """

    key: str
    method: str
    params: Mapping[str, Any]


class ReadResult(msgspec.Struct, frozen=True):
    """What a server says to a read.

    Attributes:
        result_type: `complete`, or `input_required` when the server wants to know something first.
        contents: of the resource; none unless complete.
        input_requests: what it wants to know; none when complete.
        request_state: the server's own text, to go back with what it wants to know.
        ttl_ms, cache_scope, meta, cache_status: as of a page; only a complete result may be kept.
        members: the result's members, less `resultType`, the hints and `_meta`.
    """

    result_type: str
    contents: tuple[Content, ...]
    input_requests: tuple[InputRequest, ...]
    request_state: str | None
    ttl_ms: int
    cache_scope: Scope
    meta: Mapping[str, Any]
    members: Mapping[str, Any]
    cache_status: str


class Completion(msgspec.Struct, frozen=True):
    """What an argument's value may be completed to.

    Attributes:
        values: the best first, at most 100.
        total: how many there are; None where the server does not say.
        has_more: there are more than these.
        meta, members: as of a page.
    """

    values: tuple[str, ...]
    total: int | None
    has_more: bool
    meta: Mapping[str, Any]
    members: Mapping[str, Any]


def page(answer: Answer, item: Callable[[dict[str, Any]], _T]) -> Page[_T]:
    """One page of these items."""
    meta = _object(answer.meta)
    return Page(
        items=tuple(item(each) for each in json.loads(b"[%b]" % answer.body)),
        next_cursor=answer.next_cursor,
        ttl_ms=answer.hint.ttl_ms,
        cache_scope=answer.hint.scope,
        meta=meta,
        members=_object(answer.extra),
        incomplete=answer.incomplete or _incomplete(meta.get(META_INCOMPLETE)),
        cache_status=_cache_status(answer),
    )


def resource(item: dict[str, Any]) -> Resource:
    """One item of `resources/list`."""
    size = item.get("size")
    return Resource(
        uri=item["uri"],
        name=item["name"],
        title=item.get("title"),
        description=item.get("description"),
        mime_type=item.get("mimeType"),
        size=None if size is None else int(size),
        members=item,
    )


def template(item: dict[str, Any]) -> ResourceTemplate:
    """One item of `resources/templates/list`."""
    return ResourceTemplate(
        uri_template=item["uriTemplate"],
        name=item["name"],
        title=item.get("title"),
        description=item.get("description"),
        mime_type=item.get("mimeType"),
        members=item,
    )


def read_result(answer: Answer) -> ReadResult:
    """The result of `resources/read`.

    Raises:
        ValueError: an interim result asks for something that is no request.
    """
    members = _object(answer.body)
    interim = answer.interim
    return ReadResult(
        result_type=INPUT_REQUIRED if interim else COMPLETE,
        contents=() if interim else tuple(_content(item) for item in members["contents"]),
        input_requests=_input_requests(members.get("inputRequests")) if interim else (),
        request_state=members.get("requestState") if interim else None,
        ttl_ms=answer.hint.ttl_ms,
        cache_scope=answer.hint.scope,
        meta=_object(answer.meta),
        members=members,
        cache_status=_cache_status(answer),
    )


def completion(answer: Answer) -> Completion:
    """The result of `completion/complete`."""
    members = _object(answer.body)
    found = members.pop("completion")
    total = found.get("total")
    return Completion(
        values=tuple(found["values"]),
        total=None if total is None else int(total),
        has_more=found.get("hasMore", False),
        meta=_object(answer.meta),
        members=members,
    )


def _content(item: dict[str, Any]) -> Content:
    return Content(
        uri=item["uri"],
        mime_type=item.get("mimeType"),
        text=item.get("text"),
        blob=item.get("blob"),
        members=item,
    )


def _input_requests(requests: dict[str, Any] | None) -> tuple[InputRequest, ...]:
    found = []
    for key, request in (requests or {}).items():
        match request:
            case {"method": str(method), "params": dict(params)}:
                found.append(InputRequest(key, method, params))
            case {"method": str(method)} if "params" not in request:
                found.append(InputRequest(key, method, {}))
            case _:
                raise ValueError("an input request is no request")
    return tuple(found)


def _incomplete(given: Any) -> tuple[Missing, ...]:
    try:
        return msgspec.convert(given or [], tuple[Missing, ...])
    except msgspec.ValidationError:
        return ()


def _cache_status(answer: Answer) -> str:
    # A federator in this process would say it itself; what comes straight from a server met no cache here.
    return answer.served.beyond or (cache_status(answer.served) if answer.served.upstreams else "")


def _object(joined: bytes) -> dict[str, Any]:
    """The object that has these members."""
    found: dict[str, Any] = json.loads(b"{%b}" % joined)
    return found
