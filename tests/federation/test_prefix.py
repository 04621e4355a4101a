from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_federator.errors import ConfigError
from mcp_federator.federation.prefix import Mapping, Router, problems

SHAPES = [
    "file:///a b.txt",
    "file:///café/x",
    "file:///a/../b",
    "http://Ex.com",
    "mem://A_b/c",
    "x://h/A%2fb",
    "x://h/%7Ea",
    "x://h?",
    "x://h#",
    "foo:///a",
    "users/me",
    "memo:insights",
    "urn:isbn:0451450523",
    "data:text/plain,hi",
    "mailto:a@b",
    "",
    "docs+file:///already",
    "ui://docs/x",
    "UI://x",
]

MAPPINGS = [
    Mapping("docs", None),
    Mapping("docs", "docs://"),
    Mapping("docs", "gw://docs/"),
    Mapping("docs", "urn:docs:"),
    Mapping("docs", ""),
    Mapping("docs", "Docs+"),
]


@pytest.mark.parametrize("mapping", MAPPINGS, ids=repr)
@pytest.mark.parametrize("native", SHAPES)
def test_H01_H02_a_listed_uri_read_unchanged_reaches_the_upstream_unchanged(
    native: str, mapping: Mapping
) -> None:
    """Whatever a URI looks like, its public form leads back to the identical string."""
    public = mapping.public(native)
    assert public is not None
    assert mapping.native(public) == native
    assert Router([mapping]).route(public) == ("docs", native)


@pytest.mark.parametrize(
    ("mapping", "native", "public"),
    [
        (Mapping("docs", None), "file:///a.md", "docs+file:///a.md"),
        (Mapping("docs", None), "urn:x:1", "docs+urn:x:1"),
        (Mapping("docs", None), "ui://x/y", "ui://docs/x/y"),
        (Mapping("docs", None), "UI://x", "docs+UI://x"),
        (Mapping("docs", "docs://"), "ui://x", "ui://docs/x"),
        (Mapping("docs", ""), "ui://x", "ui://x"),
        (Mapping("docs", ""), "file:///a.md", "file:///a.md"),
        (Mapping("docs", "docs://", "file:///srv/docs/"), "file:///srv/docs/a.md", "docs://a.md"),
        (Mapping("docs", "docs://", "file:///srv/docs/"), "file:///srv/docs", None),
        (Mapping("docs", "docs://", "file:///srv/docs/"), "FILE:///srv/docs/a.md", None),
        (Mapping("docs", "docs://", "file:///srv/docs/"), "ui://x", None),
        (Mapping("docs", "docs://", "ui://app/"), "ui://app/x", "ui://docs/app/x"),
        (Mapping("docs", "", "inner+"), "inner+file:///a", "file:///a"),
    ],
)
def test_the_public_form_is_the_prefix_and_the_native_uri(
    mapping: Mapping, native: str, public: str | None
) -> None:
    """Rules 1, 3 and 4: prefixed as text, ui:// in its own form, None outside the native prefix."""
    assert mapping.public(native) == public


@pytest.mark.parametrize(
    ("mapping", "public", "native"),
    [
        (Mapping("docs", None), "docs+ui://x", "ui://x"),
        (Mapping("docs", "docs://"), "docs://ui://x", "ui://x"),
        (Mapping("docs", None), "DOCS+file:///A", "file:///A"),
        (Mapping("docs", None), "Docs+File:///A", "File:///A"),
        (Mapping("docs", None), "DOCS+users/Me", "users/Me"),
        (Mapping("docs", None), "DOCS+café:x", "café:x"),
        (Mapping("docs", None), "UI://docs/X", "ui://X"),
        (Mapping("docs", None), "ui://Docs/X", None),
        (Mapping("docs", None), "ui://docs", None),
        (Mapping("docs", "Docs+"), "docs+x:1", "x:1"),
        (Mapping("docs", "gw://docs/"), "GW://docs/A", "A"),
        (Mapping("docs", "gw://docs/"), "gw://DOCS/A", None),
        (Mapping("docs", "urn:docs:"), "URN:docs:A", "A"),
        (Mapping("docs", "urn:docs:"), "urn:DOCS:A", None),
        (Mapping("kb", None), "\u212ab+x", None),
        (Mapping("docs", None), "docs", None),
        (Mapping("docs", None), "", None),
        (Mapping("docs", "docs://", "ui://app/"), "ui://docs/app/x", "ui://app/x"),
        (Mapping("docs", "docs://", "ui://app/"), "docs://x", "ui://app/x"),
        (Mapping("docs", "docs://", "ui://app/"), "ui://docs/other", None),
        (Mapping("docs", "docs://", "file:///srv/"), "ui://docs/x", None),
    ],
)
def test_reads_find_their_way_back(mapping: Mapping, public: str, native: str | None) -> None:
    """Only the scheme part of a public URI is matched without regard to case, and only in ASCII."""
    assert mapping.native(public) == native
    route = Router([mapping, Mapping("other")]).route(public)
    assert route == (None if native is None else (mapping.name, native))


