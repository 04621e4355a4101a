import re

import msgspec
import pytest

from mcp_federator.cache.key import Keys
from mcp_federator.cache.names import BUCKETS, LISTS, RESOURCES, Names
from mcp_federator.model import Method, Query

IDENTITY = b"i" * 32
NAMES = Names("mcpf:", "alpha", IDENTITY)
KEYS = Keys(IDENTITY)
QUERIES = [
    Query(Method.LIST),
    Query(Method.LIST, cursor="c"),
    Query(Method.TEMPLATES),
    *(Query(Method.READ, uri=f"x://{number}") for number in range(500)),
]


def slot(name: bytes) -> bytes:
    found = re.search(rb"\{(.*?)\}", name)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("query", QUERIES[:10], ids=str)
def test_all_names_of_one_query_are_in_one_slot(query: Query) -> None:
    """Whoever asks; and the slot is one of those by which the upstream can be forgotten."""
    site = NAMES.site(query, KEYS.public(query), b"p" * 32)
    names = [name for name in msgspec.structs.astuple(site) if name not in {RESOURCES, LISTS}]
    assert len({slot(name) for name in names}) == 1
    assert all(name.startswith(b"mcpf:{alpha." + IDENTITY[:8].hex().encode() + b":") for name in names)
    assert site.common in set(NAMES.commons())


def test_a_resource_is_in_many_buckets_and_a_list_in_one() -> None:
    """All pages belong together; resources do not."""
    sites = [NAMES.site(query, KEYS.public(query), b"") for query in QUERIES]
    assert sites[0].common == sites[1].common
    assert sites[0].generation == sites[1].generation == NAMES.generation_of_list(Method.LIST)
    assert sites[2].generation == NAMES.generation_of_list(Method.TEMPLATES)
    assert len({site.common for site in sites[3:]}) == BUCKETS == len(set(NAMES.commons()))


def test_what_splits_entries_does_not_split_the_generation() -> None:
    """A change of a resource reaches each variant and each partition of it."""
    query = QUERIES[5]
    sites = [
        NAMES.site(query, KEYS.public(query, variant), partition)
        for variant in (b"", b"v" * 32)
        for partition in (b"", b"p" * 32, b"q" * 32)
    ]
    assert {site.generation for site in sites} == {NAMES.generation_of(query.uri or "")}
    assert len({site.common for site in sites}) == 1
    assert len({site.public for site in sites}) == 2
    assert len({site.own for site in sites}) == 6


def test_no_uri_and_no_cursor_is_in_a_name() -> None:
    """Only digests."""
    query = Query(Method.READ, uri="x://secret")
    site = NAMES.site(query, KEYS.public(query), b"")
    assert not any(b"secret" in name for name in msgspec.structs.astuple(site))


@pytest.mark.parametrize("prefix", ["a{b", "a}", "{x}"])
def test_a_prefix_decides_no_slot(prefix: str) -> None:
    """Braces in it are refused."""
    with pytest.raises(ValueError, match="braces"):
        Names(prefix, "alpha", IDENTITY)
