from typing import Any

import pytest
from mcp_types import ServerCapabilities

from mcp_federator.federation.capabilities import capabilities
from mcp_federator.model import Offers


def test_only_resources_are_declared_and_no_change_is_promised() -> None:
    """Resources are served; there are no tools, no prompts, no `listChanged` and no `subscribe`."""
    declared = ServerCapabilities.model_validate_json(capabilities())
    assert declared.model_dump(exclude_none=True) == {"resources": {}}


def test_completions_are_declared_where_an_upstream_has_them() -> None:
    """Beside resources, as an object without members."""
    declared = ServerCapabilities.model_validate_json(capabilities(completions=True))
    assert declared.model_dump(exclude_none=True) == {"resources": {}, "completions": {}}


@pytest.mark.parametrize(
    ("offers", "declared"),
    [
        (Offers(), {}),
        (Offers(lists=True), {"listChanged": True}),
        (Offers(resources=True), {"subscribe": True}),
        (Offers(lists=True, resources=True), {"subscribe": True, "listChanged": True}),
    ],
)
def test_H32_what_is_told_of_changes_is_declared(offers: Offers, declared: dict[str, Any]) -> None:
    """And nothing else: what is not told is absent, not false."""
    shown = ServerCapabilities.model_validate_json(capabilities(offers, completions=True))
    assert shown.model_dump(by_alias=True, exclude_none=True) == {"resources": declared, "completions": {}}