def test_H04_the_same_uri_of_two_upstreams_is_two_uris() -> None:
    """Each upstream has its own public form, and each leads to its own upstream."""
    alpha, beta = Mapping("alpha"), Mapping("beta")
    router = Router([alpha, beta])
    assert [router.route(mapping.public("timezone://info") or "") for mapping in (alpha, beta)] == [
        ("alpha", "timezone://info"),
        ("beta", "timezone://info"),
    ]


@pytest.mark.parametrize(
    ("public", "route"),
    [
        ("app+admin-x://y", ("app", "admin-x://y")),
        ("app-admin+x://y", ("app-admin", "x://y")),
        ("ui://app/-admin", ("app", "-admin")),
        ("ui://app-admin/x", ("app-admin", "x")),
        ("appadmin+x://y", None),
        ("a+x://y", None),
        ("app", None),
        ("zzz+x://y", None),
        ("0", None),
    ],
)
def test_H05_a_name_that_begins_another_is_no_ambiguity(public: str, route: tuple[str, str] | None) -> None:
    """The separator stands in no name; what no upstream's prefix begins has no route."""
    found = Router([Mapping("app"), Mapping("app-admin")]).route(public)
    assert found == (
        None if route is None else (route[0], ("ui://" if public[:2] == "ui" else "") + route[1])
    )


@pytest.mark.parametrize(
    "name", ["my_files", "Ünï", "", "9lives", "Docs", "a+b", "a.b", "a" * 32, "a\n", "-a"]
)
def test_H02_names_that_no_scheme_can_carry_are_refused_at_start(name: str) -> None:
    """The message repeats the name and says what is expected."""
    with pytest.raises(ConfigError, match="expected 1 to 31 of a-z") as caught:
        Router([Mapping(name)])
    assert caught.value.path == "upstreams"
    assert repr(name) in caught.value.problem


@pytest.mark.parametrize(
    "prefix", ["+", "1docs+", "do cs+", "gw://{x}/", "dö+", "gw://%41/", "://", "a\n:", "/docs/"]
)
def test_prefixes_that_cannot_begin_a_uri_are_refused_at_start(prefix: str) -> None:
    """So are those that a URL class or a template processor would encode."""
    with pytest.raises(ConfigError, match="cannot begin a URI") as caught:
        Router([Mapping("docs", prefix)])
    assert caught.value.path == "upstreams.docs.prefix"


@pytest.mark.parametrize(
    ("mappings", "path"),
    [
        ([Mapping("a", "x:"), Mapping("b", "x:")], "upstreams.a.prefix"),
        ([Mapping("a", "x:"), Mapping("b", "x:y")], "upstreams.a.prefix"),
        ([Mapping("a", "X:"), Mapping("b", "x:y")], "upstreams.a.prefix"),
        ([Mapping("a", "b"), Mapping("b")], "upstreams.a.prefix"),
        ([Mapping("b", "ui://a/"), Mapping("a")], "upstreams.b.prefix"),
        ([Mapping("a"), Mapping("b", "ui://a/b")], "upstreams.b.prefix"),
        ([Mapping("a"), Mapping("b", "ui:")], "upstreams.b.prefix"),
        ([Mapping("a", "UI://a/")], "upstreams.a.prefix"),
        (
            [Mapping("a", "x:"), *(Mapping(f"m{i}") for i in range(9)), Mapping("z", "x:/")],
            "upstreams.a.prefix",
        ),
        ([Mapping("a", ""), Mapping("b")], "upstreams.a.prefix"),
    ],
)
def test_H05_prefixes_that_repeat_or_begin_another_are_refused_at_start(
    mappings: Sequence[Mapping], path: str
) -> None:
    """Rule 5, `ui://NAME/` included; whoever set a prefix is named."""
    with pytest.raises(ConfigError, match="expected") as caught:
        Router(mappings)
    assert caught.value.path == path


def test_all_that_is_wrong_with_names_is_told_at_once() -> None:
    """Each upstream in the way is named once, however many it meets."""
    of_all = [Mapping("a", "x:"), Mapping("b", "x:y"), Mapping("c", "x:z"), Mapping("d", "%"), Mapping("e")]
    assert [problem.path for problem in problems(of_all)] == [
        "upstreams.d.prefix",
        "upstreams.a.prefix",
        "upstreams.a.prefix",
    ]
    with pytest.raises(ConfigError) as caught:
        Router(of_all)
    assert len(str(caught.value).splitlines()) == 3


