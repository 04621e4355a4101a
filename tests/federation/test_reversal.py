from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_federator.federation.reversal import MAX_CHARACTERS, Value
from mcp_federator.federation.template import expand, match


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("file:///plain", "file:///plain", {}),
        ("file:///plain", "file:///other", None),
        ("a:{x}", "a:", {"x": ""}),
        ("a:{x}", "a:b%20c%C3%BC", {"x": "b cü"}),
        ("a:{x}", "a:b/c", None),
        ("a:{x}", "a:b c", None),
        ("a:{x}", "a:ü", None),
        ("a:{x}", "a:%zz", None),
        ("a:{x}", "a:%4", None),
        ("a:{x}", "a:%FF", None),
        ("ü:{x}", "%C3%BC:1", {"x": "1"}),
        ("a:{x}.json", "a:b.c.json", {"x": "b.c"}),
        ("a:{x}.json", "a:b.xml", None),
        ("a:{x}41", "a:b%2541", {"x": "b%"}),
        ("a:{x}41", "a:b%41", None),
        ("a:{x}/{y}", "a:1/2", {"x": "1", "y": "2"}),
        ("a:{x}/{y}", "a:1/2/3", None),
        ("a:{x}/{x}", "a:1/1", {"x": "1"}),
        ("a:{x}/{x}", "a:1/2", None),
        ("a:{x,y}", "a:1,2", {"x": "1", "y": "2"}),
        ("a:{x*}", "a:1,2", {"x": ["1", "2"]}),
        ("a:{x*}", "a:k=1,l=2", {"x": {"k": "1", "l": "2"}}),
        ("a:{x*}", "a:k=1,2", None),
        ("a:{x*}", "a:k=1,k=2", None),
        ("a:{+x}", "a:b/c?d#e", {"x": "b/c?d#e"}),
        ("a:{+x,y}", "a:1,2,3", {"x": "1", "y": "2,3"}),
        ("a:{+x*}", "a:1,2", {"x": ["1", "2"]}),
        ("a:{#x}", "a:", {}),
        ("a:{#x}", "a:#", {"x": ""}),
        ("a:{#x,y}", "a:#1,2", {"x": "1", "y": "2"}),
        ("a{.x}", "a.b.c", {"x": "b.c"}),
        ("a{.x*}", "a.b.c", {"x": ["b", "c"]}),
        ("a:{/x,y}", "a:/1/2", {"x": "1", "y": "2"}),
        ("a:{/x,y}", "a:/1/2/3", None),
        ("a:{/x*}", "a:/1/2/3", {"x": ["1", "2", "3"]}),
        ("a:{/x*}", "a:", {}),
        ("a{;x,y}", "a;x=1;y", {"x": "1", "y": ""}),
        ("a{;x,y}", "a;y=1", {"y": "1"}),
        ("a{;x*}", "a;k=1;l=2", {"x": {"k": "1", "l": "2"}}),
        ("a{?x,y}", "a?x=1&y=", {"x": "1", "y": ""}),
        ("a{?x,y}", "a?y=1", {"y": "1"}),
        ("a{?x,y}", "a?y=1&x=2", None),
        ("a{?x,y}", "a&x=1", None),
        ("a{?x}", "a?x=1,2", {"x": ["1", "2"]}),
        ("a{?x*}", "a?x=1&x=2", {"x": ["1", "2"]}),
        ("a?b=1{&x}", "a?b=1&x=2", {"x": "2"}),
        ("a{?x*,y*}", "a?x=1&x=2&x=3&y=4", {"x": ["1", "2", "3"], "y": ["4"]}),
        ("a{;x*}", "a;x;x=1", {"x": ["", "1"]}),
        ("a{;x*}", "a;x=;x=1", {"x": ["", "1"]}),
        ("a{;x}", "a;x=", {"x": ""}),
        ("a{;x}{y}", "a;x=%C2%80", {"x": "\x80", "y": ""}),
        ("a:{x}{y}", "a:%F0%9F%93%81", {"x": "", "y": "\U0001f4c1"}),
        ("a:{x}", "a:%F0%9F%93", None),
        ("a:{+x*}", "a:k=1,k=1", {"x": ["k=1", "k=1"]}),
        (
            "repo://{owner}/{+path}{?ref}",
            "repo://me/a/b.c?ref=1",
            {"owner": "me", "path": "a/b.c", "ref": "1"},
        ),
    ],
)
def test_each_operator_is_reversed(template: str, uri: str, values: dict[str, Value] | None) -> None:
    """RFC 6570, sections 3.2.2 to 3.2.9, levels 1 to 4."""
    assert match(template, uri) == values


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("{a}-{b}", "x-y-z", {"a": "x", "b": "y-z"}),
        ("{name}{.ext}", "a.tar.gz", {"name": "a", "ext": "tar.gz"}),
        ("{+a}/{+b}", "x/y/z", {"a": "x", "b": "y/z"}),
        ("{a}{b}", "xy", {"a": "", "b": "xy"}),
        ("{/a*}{/b}", "/x/y", {"a": ["x"], "b": "y"}),
        ("{?a*}{&b*}", "?x=1&y=2", {"a": {"x": "1"}, "b": {"y": "2"}}),
        ("{x}", "k,1", {"x": ["k", "1"]}),
        ("{+x}", "1,2", {"x": "1,2"}),
        ("{x,y}", "a,b,c", {"x": "a", "y": ["b", "c"]}),
        ("{x*}", "a", {"x": ["a"]}),
    ],
)
def test_where_several_values_fit_the_choice_is_told(
    template: str, uri: str, values: dict[str, Value]
) -> None:
    """A variable ends as soon as the rest fits; the other rules stand in the module."""
    assert match(template, uri) == values
    assert expand(template, values) == uri


