"""The fixed words agree with the official types, and the error table with the design."""

import mcp_types
import pytest
from mcp_types import jsonrpc

from mcp_federator.protocol import vocabulary
from mcp_federator.protocol.vocabulary import Code, Fate, relay


def test_words_are_those_of_the_official_types() -> None:
    """Codes and `_meta` keys are spelled as in mcp-types."""
    assert jsonrpc.HEADER_MISMATCH == Code.HEADER_MISMATCH
    assert jsonrpc.MISSING_REQUIRED_CLIENT_CAPABILITY == Code.MISSING_CAPABILITY
    assert jsonrpc.UNSUPPORTED_PROTOCOL_VERSION == Code.UNSUPPORTED_VERSION
    assert jsonrpc.URL_ELICITATION_REQUIRED == Code.URL_ELICITATION
    assert mcp_types.PROTOCOL_VERSION_META_KEY == vocabulary.META_VERSION
    assert mcp_types.CLIENT_CAPABILITIES_META_KEY == vocabulary.META_CAPABILITIES
    assert mcp_types.CLIENT_INFO_META_KEY == vocabulary.META_CLIENT_INFO
    assert mcp_types.SERVER_INFO_META_KEY == vocabulary.META_SERVER_INFO
    assert mcp_types.LOG_LEVEL_META_KEY == vocabulary.META_LOG_LEVEL


@pytest.mark.parametrize(
    ("code", "fate"),
    [
        (-32002, "not_found"),
        (-32602, "not_found"),
        (-32700, "pass"),
        (-32600, "pass"),
        (-32601, "pass"),
        (-32603, "pass"),
        (7001, "pass"),
        (0, "pass"),
        (-1, "pass"),
        (-31999, "pass"),
        (-32769, "pass"),
        (-32800, "pass"),
        (-(2**53), "pass"),
        (-32000, "refuse"),
        (-32001, "refuse"),
        (-32003, "refuse"),
        (-32019, "refuse"),
        (-32020, "refuse"),
        (-32023, "refuse"),
        (-32042, "refuse"),
        (-32050, "refuse"),
        (-32099, "refuse"),
        (-32100, "refuse"),
        (-32604, "refuse"),
        (-32768, "refuse"),
        (-32021, "capability"),
        (-32022, "probe"),
    ],
)
def test_H22_every_code_has_one_fate(code: int, fate: Fate) -> None:
    """A read's error passes, is refused, or asks for something, by its code alone."""
    assert relay(code) == fate


@pytest.mark.parametrize(
    ("code", "fate"), [(-32002, "refuse"), (-32602, "pass"), (7001, "pass"), (-32022, "probe")]
)
def test_H22_not_found_is_said_of_reads_only(code: int, fate: Fate) -> None:
    """On a list -32602 speaks of the cursor, and -32002 is a code without meaning."""
    assert relay(code, read=False) == fate


@pytest.mark.parametrize("read", [True, False])
def test_H22_no_code_that_passes_is_forbidden(read: bool) -> None:
    """Whatever passes is a code that a modern server may emit."""
    passing = {code for code in range(-33000, 100) if relay(code, read=read) == "pass"}
    assert passing.isdisjoint(range(-32099, -32000 + 1))
