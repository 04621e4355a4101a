"""Text to tree: the core schema, nothing twice, nothing unbounded, no value in a message."""

from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.config import document
from mcp_federator.errors import ConfigError


def read(text: str, source: str = "federator.yaml") -> object:
    problems: list[ConfigError] = []
    tree = document.read(text, source, problems)
    if problems:
        raise problems[0]
    return tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("no", "no"),
        ("Yes", "Yes"),
        ("off", "off"),
        ("y", "y"),
        ("1:30", "1:30"),
        ("190:20:30", "190:20:30"),
        ("2026-11-30", "2026-11-30"),
        ("2026-11-30T12:00:00Z", "2026-11-30T12:00:00Z"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        (".inf", ".inf"),
        (".NaN", ".NaN"),
        ("=", "="),
        ("<<", "<<"),
        ("tRue", "tRue"),
        ("1.2.3", "1.2.3"),
        ("e3", "e3"),
        ('"true"', "true"),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("0123", 123),
        ("0o17", 15),
        ("0x1F", 31),
        ("-7", -7),
        ("+12", 12),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("-1.5E-1", -0.15),
    ],
)
def test_a_scalar_is_what_the_core_schema_says(text: str, value: object) -> None:
    """Nothing of YAML 1.1 is left: no truth in `on`, no sixties in `1:30`, no dates."""
    tree = read(f"key: {text}\n")
    assert tree == {"key": value}
    assert isinstance(tree, dict)
    assert type(tree["key"]) is type(value)


@given(text=st.text(st.characters(codec="utf-8")))
def test_a_quoted_text_is_that_text(text: str) -> None:
    """Whatever it looks like, also through the JSON reader and back out of another YAML writer."""
    written = yaml.safe_dump({"key": text}, default_style='"', allow_unicode=False)
    assert read(written) == {"key": text}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"b": [1, 2.5, true, null, "x"]}}',
        '{\n\t"a": {\n\t\t"b": [1, 2.5, true, null, "x"]}}\n',
        '\ufeff{"a": {"b": [1, 2.5, true, null, "x"]}}',
        "{a: {b: [1, 2.5, true, null, x]}}",
        "a:\n  b: [1, 2.5, true, ~, x]\n",
        "\ufeff---\na:\n  b:\n  - 1\n  - 2.5\n  - true\n  -\n  - x\n...\n",
    ],
    ids=["json", "json-with-tabs", "json-with-bom", "yaml-flow", "yaml", "yaml-with-bom"],
)
def test_json_and_yaml_give_one_tree(text: str) -> None:
    """The text decides which it is, not the file's name."""
    assert read(text) == {"a": {"b": [1, 2.5, True, None, "x"]}}


def test_a_surrogate_pair_in_json_is_one_character() -> None:
    """JSON is read as JSON, not as almost YAML."""
    assert read('{"a": "\\ud83c\\udf89", "b": "\\/"}') == {"a": "🎉", "b": "/"}


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        ("a: 1\nb: 2\na: 3\n", "a", "expected once, stands again in line 3"),
        ('{"a": {"b": 1,\n"b": 2}}', "a.b", "expected once, stands twice"),
        ("{a: {b: 1, b: 2}}", "a.b", "expected once, stands again in line 1"),
        ("l:\n- x: 1\n  x: 2\n", "l[0].x", "expected once, stands again in line 3"),
        ('a: 1\n"a": 2\n', "a", "expected once, stands again in line 2"),
    ],
    ids=["top", "json", "flow", "in-a-list", "spelt-in-two-ways"],
)
def test_a_key_that_stands_twice_is_refused(text: str, path: str, problem: str) -> None:
    """Neither silently wins."""
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert (caught.value.path, caught.value.problem) == (path, problem)


@pytest.mark.parametrize("key", ["1", "true", "~", "1.5", "[a]", "{a: b}"])
def test_a_key_is_text(key: str) -> None:
    """A number, a truth value or a collection is no key."""
    with pytest.raises(ConfigError, match="expected keys that are text, line 2"):
        read(f"a:\n  ? {key}\n  : x\n")


