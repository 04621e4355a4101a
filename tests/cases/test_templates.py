"""H03 at the whole product: a template is text, and expanding it commutes with prefixing it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mcp_federator.federation.template import expand
from tests.cases.naming import LIST, READ, TEMPLATES, only, read_uris
from tests.instruments.fronted import run
from tests.instruments.house import house
from tests.instruments.wire import Received, Step, Wire, contents, result

# H03: a template is text, and expanding it commutes with prefixing it.

VALUES: dict[str, Any] = {
    "owner": "o w",
    "path": "a/b c.md",
    "ref": "main",
    "q": {"x": "1", "y": "2"},
    "id": "123",
    "format": "json",
    "list": ["a", "b/c"],
}
EXPANDED = {
    "repo": ("repo://{owner}/{+path}{?ref,q*}", "repo://o%20w/a/b%20c.md?ref=main&x=1&y=2"),
    "file": ("file:///{path}", "file:///a%2Fb%20c.md"),
    "data": ("data://{id}{?format}", "data://123?format=json"),
    "segments": ("x://h{/list*}{/id}", "x://h/a/b%2Fc/123"),
    "labels": ("x://h/a{.list*}", "x://h/a.a.b%2Fc"),
    "parameters": ("x://h{;q*,id}", "x://h;x=1;y=2;id=123"),
    "fragment": ("x://h{#path}", "x://h#a/b%20c.md"),
    "continuation": ("x://h?a=1{&format,none}", "x://h?a=1&format=json"),
    "cut": ("x://h/{path:3}", "x://h/a%2Fb"),
    "exploded": ("x://h/{list*}", "x://h/a,b%2Fc"),
    "nothing-given": ("x://h/{none}{?none}", "x://h/"),
    "no-variables": ("x://h/a b".replace(" ", "%20"), "x://h/a%20b"),
    "literals": ("x://h/é/{id}", "x://h/%C3%A9/123"),
    "scheme-is-a-variable": ("{id}", "123"),
    "all-is-a-variable": ("{+path}", "a/b%20c.md"),
}


@asynccontextmanager
async def templated(*templates: str, settings: Mapping[str, Any] | None = None) -> AsyncIterator[Any]:
    """A federator over an upstream with these templates, which has whatever it is asked for."""

    def echo(request: Received) -> list[Step]:
        uri = request.params["uri"]
        return list(result(contents(uri, uri))(request))

    items = [{"uriTemplate": text, "name": text} for text in templates]
    listed = result({"resourceTemplates": items, "ttlMs": 60_000, "cacheScope": "public"})
    async with (
        Wire({TEMPLATES: listed, READ: echo}) as wire,
        house({"alpha": {"url": wire.url, **(settings or {})}}) as it,
    ):
        shown = (await it.page(None, TEMPLATES)).result["resourceTemplates"]
        yield it, wire, [item["uriTemplate"] for item in shown]


@pytest.mark.parametrize("prefix", ["alpha+", "gw://docs/", ""])
@pytest.mark.parametrize(("template", "expansion"), EXPANDED.values(), ids=EXPANDED)
def test_H03_the_public_template_expands_to_the_public_uri(
    template: str, expansion: str, prefix: str
) -> None:
    """`expand(public(T), v) == public(expand(T, v))`, and alpha sees exactly `expand(T, v)`."""

    async def check() -> None:
        async with templated(template, settings={"prefix": prefix}) as (it, wire, [shown]):
            assert shown == prefix + template
            asked = expand(shown, VALUES)
            assert asked == prefix + expansion
            assert only(await it.read(asked)) == (asked, expansion)
            assert read_uris(wire) == [expansion]
            assert not wire.calls(LIST)

    run(check())


@pytest.mark.parametrize("uri", ["data://123", "data://123?format=a b", "data://", "data://{id}{?format}"])
def test_H03_a_read_needs_no_match(uri: str) -> None:
    """What no template would give is read all the same, routed by its prefix."""

    async def check() -> None:
        async with templated("data://{id}{?format}") as (it, wire, _):
            assert only(await it.read("alpha+" + uri)) == ("alpha+" + uri, uri)
            assert read_uris(wire) == [uri]

    run(check())


def test_H03_a_template_of_apps_keeps_its_scheme() -> None:
    """`ui://` stays in front where it is literal, and is found behind the prefix where it is a value."""

    async def check() -> None:
        async with templated("ui://{id}", "{+path}") as (it, wire, shown):
            assert shown == ["ui://alpha/{id}", "alpha+{+path}"]
            assert only(await it.read(expand(shown[0], {"id": "1"}))) == ("ui://alpha/1", "ui://1")
            assert only(await it.read(expand(shown[1], {"path": "ui://1"}))) == ("ui://alpha/1", "ui://1")
            assert read_uris(wire) == ["ui://1"]

    run(check())


@pytest.mark.parametrize(
    "bad", ["x://{", "x://}", "x://{}", "x://{a b}", "x://{a", "x://{!a}", "x://{a:0}", "x y"]
)
def test_H03_what_is_no_template_is_left_out_alone(bad: str) -> None:
    """Nobody could expand it; its neighbours stay."""

    async def check() -> None:
        async with templated("x://{a}", bad, "y://{a}") as (_, _, shown):
            assert shown == ["alpha+x://{a}", "alpha+y://{a}"]

    run(check())


def test_H03_a_template_that_may_leave_the_native_prefix_is_withheld() -> None:
    """Only what is certain of all it can give counts."""

    async def check() -> None:
        settings = {"prefix": "docs://", "native_prefix": "file:///srv/"}
        async with templated("file:///srv/{p}", "file:///{p}", "{p}", settings=settings) as (_, _, shown):
            assert shown == ["docs://{p}"]

    run(check())
