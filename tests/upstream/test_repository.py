import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from mcp_federator.config import Duration, Upstream, UpstreamCache
from mcp_federator.errors import ConfigError, Reason
from mcp_federator.model import Era, Hint, Method, Scope
from mcp_federator.repository import Content, Invalid, NotFound, Page, Resource, Unavailable
from mcp_federator.upstream.repository import opened
from tests.upstream.asking import items, run
from tests.upstream.mounted import Repo, mounted


def raises(problem: BaseException) -> Callable[[Any], Any]:
    def method(_: Any) -> Any:
        raise problem

    return method


@dataclass
class Own:
    uri: str
    name: str


@pytest.mark.parametrize(
    ("given", "contents"),
    [
        ("text", [{"uri": "alpha+x:1", "text": "text"}]),
        ("", [{"uri": "alpha+x:1", "text": ""}]),
        (b"\x00\xff", [{"uri": "alpha+x:1", "blob": "AP8="}]),
        (bytearray(b"\x00"), [{"uri": "alpha+x:1", "blob": "AA=="}]),
        (
            Content(body="t", mime_type="a/b", uri="x:2", meta={"k": 1}),
            [{"uri": "alpha+x:2", "mimeType": "a/b", "_meta": {"k": 1}, "text": "t"}],
        ),
        ({"text": "t", "more": 1}, [{"text": "t", "more": 1, "uri": "alpha+x:1"}]),
        ({"blob": b"\x00"}, [{"blob": "AA==", "uri": "alpha+x:1"}]),
        (
            ["a", Content(body=b"b", uri="x:1#b")],
            [{"uri": "alpha+x:1", "text": "a"}, {"uri": "alpha+x:1#b", "blob": "Yg=="}],
        ),
    ],
)
def test_what_a_read_may_give(given: Any, contents: Any) -> None:
    """A text, bytes, a Content, a mapping, or several of them; URIs come out public."""

    async def body() -> None:
        async with mounted(Repo(given)) as alpha:
            assert await alpha.read() == contents

    run(body())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "raise NotFound"),
        ([], "raise NotFound"),
        (5, "no contents as the protocol has them"),
        ({"uri": "x:1"}, "no contents as the protocol has them"),
        ({"text": b"x"}, "bytes go under `blob`"),
        ({"text": "t", "mimeType": 5}, "no contents as the protocol has them"),
        (Content(body=5), "expected a text or bytes, found int"),  # type: ignore[arg-type] # on purpose
        (Content(body="t", uri="y:1"), "the URI y:1 of a content is outside its prefix"),
        ("\ud800", "surrogates"),
        ({"text": "t", "_meta": object()}, "Encoding objects of type object"),
        ({"text": "t", "_meta": {"n": 10**400}}, "beyond what a double can hold"),
        (iter(["a"]), "Encoding objects"),
        (raises(ValueError("boom")), "read raised ValueError"),
        (raises(KeyError("boom")), "read raised KeyError"),
        (raises(SystemExit(1)), "read raised SystemExit"),
        (raises(asyncio.CancelledError()), "read raised CancelledError"),
        (raises(TimeoutError()), "read raised TimeoutError"),
    ],
)
def test_what_a_read_must_not_give(given: Any, problem: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is a bad reply of this one query, and the log names the class and what was expected."""

    async def body() -> None:
        async with mounted(Repo(lambda uri: "fine" if uri == "x:2" else _given(given, uri))) as alpha:
            failure = await alpha.fails()
            assert failure.reason is Reason.BAD_REPLY
            assert problem in failure.detail
            assert "tests:Repo.read" in failure.detail
            assert not alpha.client.status.up
            assert await alpha.read("x:2")
            assert (alpha.client.status.up, alpha.client.status.error) == (True, "")

    with caplog.at_level(logging.WARNING):
        run(body())
    assert "tests:Repo.read" in caplog.text


def _given(given: Any, uri: str) -> Any:
    return given(uri) if callable(given) else given


@pytest.mark.parametrize(
    "given",
    [
        [Resource(uri="x:1", name="one", mime_type="a/b")],
        ({"uri": "x:1", "name": "one", "mimeType": "a/b"},),
        Page([Resource(uri="x:1", name="one", mime_type="a/b")]),
    ],
)
def test_what_a_list_may_give(given: Any) -> None:
    """Resources or mappings, in a list, a tuple or a page."""

    async def body() -> None:
        async with mounted(Repo(list=given)) as alpha:
            page = await alpha.fetch(Method.LIST)
            assert items(page) == [{"uri": "alpha+x:1", "name": "one", "mimeType": "a/b"}]
            assert page.next_cursor is None

    run(body())


def test_a_list_may_have_items_of_ones_own_class() -> None:
    """A dataclass whose fields have the protocol's names; an empty list is one too."""

    async def body() -> None:
        async with mounted(Repo(list=[Own("x:1", "one")])) as alpha:
            assert await alpha.page() == [{"uri": "alpha+x:1", "name": "one"}]
        async with mounted(Repo(list=[])) as alpha:
            assert await alpha.page() == []

    run(body())


def test_cursors_go_to_the_repository_and_back() -> None:
    """Each page's cursor is what the next call gets, `""` included."""

    async def body() -> None:
        pages = {None: Page([Own("x:1", "1")], ""), "": Page([Own("x:2", "2")], "b"), "b": Page([])}
        async with mounted(repo := Repo(list=pages.get)) as alpha:
            assert await alpha.uris() == ["x:1", "x:2"]
            assert repo.asked == [None, "", "b"]

    run(body())


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (None, "found None"),
        ("x:1", "found str"),
        ((uri for uri in ("x:1",)), "found generator"),
        (["x:1"], "Expected `object`, got `str` - at `$[0]`"),
        ([Own("x:1", "a"), {"uri": "x:2"}], "missing required field `name` - at `$[1]`"),
        ([Own("y:1", "a")], "the URI y:1 is outside its prefix"),
        ([Resource(uri="x:1", name="a", size=-1.5)], "$[0].size"),  # type: ignore[arg-type] # on purpose
        (Page([], 5), "next_cursor: expected text"),  # type: ignore[arg-type] # on purpose
        (Page([], "x" * 5000), "next_cursor: expected text"),
        (raises(NotFound("boom")), "list raised NotFound"),
        (raises(RuntimeError("boom")), "list raised RuntimeError"),
    ],
)
def test_what_a_list_must_not_give(given: Any, problem: str) -> None:
    """It is a bad reply that says what was expected."""

    async def body() -> None:
        async with mounted(Repo(list=given)) as alpha:
            failure = await alpha.fails(Method.LIST, None)
            assert failure.reason is Reason.BAD_REPLY
            assert problem in failure.detail
            assert "tests:Repo.list" in failure.detail

    run(body())


