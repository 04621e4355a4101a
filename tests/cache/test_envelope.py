from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.cache import envelope
from mcp_federator.cache.envelope import MARK, UNTIED, Envelope, Flaw, Stamp
from mcp_federator.cache.secrecy import Secrecy
from mcp_federator.model import Scope

KEY, OTHER = b"k" * 32, b"o" * 32
ALICE, BOB = b"a" * 32, b"b" * 32
OURS = Secrecy([b"secret"])

randoms = st.binary(min_size=8, max_size=8)
texts = st.text(st.characters(codec=None), max_size=20)
envelopes = st.builds(
    Envelope,
    key=st.just(KEY),
    partition=st.sampled_from([b"", ALICE]),
    scope=st.sampled_from(Scope),
    stamp=st.builds(Stamp, randoms, randoms, randoms, randoms),
    ttl_ms=st.integers(0, 1 << 40),
    window_ms=st.integers(0, 1 << 40),
    body=st.binary(max_size=200),
    next_cursor=st.none() | texts,
    count=st.integers(0, 1 << 31),
    extra=st.binary(max_size=20),
    meta=st.binary(max_size=20),
    uris=st.lists(texts, max_size=3).map(tuple),
)


def kept(**changed: Any) -> bytes:
    values: dict[str, Any] = {
        "key": KEY,
        "partition": ALICE,
        "scope": Scope.PRIVATE,
        "stamp": Stamp(b"g" * 8, b"w" * 8, b"a" * 8, b"e" * 8),
        "ttl_ms": 1000,
        "window_ms": 500,
        "body": b'{"uri":"x:1"}',
        "next_cursor": "c",
        "uris": ("x:2",),
        **changed,
    }
    return envelope.write(Envelope(**values), OURS)


@given(envelopes)
def test_what_is_written_is_read(written: Envelope) -> None:
    """Each member, whatever it holds; an answer that names no other resource is tied to none."""
    found = envelope.read(envelope.write(written, OURS), KEY, written.partition, OURS)
    assert isinstance(found, Envelope)
    assert found.stamp.any_resource == (written.stamp.any_resource if written.uris else UNTIED)
    for member in ("scope", "ttl_ms", "window_ms", "body", "next_cursor", "count", "extra", "meta", "uris"):
        assert getattr(found, member) == getattr(written, member)


@given(st.binary(max_size=400) | st.binary(max_size=400).map(lambda rest: MARK + rest))
def test_reading_never_raises(any_bytes: bytes) -> None:
    """Any bytes are a flaw."""
    assert isinstance(envelope.read(any_bytes, KEY, ALICE, OURS), Flaw)


@pytest.mark.parametrize("scope", Scope)
def test_a_cut_or_changed_envelope_is_none(scope: Scope) -> None:
    """At each length but the whole, and with each byte changed, it is a flaw."""
    whole = kept(scope=scope)
    for place in range(len(whole)):
        assert isinstance(envelope.read(whole[:place], KEY, ALICE, OURS), Flaw)
        for bit in (1, 0x80):
            changed = whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :]
            assert isinstance(envelope.read(changed, KEY, ALICE, OURS), Flaw)
    assert isinstance(envelope.read(whole + b"x", KEY, ALICE, OURS), Flaw)


@pytest.mark.parametrize(
    ("found", "key", "partition", "flaw"),
    [
        (kept(), OTHER, ALICE, Flaw.FOREIGN),
        (kept(), KEY, BOB, Flaw.FOREIGN),
        (kept(), KEY, b"", Flaw.FOREIGN),
        (kept(partition=b"", scope=Scope.PUBLIC), KEY, ALICE, Flaw.FOREIGN),
        (b"mcpf\x00" + kept()[5:], KEY, ALICE, Flaw.VERSION),
        (b"mcpf\x02" + kept()[5:], KEY, ALICE, Flaw.VERSION),
        (b"", KEY, ALICE, Flaw.ODD),
        (b"mcpf", KEY, ALICE, Flaw.ODD),
        (b'{"json":1}', KEY, ALICE, Flaw.ODD),
        (kept()[:100], KEY, ALICE, Flaw.ODD),
        (kept()[:-1], KEY, ALICE, Flaw.BROKEN),
    ],
)
def test_what_is_wrong_is_told(found: bytes, key: bytes, partition: bytes, flaw: Flaw) -> None:
    """One word for each kind, to be counted."""
    assert envelope.read(found, key, partition, OURS) is flaw
