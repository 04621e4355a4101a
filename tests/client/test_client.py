"""A client connected to real servers: either era, over HTTP and stdio; and to one that is scripted."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from mcp_types import InputRequiredResult, ReadResourceRequestParams, ReadResourceResult, TextResourceContents

from mcp_federator.client import (
    Client,
    ConfigError,
    InputRequest,
    McpError,
    Reason,
    Scope,
    TooManyRoundsError,
    UpstreamFailure,
)
from mcp_federator.config import Upstream
from tests.instruments import legacy
from tests.instruments.servers import Shelf, running, shelf_of
from tests.instruments.wire import Wire, page, result

NOTEBOOK = str(Path(__file__).parents[2] / "examples" / "notebook.py")

WIDE = {"timeout": "20s"}
"""A server that has to be started takes its time on a busy machine."""


@contextmanager
def modern_http() -> Iterator[Client]:
    texts = {f"file:///notes/{n}.md": f"note {n}" for n in range(10)}
    with running(Shelf(dict(texts), page_size=4)) as server:
        yield Client(server.url, **WIDE)


@contextmanager
def legacy_http() -> Iterator[Client]:
    with legacy.http_server() as url:
        yield Client(url, **WIDE)


@contextmanager
def legacy_stdio() -> Iterator[Client]:
    settings = legacy.stdio_server()
    yield Client([settings["command"], *settings["args"]], **WIDE)


SERVERS = {
    "modern-http": (modern_http, ("modern", "2026-07-28", "streamable_http")),
    "legacy-http": (legacy_http, ("legacy", "2025-11-25", "streamable_http")),
    "legacy-stdio": (legacy_stdio, ("legacy", "2025-11-25", "stdio")),
}


def of(client: Client, how: Callable[[Client], Awaitable[Any]]) -> Any:
    """What a client finds between connecting and closing; nothing of it is left."""

    async def body() -> Any:
        async with client:
            found = await how(client)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left
        return found

    return asyncio.run(body())


@pytest.mark.parametrize("name", SERVERS)
def test_any_server_lists_and_reads(name: str) -> None:
    """Of either era, over HTTP and stdio, in the same words."""
    make, expected = SERVERS[name]

    async def how(client: Client) -> None:
        status = client.status
        assert (str(status.era), status.version, status.transport) == expected
        first = await client.list_page()
        assert (len(first.items), await client.list()) == (4, first.items)
        resources = await client.list_all()
        assert [each.uri for each in resources][:5] == [f"file:///notes/{n}.md" for n in range(5)]
        assert len(resources) == 10
        [content] = await client.read("file:///notes/3.md")
        assert (content.text, content.uri) == ("note 3", "file:///notes/3.md")
        with pytest.raises(McpError) as caught:
            await client.read("file:///nowhere")
        assert caught.value.code == -32602
        answered = await client.read_with_input("file:///notes/4.md", _never_asked)
        assert answered.contents[0].text == "note 4"

    with make() as client:
        of(client, how)


def _never_asked(request: InputRequest) -> Mapping[str, Any]:
    raise AssertionError(request)


@pytest.mark.parametrize("problem", [None, KeyError("mine")], ids=["in order", "by an error"])
def test_a_program_ends_with_its_client(problem: Exception | None, tmp_path: Path) -> None:
    """When the block is left; and then there is nothing to be asked."""
    told = tmp_path / "pid"
    script = (
        f"import os, runpy, sys; open({str(told)!r}, 'w').write(str(os.getpid()));"
        f" sys.path.insert(0, {str(Path(NOTEBOOK).parent)!r});"
        f" runpy.run_path({NOTEBOOK!r}, run_name='__main__')"
    )
    client = Client([sys.executable, "-c", script], **WIDE)

    async def how(client: Client) -> None:
        assert len(await client.list_all()) == 7
        if problem is not None:
            raise problem

    with pytest.raises(KeyError) if problem is not None else nullcontext():
        of(client, how)
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)
    with pytest.raises(RuntimeError, match="no connection"):
        _ = client.status


def test_settings_are_the_keys_of_an_upstream() -> None:
    """In the forms of a file; an object of them does as well."""

    async def body() -> None:
        async with Wire({"resources/list": result(page("x://1"))}) as wire:
            for client in (
                Client(wire.url, headers={"X-Key": "k"}, timeout="5s"),
                Client(Upstream(url=wire.url, headers={"X-Key": "k"}, prefix="docs://")),
            ):
                async with client:
                    assert [each.uri for each in await client.list()] == ["x://1"]
                assert wire.calls("resources/list")[-1].header("x-key") == "k"

    asyncio.run(body())


def test_a_directory_is_asked_like_a_server(tmp_path: Path) -> None:
    """So is whatever else an upstream can be."""
    (tmp_path / "a b.txt").write_text("text")

    async def how(client: Client) -> None:
        assert [each.uri for each in await client.list_all()] == ["file:///a%20b.txt"]
        assert (await client.read("file:///a%20b.txt"))[0].text == "text"

    of(Client(Upstream(directory=str(tmp_path))), how)


@pytest.mark.parametrize(
    ("server", "settings", "says"),
    [
        ("docs.example.com", {}, "url: expected an http:// or https:// URL"),
        ("http://x", {"timout": "5s"}, "timout: unknown key, did you mean `timeout`"),
        ("http://x", {"timeout": "fast"}, "timeout: expected a duration"),
        ("http://x", {"env": {"A": "b"}}, "env: expected only beside `command`"),
        ("http://x", {"command": "run"}, "expected exactly one of `url`, `command`"),
        ([], {}, "command: expected a program and its arguments"),
        (["run", 5], {}, r"args\[0\]: expected text without NUL"),
        (5, {}, "command: expected a program and its arguments"),
        (Upstream(url="http://x"), {"timeout": 5}, "give either settings or keys of them, not both"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(server: Any, settings: dict[str, Any], says: str) -> None:
    """At once, with the sentence that a file would get."""
    with pytest.raises(ConfigError, match=says):
        Client(server, **settings)


def test_a_server_that_is_not_there_is_told_when_entering() -> None:
    """In one word and a detail; nothing is left behind."""

    async def body() -> None:
        with pytest.raises(UpstreamFailure) as caught:
            async with Client("http://127.0.0.1:9/mcp"):
                raise AssertionError
        assert caught.value.reason is Reason.UNREACHABLE
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(body())


def test_a_read_of_nothing_asks_for_nothing_else() -> None:
    """No walk through the list in search of what may have been meant."""
    with running(shelf_of(3)) as server:

        async def how(client: Client) -> None:
            with pytest.raises(McpError):
                await client.read("file:///a b")

        of(Client(server.url), how)
        assert server.calls.count("resources/list") == 0
        assert server.calls.count("resources/read") == 1


def test_hints_are_told_as_the_server_gave_them() -> None:
    """A year too, and none is none."""
    year = 366 * 86_400_000

    async def body() -> None:
        answers = [result(page("x://1", ttl=year, scope="public")), result(b'{"resources":[]}')]
        async with Wire({"resources/list": answers}) as wire, Client(wire.url) as client:
            first = await client.list_page()
            assert (first.ttl_ms, first.cache_scope, first.cache_status) == (year, Scope.PUBLIC, "")
            second = await client.list_page()
            assert (second.ttl_ms, second.cache_scope) == (0, Scope.PRIVATE)

    asyncio.run(body())


def test_nothing_is_kept() -> None:
    """Each call asks the server, however long its answer may be kept."""
    with running(shelf_of(3)) as server:

        async def how(client: Client) -> None:
            for _ in range(3):
                await client.read("file:///1")

        of(Client(server.url), how)
        assert server.calls.count("resources/read") == 3


QUESTION = {
    "who": {
        "method": "elicitation/create",
        "params": {
            "message": "Who?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
        },
    }
}


def ask_for(rounds: int) -> Callable[[ReadResourceRequestParams, Any], Any]:
    """A resource that wants a name so many times."""

    def act(params: ReadResourceRequestParams, _: Any) -> ReadResourceResult | InputRequiredResult:
        done = int(params.request_state or 0)
        if done == rounds:
            given = params.input_responses or {}
            text = f"hello {given['who'].model_dump()['content']['name']}" if given else "hello"
            return ReadResourceResult(
                contents=[TextResourceContents(uri=params.uri, text=text)], ttl_ms=0, cache_scope="private"
            )
        return InputRequiredResult.model_validate(
            {"resultType": "input_required", "inputRequests": QUESTION, "requestState": str(done + 1)}
        )

    return act


def fill_in(request: InputRequest) -> Mapping[str, Any]:
    assert request.params["message"] == "Who?"
    return {"action": "accept", "content": {"name": "me"}}


def test_H29_a_real_server_gets_its_input_round_by_round() -> None:
    """Three rounds with the official SDK; the fourth is one too many."""
    with running(Shelf({"x://3": ask_for(3), "x://4": ask_for(4)})) as server:

        async def how(client: Client) -> None:
            found = await client.read_with_input("x://3", fill_in, 3)
            assert found.contents[0].text == "hello me"
            with pytest.raises(TooManyRoundsError):
                await client.read_with_input("x://4", fill_in, 3)
            assert (await client.read_result("x://3")).result_type == "input_required"

        of(Client(server.url), how)
        assert server.calls.count("resources/read") == 4 + 4 + 1


def test_a_client_may_be_entered_again() -> None:
    """Each time it connects anew."""
    with running(shelf_of(3)) as server:
        client = Client(server.url)

        async def body() -> None:
            for _ in range(2):
                async with client:
                    assert len(await client.list()) == 3

        asyncio.run(body())
        assert server.calls.count("server/discover") == 2


def test_a_client_is_entered_once_at_a_time() -> None:
    """A second entry would lose the first connection; after the end, or a failure, it may be entered anew."""

    async def body() -> None:
        async with Wire({"resources/list": result(page("x://1"))}) as wire:
            client = Client(wire.url)
            async with client:
                with pytest.raises(RuntimeError, match="entered already"):
                    await client.__aenter__()
                assert len(await client.list()) == 1
            async with client:
                assert len(await client.list()) == 1
        for _ in range(2):
            with pytest.raises(UpstreamFailure):
                await client.__aenter__()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("server", "key"), [("http://x/mcp", "url"), (["run"], "command"), (["run"], "args")]
)
def test_what_the_first_argument_says_is_not_said_again(server: Any, key: str) -> None:
    """One of two addresses would be asked, and nobody would know which."""
    with pytest.raises(ConfigError, match=f"{key}: given twice"):
        Client(server, **{key: "http://y/mcp"})
