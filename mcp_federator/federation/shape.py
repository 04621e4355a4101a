"""What the schema says of what stands in lists (schema/2026-07-28), as types: to decode is to check.

Only known members are here, and only their types; what else an object has is not looked at.  A member that
the schema declares optional may also be null: that is forgiven, and taken out elsewhere.

Hazard: not more than strict clients refuse may be refused here, for an item that has not its shape is lost
to lenient clients too.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw


class Shape(msgspec.Struct, gc=False):
    """An object of the schema."""


class Icon(Shape):
    """`Icon`."""

    src: str
    mime_type: str | None = msgspec.field(default=None, name="mimeType")
    sizes: list[str] | None = None
    theme: Literal["dark", "light"] | None = None


class Annotations(Shape):
    """`Annotations`."""

    audience: list[Literal["assistant", "user"]] | None = None
    priority: Annotated[float, Meta(ge=0, le=1)] | None = None
    last_modified: str | None = msgspec.field(default=None, name="lastModified")


class Metadata(Shape):
    """`MetaObject`; `ui` is any JSON, and empty where it is absent."""

    ui: Raw = Raw()


class Named(Shape):
    """What the things in lists have in common; in contents even the URI may be missing."""

    uri: str | None = None
    meta: Metadata | None = msgspec.field(default=None, name="_meta")
    mime_type: str | None = msgspec.field(default=None, name="mimeType")


class Described(Named, kw_only=True):
    """What `Resource` and `ResourceTemplate` have in common."""

    name: str
    title: str | None = None
    description: str | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None


class Resource(Described, kw_only=True):
    """`Resource`."""

    uri: str
    # A whole number in any spelling, as far as all readers take one with a point or an exponent for whole.
    size: int | Annotated[float, Meta(multiple_of=1, ge=-(2**53), le=2**53)] | None = None


class Template(Described, kw_only=True):
    """`ResourceTemplate`."""

    uri: str = msgspec.field(name="uriTemplate")


class Content(Named):
    """`TextResourceContents` or `BlobResourceContents`.

    Bodies are long, and not copied to learn that they are strings.  Whether a blob is base64 is not asked:
    it spoils nothing but itself, and its reader may be lenient.
    """

    text: Raw = Raw()
    blob: Raw = Raw()

    def __post_init__(self) -> None:
        """Refuse what is neither; the other one may be null."""
        begins = {bytes(memoryview(body)[:1]) for body in (self.text, self.blob)}
        if b'"' not in begins or not begins <= {b'"', b"n", b""}:
            raise ValueError("neither a text nor a blob")


class Completion(Shape):
    """`CompleteResult.completion`, less the limit of its values."""

    values: list[str]
    total: int | Annotated[float, Meta(multiple_of=1, ge=-(2**53), le=2**53)] | None = None
    has_more: bool | None = msgspec.field(default=None, name="hasMore")


def optional(shape: type[Shape]) -> frozenset[str]:
    """The names of its optional members, as they are spelt in JSON."""
    return frozenset(one.encode_name for one in msgspec.structs.fields(shape) if not one.required)
