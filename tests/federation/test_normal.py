import re
from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AnyUrl, TypeAdapter, ValidationError
from yarl import URL

from mcp_federator.federation import normal
from mcp_federator.federation.normal import normal_form
from mcp_federator.federation.prefix import Mapping

_ANY_URL = TypeAdapter(AnyUrl)


def spellings(uri: str) -> list[str]:
    """The URI, and what real URL classes make of it; a class that refuses it sends nothing back."""
    found = [uri]
    with suppress(ValidationError):
        found.append(str(_ANY_URL.validate_python(uri)))
    with suppress(ValueError):
        found.append(str(URL(uri)))
    return found


PREFIXES = ["docs+", "docs://", "gw://docs/", "urn:docs:", ""]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(
    "native",
    [
        "file:///a b.txt",
        "file:///café/x",
        "file:///a/../b",
        "file:///a/./b/..",
        "file:///a/%2e%2E/b",
        "file:a",
        "file:/a",
        "file://",
        "file:////a",
        "file://localhost/a",
        "File:///A",
        "http://Ex.com",
        "HTTPS://Ex.com:443?a b",
        "http://ex.com:080/",
        "http://ex.com:",
        "http://café.example/ü",
        "http://u:@H/",
        "http://[::0:1]/",
        "mem://A_b/c",
        "x://h/A%2fb",
        "x://h/%7Ea",
        "x://h?",
        "x://h#",
        "x://h?q",
        "foo:///a",
        "foo://",
        "foo:////a",
        "foo:/..//a",
        "users/me",
        "memo:insights and more",
        "urn:isbn:0451450523",
        "urn:a/../b",
        "urn:é?ü#ö",
        "data:text/plain,hi there#x y",
        "mailto:a@b",
        "x://:@h/",
        "x://u:@h/",
        "x://u:p:q@h/",
        "x://a@b@h/",
        "x://caf%C3%A9/",
        "x://STRASSE.ß/",
        "x://h/!$&'()*+,;=:@/%21%24%26%27%28%29%2A%2C%3B%3D%3A%40",
        "x://h/?!$'()*,:@/?%21%24%27%28%29%2A%2C%3A%40%2F%3F",
        "x://h/?a=b+c d%20e&f=%26%3D%2B%3B",
        "x://h/#a#b %23+%2B",
        'x://h/"<>`{}|\\^[]?"<>`{}|\\^[]#"<>`{}|\\^[]',
        "x://h/%zz%/%4",
        "x://h/%FF%00",
        " \x01x://h/ab",
        "x://h/ ",
        "x://h/a %20#",
        "x://h? ",
        "x://h/a\tb\nc\r",
        "x://h/\x7f\x01/",
    ],
)
def test_H01_url_classes_and_the_original_agree(native: str, prefix: str) -> None:
    """What pydantic and yarl send back of a public URI has the form of what they were given."""
    assert {normal_form(spelling) for spelling in spellings(prefix + native)} == {
        normal_form(prefix + native)
    }


pieces = st.text("abzAZ09 .-_~%!$&'()*+,;=:@\"<>[]^`{}|üß世\x01\x7f\t", max_size=6) | st.sampled_from(
    ["..", ".", "%2e", "%2E%2e", "%20", "%2F", "%zz", "%", "%C3%BC", "%c3%bc", "a b", "%25"]
)
hosts = st.sampled_from(
    ["", "h", "H.Example", "A_b", "café", "caf%C3%A9", "u:p@h", "u:@h", "h:080", "h:", "[::0:1]", "Über.de"]
)
paths = st.lists(pieces, max_size=4).map(lambda given_pieces: "".join("/" + piece for piece in given_pieces))
ends = st.just("") | st.builds("?{}".format, pieces) | st.builds("?{}#{}".format, pieces, pieces)
hierarchical = st.builds(
    "{}://{}{}{}".format, st.sampled_from(["file", "mem", "http", "HTTPS", "Note"]), hosts, paths, ends
)
opaque = st.builds("{}:{}{}{}".format, st.sampled_from(["urn", "memo", "mailto"]), pieces, paths, ends)

