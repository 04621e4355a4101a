from hypothesis import example, given
from hypothesis import strategies as st

from mcp_federator.cache.key import Keys, private
from mcp_federator.model import Method, Query, Retry

# Few values of each, so that two draws often differ in one place only.
TEXTS = st.sampled_from(["", "a", "ab", "variant", "partitiona", "\x00", "\x01", "resources/read\x01"])
DIGESTS = st.sampled_from([b"", b"a", b"ab", b"variant", b"partition"])
QUERIES = st.builds(Query, st.just(Method.READ), uri=TEXTS) | st.builds(
    Query, st.sampled_from([Method.LIST, Method.TEMPLATES]), cursor=st.none() | TEXTS
)
ASKED = st.tuples(st.sampled_from([b"alpha", b"alphares", b""]), QUERIES, DIGESTS, DIGESTS)


def key_of(identity: bytes, query: Query, variant: bytes, partition: bytes) -> bytes:
    return private(Keys(identity).public(query, variant), partition)


@given(ASKED, ASKED)
@example(
    (b"alpha", Query(Method.READ, uri="a"), b"a", b""), (b"alpha", Query(Method.READ, uri="a"), b"", b"a")
)
def test_two_keys_are_equal_only_where_all_that_is_asked_is(
    one: tuple[bytes, Query, bytes, bytes], other: tuple[bytes, Query, bytes, bytes]
) -> None:
    """Upstream, method, parameter, variant and partition each make another key, however they are spelt."""
    assert (key_of(*one) == key_of(*other)) is (one == other)


def test_H06_no_cursor_and_the_empty_cursor_are_two_questions() -> None:
    """The first page is kept apart from the page at cursor `""`."""
    keys = Keys(b"alpha")
    assert keys.public(Query(Method.LIST)) != keys.public(Query(Method.LIST, cursor=""))


def test_how_a_query_is_asked_is_no_part_of_its_identity() -> None:
    """A refresh, a retry and an asking alone speak of the same resource."""
    keys = Keys(b"alpha")
    plain = keys.public(Query(Method.READ, uri="x://1"))
    asked = Query(Method.READ, uri="x://1", refresh=True, alone=True, retry=Retry(request_state=b'"s"'))
    assert keys.public(asked) == plain


def test_one_authorization_context_has_one_key_for_both_scopes() -> None:
    """Without partitions the private key is the public one."""
    assert private(b"k" * 32, b"") == b"k" * 32


def test_a_key_is_made_of_any_text() -> None:
    """A lone surrogate does not fail, and is told from its replacement."""
    keys = Keys(b"alpha")
    assert keys.public(Query(Method.READ, uri="x://\ud800")) != keys.public(Query(Method.READ, uri="x://?"))


@given(QUERIES, DIGESTS)
def test_a_key_is_a_digest_and_the_same_in_every_process(query: Query, variant: bytes) -> None:
    """32 bytes, and two of the same upstream agree."""
    key = Keys(b"alpha").public(query, variant)
    assert len(key) == 32
    assert key == Keys(b"alpha").public(query, variant)