def test_what_a_repository_raises_is_told_apart() -> None:
    """NotFound and Invalid are answers with their message; Unavailable lets a stale copy stand in."""

    async def body() -> None:
        problems = {
            "x:none": NotFound(),
            "x:gone": NotFound("moved\nto x:2"),
            "x:odd": Invalid("expected a number"),
            "x:down": Unavailable("the database is down"),
        }

        def read(uri: str) -> Any:
            raise problems[uri]

        async with mounted(Repo(read, raises(Invalid("no cursor of ours")))) as alpha:
            none = await alpha.errs("x:none")
            assert (none.code, none.message, none.data, none.not_found) == (
                -32602,
                "Resource not found",
                b'{"uri":"alpha+x:none"}',
                True,
            )
            assert (await alpha.errs("x:gone")).message == "moved\\nto x:2"
            odd = await alpha.errs("x:odd")
            assert (odd.code, odd.message, odd.not_found) == (-32602, "expected a number", False)
            down = await alpha.fails(uri="x:down")
            assert (down.reason, down.stale_ok, down.detail) == (
                Reason.UNREACHABLE,
                True,
                "the database is down",
            )
            assert (await alpha.errs(None, Method.LIST, "c")).code == -32602

    run(body())


def test_a_uri_outside_the_prefix_is_not_found_without_a_call() -> None:
    """The repository never sees it; a list is walked once for what it may have meant."""

    async def body() -> None:
        async with mounted(repo := Repo()) as alpha:
            assert (await alpha.errs("y:1")).not_found
            assert repo.asked == [None]

    run(body())


def test_with_a_template_read_gets_the_variables() -> None:
    """A URI that does not match is not found; the template is listed, and so is what else is said of it."""

    async def body() -> None:
        template = {"uriTemplate": "x:{team}/{name}", "description": "A person"}
        repo = Repo(lambda them: f"{them['team']}, {them['name']}", template=template)
        async with mounted(repo) as alpha:
            assert (await alpha.read("x:a/b%20c"))[0]["text"] == "a, b c"
            assert (await alpha.errs("x:a")).not_found
            templates = await alpha.fetch(Method.TEMPLATES)
            assert items(templates) == [
                {"name": "Repo", "uriTemplate": "alpha+x:{team}/{name}", "description": "A person"}
            ]
            assert (await alpha.errs(None, Method.TEMPLATES, "c")).code == -32602
            repo._list = [Own("x:a b", "a")]
            failure = await alpha.fails(Method.LIST, None)
            assert "does not match the template" in failure.detail

    run(body())