@pytest.mark.parametrize(
    ("template", "values"),
    [
        ("{x,x}", {"x": {"": ""}}),
        ("{x*,y*}", {"x": {"a": "", "b": ""}, "y": {"b": ""}}),
        ("{?x,y*}{?z*}", {"z": ["", ""]}),
    ],
)
def test_an_expansion_that_does_not_match(template: str, values: dict[str, Any]) -> None:
    """A variable that stands twice, or several with `*`: the module says why."""
    assert match(template, expand(template, values)) is None


@pytest.mark.parametrize("template", ["{x:3}", "a:{y}/{x:1}", "{", "a b"])
def test_what_cannot_be_reversed_is_refused(template: str) -> None:
    """A prefix length throws the rest of the value away; and what is no template has no meaning."""
    with pytest.raises(ValueError, match=r"prefix length|no URI template"):
        match(template, "a:b")


@pytest.mark.parametrize(
    "template",
    [
        "".join(f"{{+v{n}}}" for n in range(12)),
        "{+a}/{+b}/{+c}/{+d}",
        "{a}-{b}-{c}-{d}",
        "{/a*}{/b*}{/c*}{?d*}",
    ],
)
@pytest.mark.parametrize("text", ["/", "a-", "%41", "?a=1&", ",", "a/"])
def test_no_text_makes_a_match_slow(template: str, text: str) -> None:
    """Each character is looked at twice, whatever there is to choose; the suite's time limit is the proof."""
    uri = text * (MAX_CHARACTERS // len(text))
    for end in ("", "!", "|"):
        match(template, uri[: MAX_CHARACTERS - 1] + end)


def test_a_very_long_uri_matches_nothing() -> None:
    """More than 8,192 characters are not looked at."""
    assert match("{x}", "a" * MAX_CHARACTERS) == {"x": "a" * MAX_CHARACTERS}
    assert match("{x}", "a" * (MAX_CHARACTERS + 1)) is None


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
word = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
words = st.lists(word, min_size=2, max_size=3)
table = st.dictionaries(word, word, min_size=1, max_size=3)
undotted = word.filter(lambda it: "." not in it)
unreserved_slash = st.text("ab/:-.", min_size=1, max_size=6)

REVERSIBLE = {
    "{NAME}": text | words,
    "{NAME*}": words | table,
    "{+NAME}": unreserved_slash,
    "{#NAME}": unreserved_slash | st.none(),
    "{.NAME}": word | words | st.none(),
    "{.NAME*}": st.lists(undotted, min_size=1, max_size=3) | st.none(),
    "{/NAME}": word | words | st.none(),
    "{/NAME*}": words | table | st.none(),
    "{;NAME}": text | words | st.none(),
    "{;NAME*}": words | table.filter(lambda it: set(it) != {"NAME"}) | st.none(),
    "{?NAME}": text | words | st.none(),
    "{?NAME*}": words | table | st.none(),
    "{&NAME}": text | words | st.none(),
    "{&NAME*}": words | table | st.none(),
    "{NAME,more}": word,
    "{?more,NAME}": text | st.none(),
}
"""Expressions, and the values that they give back."""


@settings(deadline=None)
@given(st.data(), st.lists(st.sampled_from(sorted(REVERSIBLE)), min_size=1, max_size=4))
def test_what_was_put_in_comes_out(data: st.DataObject, expressions: list[str]) -> None:
    """match(T, expand(T, v)) == v, for expressions that a text that no value gives keeps apart."""
    template = "x:"
    values: dict[str, Any] = {}
    for number, expression in enumerate(expressions):
        template += expression.replace("NAME", f"v{number}").replace("more", f"w{number}") + "@@"
        if "more" in expression:
            values[f"w{number}"] = data.draw(word)
        value = data.draw(REVERSIBLE[expression])
        if value is not None:
            values[f"v{number}"] = value
    assert match(template, expand(template, values)) == values


literals = st.text("abA0-._~:/?#[]@!$&'()*+,;=ü世", max_size=4)
expressions = st.tuples(st.sampled_from(["", *"+#./;?&"]), st.lists(st.booleans(), min_size=1, max_size=3))
short = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
anything = short | st.lists(short, max_size=3) | st.dictionaries(short, short, max_size=3) | st.none()


@settings(max_examples=300, deadline=None)
@given(st.data(), st.lists(literals | expressions, max_size=5))
def test_every_expansion_matches(data: st.DataObject, parts: list[str | tuple[str, list[bool]]]) -> None:
    """Where no variable stands twice and one at most has `*`, for any values; what comes out may differ."""
    template = ""
    values: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, str):
            template += part
            continue
        operator, exploded = part
        specs: list[str] = []
        for star in exploded:
            name = f"v{len(values)}"
            values[name] = data.draw(anything)
            specs.append(name + "*" * (star and "*}" not in template and "*" not in "".join(specs)))
        template += "{" + operator + ",".join(specs) + "}"
    assert match(template, expand(template, values)) is not None
