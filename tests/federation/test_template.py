from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mcp_federator.federation.prefix import Mapping
from mcp_federator.federation.template import expand, literal_head, valid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "file:///plain",
        "repo://{owner}/{+path}{?ref,q*}",
        "file:///{path}",
        "data://{id}{?format}",
        "x{#frag}{.label*}{/seg,ments}{;p:3}{&more}",
        "{var:9999}",
        "{a.b.c}{_x}{%41b}{0}",
        "it's~!$&()*+,;=:@[]/?#%7e{x}",
        "ü/世界/\U0001f600/{x}",
    ],
)
def test_what_every_processor_can_expand_is_a_template(text: str) -> None:
    """RFC 6570, section 2, levels 1 to 4, literals beyond ASCII included."""
    assert valid(text)


@pytest.mark.parametrize(
    "text",
    [
        "{/id*",
        "/id*}",
        "{/?id}",
        "{var:prefix}",
        "{hello:2*}",
        "{??hello}",
        "{!hello}",
        "{with space}",
        "{ leading}",
        "{=path}",
        "{$var}",
        "{|var*}",
        "{*keys?}",
        "{?empty=default,var}",
        "{var}{-prefix|/-/|var}",
        "/sparql{?query){&default-graph-uri*}",
        "{default-graph-uri}",
        "/resolution{?x, y}",
        "{}",
        "{+}",
        "{,a}",
        "{a,}",
        "{a..b}",
        "{.a.}",
        "{x:0}",
        "{x:10000}",
        "{{x}}",
        "a b",
        'a"b',
        "a<b>",
        "a\\b",
        "a^b",
        "a`b",
        "a|b",
        "%zz",
        "%4",
        "a\n",
        "\x7f",
        "\x85",
        "\ud800",
        "\ufffe",
        "{ü}",
    ],
)
def test_what_is_not_rfc_6570_is_no_template(text: str) -> None:
    """Section 2, and the operators reserved for extensions: nobody can expand those."""
    assert not valid(text)


@pytest.mark.parametrize("text", ["{" * 50_000, "%41" * 50_000 + "%", "{a," * 50_000, "{a.a" * 50_000])
def test_no_text_makes_the_check_slow(text: str) -> None:
    """Every character is looked at a bounded number of times; the suite's time limit is the proof."""
    assert not valid(text)


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("repo://{owner}/{+path}{?ref,q*}", "repo://me/a/b%20c.md?x=1&y=2"),
        ("data://{id}{?format}", "data://123"),
        ("ü/{id}", "%C3%BC/123"),
        ("file:///plain", "file:///plain"),
    ],
)
def test_H03_expansion_follows_the_rfc(text: str, uri: str) -> None:
    """Operators expand, undefined variables vanish, literals beyond ASCII are percent-encoded."""
    values = {"owner": "me", "path": "a/b c.md", "q": {"x": "1", "y": "2"}, "id": "123"}
    assert expand(text, values) == uri


@pytest.mark.parametrize(("text", "head"), [("a://b/{c}{d}", "a://b/"), ("{c}", ""), ("a://b", "a://b")])
def test_the_literal_head_ends_at_the_first_expression(text: str, head: str) -> None:
    """It is what all expansions have in common, whatever the values."""
    assert literal_head(text) == head


literals = st.text("abA0-._~:/?#[]@!$&'()*+,;=ü世", max_size=6)
names = st.sampled_from(["x", "path", "a.b", "_1"])
expressions = st.builds(
    lambda operator, variables: "{" + operator + ",".join(variables) + "}",
    st.sampled_from(["", "+", "#", ".", "/", ";", "?", "&"]),
    st.lists(st.builds(str.__add__, names, st.sampled_from(["", "*", ":3"])), min_size=1, max_size=3),
)
templates = st.lists(literals | expressions, max_size=5).map("".join)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
values = st.dictionaries(
    names, words | st.lists(words, max_size=3) | st.dictionaries(words, words, max_size=3)
)
mappings = st.sampled_from(
    [Mapping("docs"), Mapping("docs", "docs://"), Mapping("docs", "urn:docs:"), Mapping("docs", "")]
)


def without_prefix_lengths(text: str, given_values: dict[str, Any]) -> bool:
    """Section 2.4.1: a prefix length applies to no list and no mapping."""
    return ":3" not in text or all(isinstance(value, str) for value in given_values.values())


@settings(deadline=None)
@given(mappings, st.sampled_from(["repo://", "urn:", "ui://"]), templates, values)
def test_H03_expanding_and_prefixing_commute(
    mapping: Mapping, scheme: str, rest: str, given_values: dict[str, Any]
) -> None:
    """expand(public(T), v) == public(expand(T, v)), for every template with a scheme and all values."""
    text = scheme + rest
    assert valid(text)
    assume(without_prefix_lengths(text, given_values))
    shown = mapping.template(text)
    assert shown is not None
    assert expand(shown, given_values) == mapping.public(expand(text, given_values))


@settings(deadline=None)
@given(mappings, st.sampled_from(["", "u", "ui:"]), templates, values)
def test_H03_without_a_literal_scheme_expanding_and_prefixing_commute_after_resolution(
    mapping: Mapping, head: str, rest: str, given_values: dict[str, Any]
) -> None:
    """native(expand(public(T), v)) == expand(T, v), also where the values make it a ui:// URI."""
    text = head + rest
    assume(without_prefix_lengths(text, given_values))
    shown = mapping.template(text)
    assert shown is not None
    assert mapping.native(expand(shown, given_values)) == expand(text, given_values)


def test_a_template_that_expands_to_a_ui_uri_reads_the_same_resource() -> None:
    """`docs+ui://x` is never listed, and leads where `ui://docs/x` leads."""
    mapping = Mapping("docs")
    shown = mapping.template("{+any}")
    assert shown is not None
    assert expand(shown, {"any": "ui://x"}) == "docs+ui://x"
    assert mapping.native("docs+ui://x") == mapping.native("ui://docs/x") == "ui://x"
