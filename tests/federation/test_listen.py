import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.federation.listen import MAX_LEVELS, concerned, reach, routed
from mcp_federator.federation.prefix import Mapping, Router

ROUTER = Router([Mapping("docs"), Mapping("cut", "cut://", "file:///srv/")])

DEEP = "x://" + "a/" * MAX_LEVELS


@pytest.mark.parametrize(
    ("public", "found"),
    [
        (["docs+x://1"], {"docs": {"x://1": ("docs+x://1",)}}),
        (["DOCS+x://1", "docs+x://1"], {"docs": {"x://1": ("DOCS+x://1", "docs+x://1")}}),
        (["ui://docs/app"], {"docs": {"ui://app": ("ui://docs/app",)}}),
        (["docs+ui://app"], {"docs": {"ui://app": ("docs+ui://app",)}}),
        (["cut://a"], {"cut": {"file:///srv/a": ("cut://a",)}}),
        (["nope+x://1", "x://1", "", "docs+"], {"docs": {"": ("docs+",)}}),
        (
            ["docs+x://1", "cut://a", "docs+x://2"],
            {
                "docs": {"x://1": ("docs+x://1",), "x://2": ("docs+x://2",)},
                "cut": {"file:///srv/a": ("cut://a",)},
            },
        ),
        ([], {}),
    ],
)
def test_H31_a_filter_becomes_native_wishes_of_each_upstream(
    public: list[str], found: dict[str, dict[str, tuple[str, ...]]]
) -> None:
    """Each URI goes to the upstream whose prefix it bears, however it is spelt; an unknown one to nobody."""
    assert routed(public, ROUTER.route) == found


@pytest.mark.parametrize(
    ("uri", "wanted", "concerns"),
    [
        ("x://1", "x://1", True),
        ("x://1", "x://2", False),
        ("x://1", "x://11", False),
        ("x://11", "x://1", False),
        ("x://a/b", "x://a", True),
        ("x://a/b", "x://a/", True),
        ("x://a/b/c", "x://a", True),
        ("x://a", "x://a/b", False),
        ("x://a", "x://a/", False),
        ("x://a?q=1", "x://a", True),
        ("x://a?q=1", "x://a?", True),
        ("x://a#f", "x://a", True),
        ("x://a%2Fb", "x://a", False),
        ("x://A/b", "x://a", False),
        ("urn:x:1", "urn:x", False),
        ("", "", True),
        ("x", "", False),
        ("/x", "", True),
    ],
)
def test_H31_a_change_concerns_what_the_resource_is_a_part_of(uri: str, wanted: str, concerns: bool) -> None:
    """Levels begin at `/`, `?` and `#`, and nothing else is a part."""
    assert concerned(uri, {wanted, "other://"}) == ([wanted] if concerns else [])


@pytest.mark.parametrize("wanted", [DEEP, DEEP[:-1], "x://a", DEEP + "b/c"])
def test_a_uri_of_endless_levels_concerns_the_same(wanted: str) -> None:
    """Where levels are too many to be looked up, the wanted URIs are gone through."""
    uri = DEEP + "b/c"
    assert reach(uri) is None
    assert concerned(uri, {wanted, DEEP + "b/d", DEEP[:-1] + "b", "x://b"}) == [wanted]


TEXT = st.text(st.sampled_from("ab/?#"), max_size=8)


@given(uri=TEXT, wanted=st.frozensets(TEXT, max_size=5))
def test_both_ways_to_find_whom_a_change_concerns_agree(uri: str, wanted: frozenset[str]) -> None:
    """Going through what is wanted finds what looking it up finds."""
    looked_up = concerned("-/" + uri, {"-/" + one for one in wanted})
    gone_through = concerned(DEEP + uri, {DEEP + one for one in wanted})
    assert {one.removeprefix(DEEP) for one in gone_through} == {one.removeprefix("-/") for one in looked_up}