def billion_laughs() -> str:
    rows = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (billion_laughs, "at most 50000 values"),
        (lambda: "a: &a [*a]", "at most 32 levels"),
        (lambda: "a: &a {b: *a}", "at most 32 levels"),
        (lambda: "[" * 500, "at most 32 levels"),
        (lambda: "[" * 34 + "]" * 34, "at most 32 levels"),
        (lambda: '{"a":' * 33 + "1" + "}" * 33, "at most 32 levels"),
        (lambda: '{"a":' * 5000 + "1" + "}" * 5000, "at most 32 levels"),
        (lambda: "a: " + "9" * 5000, "finite numbers of reasonable size"),
        (lambda: '{"a": ' + "9" * 5000 + "}", "finite numbers of reasonable size"),
        (lambda: "a: 1e999", "finite numbers of reasonable size"),
        (lambda: '{"a": 1e999}', "finite numbers of reasonable size"),
        (lambda: '{"a": NaN}', "finite numbers of reasonable size"),
        (lambda: '{"a": -Infinity}', "finite numbers of reasonable size"),
    ],
    ids=[
        "billion-laughs",
        "list-in-itself",
        "mapping-in-itself",
        "brackets",
        "deep-yaml",
        "deep-json",
        "very-deep-json",
        "long-integer",
        "long-integer-json",
        "huge-float",
        "huge-float-json",
        "nan",
        "infinity",
    ],
)
def test_what_would_not_end_is_refused(text: Callable[[], str], problem: str) -> None:
    """Expansion, depth and size of numbers are bounded."""
    with pytest.raises(ConfigError, match=problem):
        read(text())


def test_an_alias_is_its_anchor() -> None:
    """Aliases within the bounds are for use."""
    assert read("a: &a {x: 1}\nb: *a\n") == {"a": {"x": 1}, "b": {"x": 1}}


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: hunter2: x", "line 1, column 11"),
        ("a:\n\tb: hunter2", "line 2, column 1"),
        ("a: *hunter2", "put text that begins with \\* in quotes, line 1"),
        ("a: !hunter2", "put text that begins with ! in quotes"),
        ("a: !hunter2 [x]", "put text that begins with ! in quotes"),
        ("a: !hunter2!x y", "put text that begins with ! in quotes, line 1"),
        ("a: !!python/object/apply:os.system [hunter2]", "expected no tag, line 1"),
        ("a: !!binary aHVudGVyMg==", "expected no tag, line 1"),
        ("a: !!timestamp 2026-11-30", "expected no tag, line 1"),
        ("a: &hunter2 x\nb: &hunter2 y", "an anchor that is defined twice, line 2"),
        ("a: 'hunter2", "line 1"),
        ("a: @hunter2", "line 1, column 4"),
        ("a: %hunter2", "line 1, column 4"),
        ("- hunter2\n\x01", "a character that may not stand there, line 2"),
        ("a: hunter2\n---\nb: 1", "expected a single document, line 2"),
        ("{a: hunter2", "line 1"),
        ("!!int hunter2", "expected no tag, line 1"),
        ("!!bool hunter2", "expected no tag, line 1"),
        ("a: !!null hunter2", "expected no tag, line 1"),
    ],
)
def test_a_syntax_error_is_placed_and_quotes_nothing(text: str, place: str) -> None:
    """Any word of the file may be a secret whose quotes were forgotten."""
    with pytest.raises(ConfigError, match=place) as caught:
        read(text)
    assert "hunter2" not in str(caught.value)


def test_a_json_file_is_nothing_but_json() -> None:
    """Its name says so, and the message speaks of JSON."""
    with pytest.raises(ConfigError, match=r"no JSON: Expecting .*, line 2") as caught:
        read('{"a": "hunter2"\n"b": 1}', "federator.json")
    assert "hunter2" not in str(caught.value)


@given(text=st.text())
def test_any_text_is_a_tree_or_one_kind_of_error(text: str) -> None:
    """Nothing but `ConfigError` comes out."""
    try:
        read(text)
    except ConfigError:
        return


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("docs", "a.docs"),
        ("X-Api_Key", "a.X-Api_Key"),
        ("a.b", "a.'a.b'"),
        ("a\nb", "a.'a\\nb'"),
        ("", "a.''"),
    ],
)
def test_a_path_shows_odd_keys_in_quotes(key: str, path: str) -> None:
    """So it stays one line, and says where a dot is part of a key."""
    assert document.join("a", key) == path