_DRIVE = re.compile(r"/[A-Za-z](:|\||%3[aA]|%7[cC])")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["docs+", "gw://docs/", "urn:docs:", ""]), hierarchical | opaque)
def test_rule_10_url_classes_and_the_original_agree_on_any_uri(prefix: str, native: str) -> None:
    """The same for made-up URIs; what looks like a Windows drive is not covered."""
    uri = _DRIVE.sub("/", prefix + native)
    assert {normal_form(spelling) for spelling in spellings(uri)} == {normal_form(uri)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x://h/a", "x://h/A"),
        ("x://h/a/b", "x://h/a%2Fb"),
        ("x://h/a?b", "x://h/a%3Fb"),
        ("x://h/a#b", "x://h/a%23b"),
        ("x://h/a", "x://h/a/"),
        ("x://h/a//b", "x://h/a/b"),
        ("x://h/%25", "x://h/%2525"),
        ("x://h/?a=b&c", "x://h/?a=b%26c"),
        ("x://h/?a+b", "x://h/?a%2Bb"),
        ("x://h:80/", "x://h/"),
        ("x://h/a", "y://h/a"),
        ("x://u@h/a", "x://h/a"),
        ("urn:a", "urn:A"),
        ("urn:a/../b", "urn:b"),
        ("docs+http://h/a", "docs+http://i/a"),
    ],
)
def test_what_no_url_class_takes_for_the_same_stays_apart(one: str, other: str) -> None:
    """The form is coarse, but no coarser than the classes need."""
    assert normal_form(one) != normal_form(other)


@pytest.mark.parametrize(
    ("uri", "form"),
    [
        ("DOCS+file:///A b/../ü", "docs+file:///%C3%BC"),
        ("docs+file:///a/./b/../ü.md?x y+z%2Bé#", "docs+file:///a/%C3%BC.md?x%20y%20z%2B%C3%A9"),
        ("http://Ex.com", "http://ex.com/"),
        ("docs+http://Ex.com", "docs+http://ex.com/"),
        ("docs+file:///srv/docs/page-1.md", "docs+file:///srv/docs/page-1.md"),
        ("", ""),
    ],
)
def test_the_form_itself(uri: str, form: str) -> None:
    """Scheme and host in lower case, no dot segments, all but unreserved characters encoded in upper case."""
    assert normal_form(uri) == form


@settings(deadline=None)
@given(st.from_regex(normal._PLAIN, fullmatch=True))
def test_plain_uris_are_their_own_form(uri: str) -> None:
    """The short way for plain URIs gives what the long way gives."""
    assert normal._form(uri) == uri == normal_form(uri)


@settings(deadline=None)
@given(st.text(st.characters()))
def test_any_text_has_a_form(text: str) -> None:
    """Lone surrogates, controls and nonsense included; nothing raises."""
    assert isinstance(normal_form(text), str)
    assert isinstance(normal_form("x://" + text), str)


@pytest.mark.parametrize(
    "text", ["%20" * 2700 + "x", "/.." * 2700, "ü" * 8000, "xn--" + "a" * 8000, "[" * 8000, "//" * 10**6]
)
def test_no_text_makes_the_form_slow(text: str) -> None:
    """Every step is linear, and very long texts are their own form; the suite's time limit is the proof."""
    assert normal_form("x://" + text)


@pytest.mark.parametrize(
    "uri",
    [
        pytest.param("x://" + "\ufdfa" * 8000, id="host"),
        pytest.param("x://" + "\ufdfa" * 1000 + ".de", id="host-that-fits"),
        pytest.param("x://" + "%EF%B7%BA" * 900, id="encoded-host"),
        pytest.param("x://xn--" + "9a" * 4000, id="punycode"),
        pytest.param("x://h/" + "\U0001f4c1" * 8000, id="path"),
    ],
)
def test_a_form_is_bounded(uri: str) -> None:
    """Encoding makes twelve characters of one; that NFKC makes eighteen of one before is for short hosts."""
    assert len(normal_form(uri)) <= 12 * normal._LONGEST


def test_a_host_too_long_for_a_name_is_compared_as_text() -> None:
    """It has no case still, but no compatibility characters: the rules for names are what is slow."""
    long = "Ä" * 256
    assert normal_form(f"x://{long}/a b") == normal_form(f"x://{quote(long.lower())}/a%20b")
    assert normal_form("x://" + "\ufb01" * 100) == normal_form("x://" + "fi" * 100)
    assert normal_form("x://" + "\ufb01" * 256) != normal_form("x://" + "fi" * 256)


def test_a_uri_sent_back_rewritten_has_the_form_of_the_one_that_was_listed() -> None:
    """The whole way: listed in public form, rewritten by a URL class, recognised among the listed ones."""
    mapping = Mapping("docs")
    natives = ["file:///a b.txt", "file:///café/x", "file:///a/../b", "http://Ex.com", "mem://A_b/c"]
    listed = {normal_form(mapping.public(native) or ""): native for native in natives}
    assert len(listed) == len(natives)
    for native in natives:
        for sent in spellings(mapping.public(native) or ""):
            assert listed[normal_form(sent)] == native
