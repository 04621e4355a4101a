"""A server's question as lines: what may be typed, what it becomes, and that one may always say no."""

import asyncio
from typing import Any

import pytest

from mcp_federator.client import InputRequest
from mcp_federator.errors import FederatorError
from mcp_federator.form import Form


class Person:
    """Types these lines, then no more; remembers what was shown and asked."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.shown: list[str] = []
        self.asked: list[str] = []

    async def ask(self, prompt: str) -> str | None:
        self.asked.append(prompt)
        return self.lines.pop(0) if self.lines else None


def elicit(properties: Any, *, required: tuple[str, ...] = (), **more: Any) -> InputRequest:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return InputRequest("key", "elicitation/create", {"message": "Who?", "requestedSchema": schema, **more})


def fill_in(request: InputRequest, *lines: str) -> tuple[Any, Person]:
    person = Person(*lines)
    return asyncio.run(Form("http://x", person.shown.append, person.ask).fill_in(request)), person


def test_a_form_is_filled_in_line_by_line_and_shown_before_it_is_sent() -> None:
    """Who asks comes first, what goes back comes last."""
    request = elicit({"name": {"type": "string", "title": "Name"}, "age": {"type": "integer"}})
    answer, person = fill_in(request, "Ada", "36", "y")
    assert answer == {"action": "accept", "content": {"name": "Ada", "age": 36}}
    assert person.shown == ["http://x asks: Who?", '  name: "Ada"', "  age: 36"]
    assert person.asked == [
        "Name (may be empty): ",
        "age (a whole number; may be empty): ",
        "send this? [Y]es, [c]hange, [n]o: ",
    ]


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        (["a", ""], {"action": "accept", "content": {"name": "a"}}),
        (["a", "YES"], {"action": "accept", "content": {"name": "a"}}),
        (["a", "n"], {"action": "decline"}),
        (["a", "c", "b", "y"], {"action": "accept", "content": {"name": "b"}}),
        (["a", "what?", "b", "y"], {"action": "accept", "content": {"name": "b"}}),
        ([], {"action": "cancel"}),
        (["a"], {"action": "cancel"}),
        (["a", "c"], {"action": "cancel"}),
    ],
)
def test_one_may_change_decline_and_cancel(lines: list[str], answer: dict[str, Any]) -> None:
    """Only a clear yes sends what was typed; the end of input is no yes."""
    assert fill_in(elicit({"name": {"type": "string"}}), *lines)[0] == answer


CHOICE = {"oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]}


@pytest.mark.parametrize(
    ("form", "typed", "value"),
    [
        ({"type": "string"}, "  a b ", "a b"),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "abc", "abc"),
        ({"type": "string", "format": "email"}, "a@b", "a@b"),
        ({"type": "integer"}, "-7", -7),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "number"}, "3", 3),
        ({"type": "number", "minimum": 1, "maximum": 2}, "2", 2),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "boolean"}, "true", True),
        ({"type": "string", "enum": ["a", "b"]}, "b", "b"),
        ({"type": "string", **CHOICE}, "Red", "#f00"),
        ({"type": "string", **CHOICE}, "#0f0", "#0f0"),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, "b, a", ["b", "a"]),
        ({"type": "array", "items": {"anyOf": CHOICE["oneOf"]}}, "Green,Red", ["#0f0", "#f00"]),
        ({"type": "integer", "default": 5}, "", 5),
        ({"type": "boolean", "default": False}, "", False),
        ({"type": "string", "default": "x"}, "y", "y"),
    ],
)
def test_a_line_becomes_what_the_schema_wants(form: dict[str, Any], typed: str, value: object) -> None:
    """Every kind of field that the specification has."""
    answer, _ = fill_in(elicit({"it": form}, required=("it",)), typed, "y")
    assert answer["content"] == {"it": value}
    assert type(answer["content"]["it"]) is type(value)


@pytest.mark.parametrize(
    ("form", "typed", "says"),
    [
        ({"type": "integer"}, "1.5", "expected a whole number"),
        ({"type": "integer"}, "1_0", "expected a whole number"),
        ({"type": "integer", "minimum": 18}, "17", "expected a whole number, at least 18"),
        ({"type": "number", "maximum": 1}, "2", "expected a number, at most 1"),
        ({"type": "number"}, "nan", "expected a number"),
        ({"type": "string", "minLength": 2}, "a", "expected text, at least 2 characters"),
        ({"type": "string", "maxLength": 2}, "abc", "expected text, at most 2 characters"),
        ({"type": "boolean"}, "maybe", "expected yes or no"),
        ({"type": "string", "enum": ["a", "b"]}, "c", "expected one of a, b"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "a,c", "expected any of a, b, with commas betw"),
        ({"type": "string"}, "", "expected an answer"),
    ],
)
def test_what_does_not_fit_is_asked_again(form: dict[str, Any], typed: str, says: str) -> None:
    """With what was expected; nothing is sent meanwhile."""
    answer, person = fill_in(elicit({"it": form}, required=("it",)), typed)
    assert answer == {"action": "cancel"}
    assert len(person.asked) == 2
    assert person.asked[0] == person.asked[1]
    assert person.shown[-1].startswith(f"  {says}")


def test_a_field_that_is_not_required_may_be_left_out() -> None:
    """It is then not in the answer at all."""
    answer, _ = fill_in(elicit({"a": {"type": "integer"}, "b": {"type": "string"}}), "", "x", "y")
    assert answer["content"] == {"b": "x"}


def test_a_default_is_offered() -> None:
    """As the specification wants it."""
    _, person = fill_in(elicit({"a": {"type": "string", "default": "me", "description": "your name"}}))
    assert person.asked == ['a (your name; may be empty) ["me"]: ']


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (InputRequest("a", "sampling/createMessage", {}), "asks for sampling/createMessage; only forms"),
        (InputRequest("a", "roots/list", {}), "asks for roots/list; only forms"),
        (InputRequest("a", "x\x1b[2J", {}), r"asks for x\\x1b\[2J; only forms"),
        (elicit({}, mode="url"), "asks to open a URL; only forms"),
        (InputRequest("a", "elicitation/create", {"message": "m"}), "asks for input without a form"),
        (InputRequest("a", "elicitation/create", {"requestedSchema": {"properties": []}}), "without a form"),
        (elicit({"a": {"type": "object"}}), "a field that cannot be typed here: a"),
        (elicit({"a": {"type": "array", "items": {"type": "string"}}}), "cannot be typed here: a"),
        (elicit({"a": 5}), "cannot be typed here: a"),
        (elicit({"a": {"enum": [1, 2]}}), "cannot be typed here: a"),
    ],
)
def test_what_is_no_simple_form_is_refused(request_: InputRequest, says: str) -> None:
    """With a sentence, before anybody is asked."""
    with pytest.raises(FederatorError, match=says):
        fill_in(request_, "x", "y")


def test_what_the_server_says_cannot_command_the_terminal() -> None:
    """Neither its message, nor the names and hints of its fields."""
    evil = "\x1b[2J\n"
    form = {"type": "string", "title": evil, "description": evil, "default": evil}
    _, person = fill_in(elicit({evil: form}, message=evil), "", "y")
    assert all(line.isprintable() for line in [*person.shown, *person.asked])


def test_a_form_without_fields_is_a_question_of_yes_or_no() -> None:
    """Some servers ask for consent that way."""
    assert fill_in(elicit({}), "y")[0] == {"action": "accept", "content": {}}
    assert fill_in(elicit({}), "n")[0] == {"action": "decline"}
