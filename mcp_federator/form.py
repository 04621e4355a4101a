"""A server's question as a form on a terminal, line by line (client/elicitation, "Form Mode").

Pure but for the two functions it is given: one shows a line, one asks for one.  What may not come in: where
lines come from, and requests that are no form; those are refused with a sentence.

Hazards:
- Whoever answers must see who asks, may look at his answers before they are sent, and may always say no.
- Every word of the question comes from outside, and is made printable before it is shown.
- What a schema wants of an answer is checked here as far as a person can mend it; the server checks the rest.
"""

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from mcp_federator.client import InputRequest
from mcp_federator.errors import FederatorError
from mcp_federator.log import clean

Ask: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Shows a prompt and gives the line that was typed, or None where there is none to come."""

_MAX_SHOWN: Final = 1000
_NO: Final = frozenset({"n", "no"})
_YES: Final = frozenset({"", "y", "yes"})
_WORDS: Final = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


class _Field(msgspec.Struct, frozen=True):
    """One line of the form.

    Attributes:
        name: of the property.
        title: what it is called before people.
        hint: what may be typed.
        required: it may not be left empty.
        default: what an empty line means; None where it means nothing.
        read: the value of what was typed; raises ValueError with what was expected.
    """

    name: str
    title: str
    hint: str
    required: bool
    default: Any
    read: Callable[[str], Any]


class Form:
    """Fills in forms for one server.

    Args:
        server: who asks, as people know it.
        say: shows a line.
        ask: asks for one.
    """

    def __init__(self, server: str, say: Callable[[str], None], ask: Ask) -> None:
        self._server = server
        self._say = say
        self._ask = ask

    async def fill_in(self, request: InputRequest) -> Mapping[str, Any]:
        """The answer to a request: `accept` with what was typed, `decline`, or `cancel` at the end of input.

        Raises:
            FederatorError: the request is no form, or wants more than lines can hold.
        """
        if request.method != "elicitation/create":
            raise FederatorError(
                f"the server asks for {clean(request.method)}; only forms can be filled in here"
            )
        if request.params.get("mode", "form") != "form":
            raise FederatorError("the server asks to open a URL; only forms can be filled in here")
        fields = _fields(request.params.get("requestedSchema"))
        self._say(f"{self._server} asks: {_shown(request.params.get('message', ''))}")
        while True:
            content = await self._answers(fields)
            if content is None:
                return {"action": "cancel"}
            for name, value in content.items():
                self._say(f"  {_shown(name)}: {_shown(json.dumps(value, ensure_ascii=False))}")
            line = await self._ask("send this? [Y]es, [c]hange, [n]o: ")
            if line is None:
                return {"action": "cancel"}
            if line.strip().lower() in _NO:
                return {"action": "decline"}
            if line.strip().lower() in _YES:
                return {"action": "accept", "content": content}

    async def _answers(self, fields: tuple[_Field, ...]) -> dict[str, Any] | None:
        content = {}
        for field in fields:
            while True:
                line = await self._ask(f"{field.title}{field.hint}: ")
                if line is None:
                    return None
                text = line.strip()
                if not text and field.default is not None:
                    content[field.name] = field.default
                    break
                if not text and not field.required:
                    break
                try:
                    content[field.name] = field.read(text or _nothing())
                except ValueError as problem:
                    self._say(f"  expected {problem}")
                else:
                    break
        return content


def _nothing() -> NoReturn:
    raise ValueError("an answer; the server wants one")


def _fields(schema: Any) -> tuple[_Field, ...]:
    """The lines of a form; raises `FederatorError` where one cannot be typed."""
    match schema:
        case {"properties": dict(properties)}:
            required = schema.get("required")
            names = required if isinstance(required, list) else []
            return tuple(_field(name, form, required=name in names) for name, form in properties.items())
    raise FederatorError("the server asks for input without a form")


def _field(name: str, form: Any, *, required: bool) -> _Field:
    if not isinstance(form, dict):
        raise FederatorError(f"the server's form has a field that cannot be typed here: {_shown(name)}")
    read, expected = _reading(name, form)
    default = form.get("default")
    title = _shown(form.get("title") or name)
    about = _shown(form["description"]) if isinstance(form.get("description"), str) else ""
    notes = [about, expected, "" if required else "may be empty"]
    notes = list(filter(None, notes))
    hint = f" ({'; '.join(notes)})" if notes else ""
    if default is not None:
        hint += f" [{_shown(json.dumps(default, ensure_ascii=False))}]"
    return _Field(name, title, hint, required, default, read)


def _reading(name: str, form: dict[str, Any]) -> tuple[Callable[[str], Any], str]:
    """How a line becomes a value, and what to type."""
    if choices := _choices(form):
        expected = f"one of {', '.join(_shown(each) for each in choices)}"
        return _one_of(choices, expected), expected
    match form:
        case {"type": "string"}:
            return _text(form)
        case {"type": "integer" | "number" as kind}:
            return _number(form, whole=kind == "integer")
        case {"type": "boolean"}:
            return _truth, "yes or no"
        case {"type": "array", "items": dict(items)} if choices := _choices(items):
            expected = f"any of {', '.join(_shown(each) for each in choices)}, with commas between"
            one = _one_of(choices, expected)
            return (lambda line: [one(each.strip()) for each in line.split(",")]), expected
    raise FederatorError(f"the server's form has a field that cannot be typed here: {_shown(name)}")


def _choices(form: dict[str, Any]) -> dict[str, str]:
    """The values of a closed set, by what may be typed for them."""
    titled = form.get("oneOf", form.get("anyOf"))
    if isinstance(titled, list):
        pairs = [
            (each.get("title", each.get("const")), each.get("const"))
            for each in titled
            if isinstance(each, dict)
        ]
    else:
        names = form.get("enum") if isinstance(form.get("enum"), list) else []
        pairs = [(each, each) for each in names or []]
    return {title: value for title, value in pairs if isinstance(title, str) and isinstance(value, str)}


def _one_of(choices: dict[str, str], expected: str) -> Callable[[str], str]:
    def read(line: str) -> str:
        if line in choices:
            return choices[line]
        if line in choices.values():
            return line
        raise ValueError(expected)

    return read


def _text(form: dict[str, Any]) -> tuple[Callable[[str], str], str]:
    least, most = (form.get(key) for key in ("minLength", "maxLength"))
    format_ = form.get("format")
    bounds = [
        f"at least {least} characters" if isinstance(least, int) else "",
        f"at most {most} characters" if isinstance(most, int) else "",
    ]
    kind = _shown(format_) if isinstance(format_, str) else "text"
    expected = ", ".join(filter(None, [kind, *bounds]))

    def read(line: str) -> str:
        if (isinstance(least, int) and len(line) < least) or (isinstance(most, int) and len(line) > most):
            raise ValueError(expected)
        return line

    return read, "" if expected == "text" else expected


def _number(form: dict[str, Any], *, whole: bool) -> tuple[Callable[[str], float], str]:
    least, most = (form.get(key) for key in ("minimum", "maximum"))
    bounds = [
        f"at least {least}" if isinstance(least, int | float) else "",
        f"at most {most}" if isinstance(most, int | float) else "",
    ]
    expected = ", ".join(filter(None, ["a whole number" if whole else "a number", *bounds]))

    def read(line: str) -> float:
        if re.fullmatch(r"[-+]?[0-9]{1,300}" + ("" if whole else r"(\.[0-9]+)?"), line) is None:
            raise ValueError(expected)
        value = float(line) if "." in line else int(line)
        if (isinstance(least, int | float) and value < least) or (
            isinstance(most, int | float) and value > most
        ):
            raise ValueError(expected)
        return value

    return read, expected


def _truth(line: str) -> bool:
    if (word := line.lower()) in _WORDS:
        return _WORDS[word]
    raise ValueError("yes or no")


def _shown(text: Any) -> str:
    return clean(str(text), _MAX_SHOWN)