def test_without_a_template_there_is_none() -> None:
    """The list of templates is empty."""

    async def body() -> None:
        async with mounted(Repo()) as alpha:
            assert items(await alpha.fetch(Method.TEMPLATES)) == []

    run(body())


def test_parse_uri_takes_over() -> None:
    """What it returns goes to `read`, and it may reject with a message."""

    def parse(uri: str) -> int:
        number = uri.removeprefix("x:")
        if not number.isdigit():
            raise Invalid("expected a number")
        return int(number)

    async def body() -> None:
        async with mounted(Repo(str, parse_uri=parse, template="x:{n:3}")) as alpha:
            assert (await alpha.read("x:007"))[0]["text"] == "7"
            assert (await alpha.errs("x:a")).message == "expected a number"

    run(body())


@pytest.mark.parametrize(
    ("control", "hint"),
    [
        (("public", 60_000), Hint(60_000, Scope.PUBLIC)),
        (lambda uri: ("public", 10**30) if uri is None else ["private", 5], None),
        (None, Hint(7_000, Scope.PUBLIC)),
    ],
)
def test_cache_control_says_how_long_and_for_whom(control: Any, hint: Hint | None) -> None:
    """A pair for all, or a method for each; without it the configuration holds; all is clamped."""

    async def body() -> None:
        cache = UpstreamCache(default_ttl=Duration(7), default_scope=Scope.PUBLIC)
        repo = Repo(list=[], cache_control=control) if control else Repo(list=[])
        async with mounted(repo, cache=cache) as alpha:
            read, page = await alpha.fetch(Method.READ, "x:1"), await alpha.fetch(Method.LIST)
            assert read.hint == (hint or Hint(5, Scope.PRIVATE))
            assert page.hint == (hint or Hint(86_400_000, Scope.PUBLIC))

    run(body())


def test_a_wrong_cache_control_is_a_bad_reply() -> None:
    """It is looked at with each answer."""

    async def body() -> None:
        async with mounted(Repo(cache_control=lambda _: ("public", "60"))) as alpha:
            assert "Repo.cache_control: expected" in (await alpha.fails()).detail

    run(body())


def test_H01_a_normalised_uri_finds_its_original() -> None:
    """Only after the repository says "not found"; it gets its own spelling."""

    def read(uri: str) -> str:
        if uri != "x://a b":
            raise NotFound
        return uri

    async def body() -> None:
        async with mounted(repo := Repo(read, [Own("x://a b", "a")])) as alpha:
            assert (await alpha.read("x://a%20b"))[0] == {"uri": "alpha+x://a b", "text": "x://a b"}
            assert repo.asked == ["x://a%20b", None, "x://a b"]

    run(body())


def test_what_is_not_published_is_left_out() -> None:
    """`native_prefix` holds for repositories too."""

    async def body() -> None:
        repo = Repo(list=[Own("x:a/1", "1"), Own("x:b/1", "1")])
        async with mounted(repo, native_prefix="x:a/", prefix="y:") as alpha:
            assert [item["uri"] for item in await alpha.page()] == ["y:1"]

    run(body())


def test_the_status_tells_what_it_is() -> None:
    """There is nothing to probe; the class stands where an address would."""

    async def body() -> None:
        async with mounted(Repo()) as alpha:
            status = alpha.client.status
            assert (status.era, status.transport, status.address) == (Era.MODERN, "repository", "tests:Repo")
            assert (status.up, status.resources, status.breaker) == (True, True, "closed")
            assert (await alpha.client.probe()).resources
            await alpha.read()
            text = alpha.metrics.render()[0].decode()
            assert 'method="resources/read",outcome="ok",upstream="alpha"} 1' in text

    run(body())


def test_a_close_that_fails_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The rest of the house closes all the same."""

    def close() -> None:
        raise RuntimeError("boom")

    async def body() -> None:
        async with mounted(Repo(close=close)):
            pass

    run(body())
    assert "tests:Repo.close failed" in caplog.text


def test_an_import_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not ready within the upstream's time-out is a configuration error."""
    gate = threading.Event()
    monkeypatch.setattr("mcp_federator.upstream.repository.mount", lambda *_: gate.wait(10))

    async def body() -> None:
        begun = time.monotonic()
        with pytest.raises(ConfigError, match="was not ready within"):
            await opened("alpha", Upstream(repository="a:B", timeout=Duration(0.05)))
        assert time.monotonic() - begun < 5
        gate.set()

    run(body())
