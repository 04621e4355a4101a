from mcp_types import ServerCapabilities

from mcp_federator.federation.capabilities import capabilities


def test_only_resources_are_declared_and_no_change_is_promised() -> None:
    """Resources are served; there are no tools, no prompts, no `listChanged` and no `subscribe`."""
    declared = ServerCapabilities.model_validate_json(capabilities())
    assert declared.model_dump(exclude_none=True) == {"resources": {}}


def test_completions_are_declared_where_an_upstream_has_them() -> None:
    """Beside resources, as an object without members."""
    declared = ServerCapabilities.model_validate_json(capabilities(completions=True))
    assert declared.model_dump(exclude_none=True) == {"resources": {}, "completions": {}}
