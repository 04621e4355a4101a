"""Resources from your own Python code: what a repository is, and what it may give.

A repository is a class.  It needs nothing from here but the exceptions; to derive it from `Repository` lets a
type checker look at it.  docs/repositories.md shows one from the first line to the running federator.

    class PeopleRepository(Repository):
        prefix = "people://"
        template = "people://{team}/{name}"

        def list(self, cursor):
            return [Resource(uri=expand(self.template, person), name=person["name"]) for person in PEOPLE]

        def read(self, variables):
            for person in PEOPLE:
                if person["team"] == variables["team"] and person["name"] == variables["name"]:
                    return f"{person['name']} works in {person['team']}."
            raise NotFound

What may not come in: anything of the house but the templates; users' code imports this module.
"""

from abc import abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from mcp_federator.federation.reversal import Value
from mcp_federator.federation.template import expand, match

__all__ = [
    "Content",
    "Invalid",
    "Item",
    "Listing",
    "NotFound",
    "Page",
    "Part",
    "Reading",
    "Repository",
    "Resource",
    "Unavailable",
    "Value",
    "expand",
    "match",
]


class NotFound(Exception):  # noqa: N818 - the word users know
    """There is no such resource.  The client is told so, with the message if there is one."""


class Invalid(Exception):  # noqa: N818 - likewise
    """What was asked is wrong: a URI that `parse_uri` rejects, a cursor that is none.

    The client is told the message.
    """


class Unavailable(Exception):  # noqa: N818 - likewise
    """There is no answer now, because what is behind the repository is down.

    A stale copy is served where one may be, and a list goes on without this repository.  The message is for
    the log.
    """


class Resource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An item of a list (server/resources, "Resource").

    Attributes:
        uri: begins with the repository's prefix.
        name: a short one, for programs and people.
        size: bytes of the contents.
        annotations: `audience`, `priority` from 0 to 1, `lastModified` as in 2026-01-31T12:00:00Z.
        meta: goes out as `_meta`.
    """

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Mapping[str, Any] | None = None
    meta: Mapping[str, Any] | None = msgspec.field(default=None, name="_meta")


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """One part of what a read gives, where a text or bytes alone do not say enough.

    Attributes:
        body: a text, or bytes.
        mime_type: of the body.
        uri: of this part; None is the URI that was read.
        meta: goes out as `_meta`.
    """

    body: str | bytes
    mime_type: str | None = None
    uri: str | None = None
    meta: Mapping[str, Any] | None = None


Item: TypeAlias = Resource | Mapping[str, Any] | Any
"""A resource, a mapping with the protocol's names (`uri`, `name`, `mimeType`), or a dataclass or msgspec
struct whose fields have these names."""

Part: TypeAlias = str | bytes | Content | Mapping[str, Any] | Any
"""A text, bytes, a `Content`, or a mapping with the protocol's names (`text` or `blob`, `mimeType`)."""


class Page(msgspec.Struct, frozen=True):
    """One page of a list.

    Attributes:
        items: in the order in which they are to be shown.
        next_cursor: what `list` gets to continue, any text up to 4 KiB; None after the last page.
    """

    items: Sequence[Item]
    next_cursor: str | None = None


Listing: TypeAlias = Page | Sequence[Item]
Reading: TypeAlias = Part | Sequence[Part]


class Repository(Protocol):
    """What a repository has; any class that has it is one.

    It is made once, with the `options` of the configuration as keyword arguments, in a thread.  Each method
    may be `async`.  Others run in threads, several at a time: what they share they must protect.

    These are optional:

    - `template`: a URI template (RFC 6570) below the prefix, or a mapping with `uriTemplate` and more that
      clients shall see, such as `description`.  A URI that is read is matched against it, and `read` gets the
      variables instead of the URI.  One that does not match is not found.
    - `parse_uri(uri)`: takes that step over.  What it returns goes to `read`; it may raise `Invalid` or
      `NotFound`.
    - `cache_control(uri)`: how long an answer may be kept, and for whom: `("public", 60_000)` is a minute,
      for everyone; `("private", 0)` is not at all.  For a list `uri` is None.  A pair instead of a method
      holds for all.  Without it the configuration's `cache.default_ttl` and `cache.default_scope` hold, and
      these keep nothing unless told to.
    - `close()`: the repository is no longer needed.
    """

    prefix: str
    """What the URIs of all its resources begin with: a scheme at least, such as `people:` or `people://`."""

    @abstractmethod
    def list(self, cursor: str | None, /) -> Listing | Awaitable[Listing]:
        """One page of the resources, or all of them.

        Args:
            cursor: None for the first page, else the `next_cursor` of an earlier one.

        Raises:
            Invalid: the cursor is none of ours.
            Unavailable: there is no answer now.
        """
        ...

    @abstractmethod
    def read(self, what: Any, /) -> Reading | Awaitable[Reading]:
        """The contents of one resource.

        Args:
            what: the URI; with a `template` its variables by name; with `parse_uri` what that returned.

        Raises:
            NotFound: there is no such resource.
            Unavailable: there is no answer now.
        """
        ...