def test_no_upstreams_have_no_routes() -> None:
    """A router over nothing is possible and finds nothing."""
    assert Router([]).route("docs+x") is None


@pytest.mark.parametrize(
    ("native", "shown"),
    [
        ("file:///a", "gw+docs+file:///a"),
        ("ui://x", "ui://gw/docs/x"),
        ("gw+docs+file:///a", "gw+docs+gw+docs+file:///a"),
    ],
)
def test_a_federator_behind_a_federator_adds_one_more_layer(native: str, shown: str) -> None:
    """Rule 8: what looks prefixed is prefixed again, and each layer takes off its own."""
    inner, outer = Mapping("docs"), Mapping("gw")
    public = outer.public(inner.public(native) or "")
    assert public == shown
    assert inner.native(outer.native(public or "") or "") == native


def test_every_mapping_has_its_own_fingerprint() -> None:
    """Name, prefix and native prefix all count, and no two of them can be mistaken for each other."""
    mappings = [
        Mapping("docs"),
        Mapping("docs", "docs://"),
        Mapping("docs", "docs:", "//"),
        Mapping("doc", "docs+"),
        Mapping("docs", ""),
        Mapping("docs", "", "x"),
    ]
    assert len({mapping.fingerprint for mapping in mappings}) == len(mappings)
    assert Mapping("docs").fingerprint == Mapping("docs", "docs+").fingerprint
    assert len(Mapping("docs").fingerprint) == 32


@pytest.mark.parametrize(
    ("mapping", "text", "public"),
    [
        (Mapping("alpha"), "repo://{owner}/{+path}{?ref,q*}", "alpha+repo://{owner}/{+path}{?ref,q*}"),
        (Mapping("alpha"), "{+any}", "alpha+{+any}"),
        (Mapping("alpha"), "ui://{x}", "ui://alpha/{x}"),
        (Mapping("alpha"), "ui:/{+x}", "alpha+ui:/{+x}"),
        (Mapping("alpha", ""), "ui://{x}", "ui://{x}"),
        (Mapping("alpha", "a:", "file:///srv/"), "file:///srv/{+path}", "a:{+path}"),
        (Mapping("alpha", "a:", "file:///srv/"), "file:///{+path}", None),
        (Mapping("alpha", "a:", "file:///srv/"), "{+path}", None),
        (Mapping("alpha"), "repo://{owner", None),
    ],
)
def test_H03_templates_are_prefixed_as_text(mapping: Mapping, text: str, public: str | None) -> None:
    """Operators survive; a template is withheld where its literal head does not show the native prefix."""
    assert mapping.template(text) == public


mappings = st.builds(
    Mapping,
    st.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True),
    st.sampled_from([None, "", "docs://", "gw://Docs/", "urn:docs:", "Docs+", "ui://_/"]),
)


@settings(deadline=None)
@given(mappings, st.text(), st.sampled_from(["", "ui://"]))
def test_invariant_1_native_of_public_is_the_uri(mapping: Mapping, text: str, head: str) -> None:
    """native(public(u)) = u, for any text."""
    native = head + text
    assert mapping.native(mapping.public(native) or "") == native


@settings(deadline=None)
@given(
    mappings,
    st.lists(
        st.sampled_from(["ui://", "ui:", "x://", "{+any}", "{scheme}", "{/p*}", "{?q}", "a", "%20", "/"])
    ),
)
def test_invariant_1_native_of_public_is_the_template(mapping: Mapping, parts: list[str]) -> None:
    """A template that is shown finds its way back as a URI does, byte for byte: a completion refers to it."""
    text = "".join(parts)
    public = mapping.template(text)
    assert public is not None
    assert Router([mapping]).route(public) == (mapping.name, text)


@settings(deadline=None)
@given(mappings, st.text(max_size=4), st.text())
def test_invariant_1_holds_under_a_native_prefix(mapping: Mapping, lead: str, text: str) -> None:
    """What begins with the native prefix comes back; what does not is not published."""
    within = Mapping(mapping.name, mapping.prefix, lead)
    assert within.native(within.public(lead + text) or "") == lead + text
    assert (within.public(text) is not None) == text.startswith(lead)


@settings(deadline=None)
@given(
    st.sets(st.from_regex(r"[a-c][a-c0-9-]{0,4}", fullmatch=True), min_size=1),
    st.text("abcABC-+:/ui0", max_size=12),
)
def test_routing_by_bisection_is_asking_every_mapping(names: set[str], public: str) -> None:
    """The router finds what the one mapping that accepts the URI says, among any number of upstreams."""
    all_of_them = [Mapping(name) for name in sorted(names)]
    answers = [
        (mapping.name, native) for mapping in all_of_them if (native := mapping.native(public)) is not None
    ]
    assert len(answers) <= 1
    assert Router(all_of_them).route(public) == (answers[0] if answers else None)
