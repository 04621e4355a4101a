import pytest

from mcp_federator.cache import secrecy
from mcp_federator.cache.secrecy import Secrecy
from mcp_federator.model import Scope

HEAD = b"head".ljust(40)
ALICE, BOB = b"a" * 32, b"b" * 32
TEXT = b"the quick brown fox jumps over the lazy dog"


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("encrypt", [True, False])
def test_what_is_closed_can_be_opened(scope: Scope, encrypt: bool) -> None:
    """By the same rules, and by the other ones too: the switch may be turned while entries are kept."""
    closed = Secrecy([b"s"], encrypt=encrypt).close(HEAD, TEXT, scope, ALICE)
    assert Secrecy([b"s"], encrypt=not encrypt).open(HEAD, closed, scope, ALICE) == TEXT


def test_no_run_of_a_private_text_can_be_seen() -> None:
    """No 16 bytes of it occur; of a public one, and where encryption is off, all do."""
    runs = [TEXT[start : start + 16] for start in range(len(TEXT) - 15)]
    sealed = Secrecy([b"s"]).close(HEAD, TEXT, Scope.PRIVATE, ALICE)
    assert not any(run in sealed for run in runs)
    assert TEXT in Secrecy([b"s"]).close(HEAD, TEXT, Scope.PUBLIC, b"")
    assert TEXT in Secrecy([b"s"], encrypt=False).close(HEAD, TEXT, Scope.PRIVATE, ALICE)


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("encrypt", [True, False])
def test_nothing_opens_that_was_changed(scope: Scope, encrypt: bool) -> None:
    """One changed or missing byte, another head, another secret."""
    ours = Secrecy([b"s"], encrypt=encrypt)
    closed = ours.close(HEAD, TEXT, scope, ALICE)
    for place in range(len(closed)):
        changed = closed[:place] + bytes([closed[place] ^ 1]) + closed[place + 1 :]
        assert ours.open(HEAD, changed, scope, ALICE) is None
        assert ours.open(HEAD, closed[:place], scope, ALICE) is None
    assert ours.open(HEAD[:-1] + b"!", closed, scope, ALICE) is None
    assert Secrecy([b"t"], encrypt=encrypt).open(HEAD, closed, scope, ALICE) is None


def test_another_partition_has_another_key() -> None:
    """Even where the head were the same."""
    closed = Secrecy([b"s"]).close(HEAD, TEXT, Scope.PRIVATE, ALICE)
    assert Secrecy([b"s"]).open(HEAD, closed, Scope.PRIVATE, BOB) is None


@pytest.mark.parametrize("scope", Scope)
def test_a_rotated_secret_keeps_old_entries_readable(scope: Scope) -> None:
    """The first of the list closes, each opens."""
    old = Secrecy([b"old"]).close(HEAD, TEXT, scope, ALICE)
    both = Secrecy([b"new", b"old"])
    assert both.open(HEAD, old, scope, ALICE) == TEXT
    new = both.close(HEAD, TEXT, scope, ALICE)
    assert Secrecy([b"new"]).open(HEAD, new, scope, ALICE) == TEXT
    assert Secrecy([b"old"]).open(HEAD, new, scope, ALICE) is None


def test_two_entries_never_look_alike() -> None:
    """The nonce is new each time."""
    ours = Secrecy([b"s"])
    assert len({ours.close(HEAD, TEXT, Scope.PRIVATE, ALICE) for _ in range(100)}) == 100


def test_derived_keys_are_bounded() -> None:
    """However many partitions there are, so many keys are remembered."""
    ours = Secrecy([b"s"])
    for number in range(secrecy.MAX_KEYS + 10):
        ours.close(HEAD, b"", Scope.PRIVATE, number.to_bytes(32, "big"))
    assert len(ours._ciphers) == secrecy.MAX_KEYS


@pytest.mark.parametrize("secrets", [[], [b""], [b"s", b""]])
def test_there_is_always_a_secret(secrets: list[bytes]) -> None:
    """None, or an empty one, is refused at once."""
    with pytest.raises(ValueError, match="secret"):
        Secrecy(secrets)
