"""What `completion/complete` asks, in every era: params in, params out (server/utilities/completion).

The argument and its context are the asker's and the upstream's: they are looked at, to say whose fault it is
where they are nothing of the kind, and go on byte for byte.

What may not come in: where a reference leads, and what is answered.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from mcp_federator.model import Completion, Query
from mcp_federator.protocol.text import members

_REFERENCES: Final = {"ref/resource": "uri", "ref/prompt": "name"}
"""Kinds of references, and the member that names what is referred to."""

_TEXT: Final = msgspec.json.Decoder(str)
_TEXTS: Final = msgspec.json.Decoder(dict[str, str])
_ENCODER: Final = msgspec.json.Encoder()
_ABSENT: Final = msgspec.Raw()


def decode_params(params: Mapping[str, msgspec.Raw]) -> tuple[str | None, Completion]:
    """The URI or template that is referred to, None where it is a prompt, and what is to be completed.

    Raises:
        ValueError: what is wrong, as a sentence: a member is missing or of another type than the schema says,
            or two members of one object have the same name.
    """
    ref, argument = _object(params, "params", "ref"), _object(params, "params", "argument")
    member = _REFERENCES.get(_text(ref, "params.ref", "type"))
    if member is None:
        raise ValueError(f"params.ref.type must be {' or '.join(_REFERENCES)}")
    named = _text(ref, "params.ref", member)
    for name in ("name", "value"):
        _text(argument, "params.argument", name)
    context = _present(params, "context")
    if context:
        known = _object(params, "params", "context")
        if _present(known, "arguments"):
            _object(known, "params.context", "arguments")
            try:
                _TEXTS.decode(known["arguments"])
            except msgspec.DecodeError:
                raise ValueError("params.context.arguments must have strings as values") from None
    return named if member == "uri" else None, Completion(bytes(params["argument"]), bytes(context) or None)


def encode_params(query: Query, completion: Completion) -> bytes:
    """The members of the params of our call to an upstream, joined by commas, without braces."""
    context = b"" if completion.context is None else b',"context":' + completion.context
    return b'"ref":{"type":"ref/resource","uri":%b},"argument":%b%b' % (
        _ENCODER.encode(query.uri),
        completion.argument,
        context,
    )


def _object(parent: Mapping[str, msgspec.Raw], where: str, name: str) -> dict[str, msgspec.Raw]:
    text = bytes(parent.get(name, _ABSENT))
    if not text.startswith(b"{"):
        raise ValueError(f"{where}.{name} must be an object")
    try:
        return members(text)
    except ValueError as problem:
        raise ValueError(f"{where}.{name}: {problem}") from None


def _text(parent: Mapping[str, msgspec.Raw], where: str, name: str) -> str:
    try:
        return _TEXT.decode(parent.get(name, _ABSENT))
    except msgspec.DecodeError:
        raise ValueError(f"{where}.{name} must be a string") from None


def _present(parent: Mapping[str, msgspec.Raw], name: str) -> msgspec.Raw:
    """A member that is there and not null; otherwise the empty `Raw`."""
    found = parent.get(name, _ABSENT)
    return _ABSENT if bytes(found) == b"null" else found
