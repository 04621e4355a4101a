"""What a key may hold, said to people (`expected`) and to editors (`schema`).

Both read the fields of `settings`.  The schema describes the file as it is written: wherever a value is not
free text, a text with `${` in it may stand too; what that stands for is judged when the file is loaded.
"""

from typing import Any, Final

from msgspec import inspect

from mcp_federator.config import desktop
from mcp_federator.config.settings import Config, Duration, Size

DURATION: Final = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)"
SIZE: Final = r"([0-9]+(?:\.[0-9]+)?)(B|KiB|MiB|GiB)"
MILLISECONDS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
BYTES: Final = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}


def unwrap(type_: inspect.Type) -> tuple[inspect.Type, dict[str, Any], str]:
    """A field's type without its wrapping, the notes on it, and its description."""
    notes: dict[str, Any] = {}
    description = ""
    while isinstance(type_, inspect.Metadata):
        notes |= type_.extra or {}
        description = description or (type_.extra_json_schema or {}).get("description", "")
        type_ = type_.type
    return type_, notes, description


def fields(section: inspect.StructType) -> dict[str, inspect.Field]:
    """The keys of a section, in order."""
    return {field.name: field for field in section.fields if unwrap(field.type)[1].get("written", True)}


def expected(type_: inspect.Type) -> str:  # noqa: C901, PLR0911 - a case per type
    """What may stand there, in words that follow "expected" and stand in docs/configuration.md."""
    type_, notes, _ = unwrap(type_)
    if "expected" in notes:
        return str(notes["expected"])
    match type_:
        case inspect.BoolType():
            return "true or false"
        case inspect.IntType(ge=least, le=None):
            return f"a whole number, at least {least}"
        case inspect.IntType(ge=least, le=most):
            return f"a whole number from {least} to {most}"
        case inspect.CustomType(cls=cls) if cls is Duration:
            return "a duration such as 250ms, 10s, 5m or 24h" + (
                ", more than 0" if notes.get("least") else ""
            )
        case inspect.CustomType(cls=cls) if cls is Size:
            return "a size such as 512B, 64KiB or 16MiB" + (", more than 0" if notes.get("least") else "")
        case inspect.LiteralType() | inspect.EnumType():
            return "one of " + ", ".join(words(type_)) if len(words(type_)) > 1 else words(type_)[0]
        case inspect.StrType(min_length=int(least)):
            return f"text of at least {least} characters"
        case inspect.StrType():
            return "text"
        case inspect.UnionType(types=types):
            return f"{expected(types[0])}, or null"
        case inspect.VarTupleType(item_type=item):
            return f"a list, each item {expected(item)}" + (
                ", or one such item" if notes.get("single") else ""
            )
        case inspect.DictType() | inspect.StructType():
            return "a mapping"
    return "any value"


def words(type_: inspect.Type) -> list[str]:
    """The words of a closed set."""
    match type_:
        case inspect.LiteralType(values=values):
            return [str(value) for value in values]
        case inspect.EnumType(cls=cls):
            return [str(member.value) for member in cls]
    return []


def written(value: object) -> Any:
    """A default as it would stand in the file."""
    match value:
        case Duration() | Size():
            units, smallest = (MILLISECONDS, 1000) if isinstance(value, Duration) else (BYTES, 1)
            whole = round(value * smallest)
            fitting = [unit for unit, factor in units.items() if whole >= factor and whole % factor == 0]
            unit = [*fitting, *units][0 if fitting else -1]
            return f"{whole // units[unit]}{unit}"
        case tuple():
            return list(value)
    return value


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the configuration file."""
    form = _form(inspect.type_info(Config))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of mcp-federator",
        **form,
        "properties": {**form["properties"], desktop.BLOCK: desktop.FORM},
        "not": {"type": "object", "required": ["upstreams", desktop.BLOCK]},
        "$defs": {
            "filled": {
                "description": "${VAR}, ${VAR:-default} or ${file:PATH}, filled in when the file is loaded.",
                "type": "string",
                "pattern": r"\$\{",
            },
            "duration": {"type": "string", "pattern": f"^{DURATION}$"},
            "size": {"type": "string", "pattern": f"^{SIZE}$"},
        },
    }


def _form(type_: inspect.Type) -> dict[str, Any]:
    type_, notes, description = unwrap(type_)
    form = _bare_form(type_, notes)
    return {"description": description, **form} if description else form


def _bare_form(type_: inspect.Type, notes: dict[str, Any]) -> dict[str, Any]:  # noqa: C901, PLR0911 - likewise
    filled = {"$ref": "#/$defs/filled"}
    match type_:
        case inspect.StructType():
            keys = fields(type_)
            form = {
                "type": ["object", "null"],
                "properties": {name: _property(field) for name, field in keys.items()},
                "required": [name for name, field in keys.items() if field.required],
                "additionalProperties": False,
            }
            return form | _one_of(getattr(type_.cls, "one_of", ()))
        case inspect.DictType(key_type=key, value_type=item):
            return {
                "type": ["object", "null"],
                "propertyNames": _text_form(key),
                "additionalProperties": _form(item),
            }
        case inspect.VarTupleType(item_type=item):
            many = {"type": ["array", "null"], "items": _form(item)}
            return {"anyOf": [many, _form(item)]} if notes.get("single") else many
        case inspect.UnionType(types=types):
            return {"anyOf": [_form(types[0]), {"type": "null"}]}
        case inspect.StrType(min_length=None, pattern=None):
            return {"type": "string"}
        case inspect.StrType():
            return {"anyOf": [_text_form(type_), filled]}
        case inspect.BoolType():
            return {"anyOf": [{"type": "boolean"}, filled]}
        case inspect.IntType(ge=least, le=most):
            bounds = {"minimum": least, "maximum": most}
            number = {key: bound for key, bound in bounds.items() if bound is not None}
            return {"anyOf": [{"type": "integer", **number}, filled]}
        case inspect.CustomType(cls=cls):
            least = notes.get("least", 0)
            unit, kind = ("duration", "number") if cls is Duration else ("size", "integer")
            return {"anyOf": [{"$ref": f"#/$defs/{unit}"}, {"type": kind, "minimum": least}, filled]}
        case inspect.LiteralType() | inspect.EnumType():
            return {"anyOf": [{"enum": words(type_)}, filled]}
    return {}


def _one_of(names: tuple[str, ...]) -> dict[str, Any]:
    """Exactly one of these keys is there and not null."""
    forms = [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]
    return {"oneOf": forms} if forms else {}


def _text_form(type_: inspect.Type) -> dict[str, Any]:
    type_, _, _ = unwrap(type_)
    form: dict[str, Any] = {"type": "string"}
    if isinstance(type_, inspect.StrType):
        form |= {"pattern": type_.pattern} if type_.pattern else {}
        form |= {"minLength": type_.min_length} if type_.min_length else {}
    return form


def _property(field: inspect.Field) -> dict[str, Any]:
    form = _form(field.type)
    if not isinstance(unwrap(field.type)[0], inspect.StructType | inspect.DictType) and not field.required:
        form["default"] = written(field.default)
    return form
