"""What users are shown of repositories: the example, and the words of the public module."""

import asyncio
import logging
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp.shared.exceptions import MCPError

from mcp_federator import repository
from mcp_federator.errors import ConfigError
from mcp_federator.repository import NotFound, Repository, Resource, expand, match
from tests.instruments import clients
from tests.instruments.house import House, house
from tests.instruments.processes import python

EXAMPLES = Path(__file__).parent.parent / "examples"
PEOPLE = {"people": {"repository": "people:PeopleRepository", "options": {"table": "staff"}}}


@pytest.fixture(autouse=True)
def beside_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_the_example_lists_and_reads_everything() -> None:
    """Two pages of people, each of whom can be read; answers are kept for a minute."""

    async def body() -> None:
        async with house(PEOPLE) as it:
            pages = await it.walk()
            uris = [uri for page in pages for uri in page.uris]
            assert uris == [
                "people+people://design/Ada%20Byron",
                "people+people://design/Bo%20Ek",
                "people+people://sales/Zo%C3%AB%20%C3%96lund",
            ]
            for uri in uris:
                reply = await it.read(uri)
                assert " works " in reply.result["contents"][0]["text"]
                assert (reply.result["ttlMs"] <= 60_000, reply.result["cacheScope"]) == (True, "public")
                assert "hit" in (await it.read(uri)).cache_status
            [template] = (await it.page(None, "resources/templates/list")).result["resourceTemplates"]
            assert template["uriTemplate"] == "people+people://{team}/{name}"
            assert (await it.read("people+people://design/Nobody")).error["code"] == -32602

    asyncio.run(body())


def test_the_first_one_of_the_documentation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its class and its configuration, as they stand there."""
    page = (EXAMPLES.parent / "docs" / "repositories.md").read_text()
    [code, *_], [text, *_] = (
        re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        for language in ("python", "yaml")
    )
    (tmp_path / "people.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "people", raising=False)

    async def body() -> None:
        async with house(yaml.safe_load(text)["upstreams"]) as it:
            uris = (await it.page()).uris
            texts = [(await it.read(uri)).result["contents"][0]["text"] for uri in uris]
            assert texts == ["Hello, Ada Byron", "Hello, Zoë Ölund"]

    asyncio.run(body())
    monkeypatch.delitem(sys.modules, "people")


class Odd(Repository):
    """Fails in the ways that others' code fails."""

    prefix = "odd:"

    def list(self, cursor: str | None) -> Any:
        del cursor
        return [Resource(uri="elsewhere:1", name="1")]

    def read(self, uri: str) -> Any:
        if uri == "odd:exit":
            raise SystemExit(1)
        if uri == "odd:none":
            raise NotFound("nobody of that name")
        return 5


def test_one_repository_that_fails_costs_only_itself(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Its list is incomplete, its reads are errors, the process and the others go on."""
    (tmp_path / "a.md").write_text("hello")

    async def body(it: House) -> None:
        page = await it.page()
        assert page.uris[-1] == "files+file:///a.md"
        assert len(page.uris) == 3
        [missing] = page.result["_meta"]["dev.mcp-federator/incomplete"]
        assert missing == {"upstream": "odd", "reason": "bad_reply"}
        for uri in ("odd+odd:exit", "odd+odd:1"):
            assert (await it.read(uri)).error["data"]["reason"] == "bad_reply"
        assert (await it.read("odd+odd:none")).error["message"] == "nobody of that name"
        assert (await it.read("files+file:///a.md")).result["contents"][0]["text"] == "hello"
        status = {one["name"]: one for one in (await it.status())["upstreams"]}
        assert status["odd"]["transport"] == "repository"
        assert status["files"]["transport"] == "directory"

    async def run() -> None:
        odd = {"odd": {"repository": "tests.test_repository:Odd"}}
        files = {"files": {"directory": str(tmp_path)}}
        async with house({**PEOPLE, **odd, **files}) as it:
            await body(it)

    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    assert "tests.test_repository:Odd.list: the URI elsewhere:1 is outside its prefix" in caplog.text


def test_a_method_that_hangs_does_not_keep_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its asker is told in time; SIGTERM ends the process with 0 while the thread still hangs."""
    (tmp_path / "hanging.py").write_text(
        "import threading\nclass Hanging:\n    prefix = 'h:'\n    def list(self, cursor): return []\n"
        "    def read(self, uri): threading.Event().wait()\n"
    )
    (tmp_path / "f.yaml").write_text(
        "server: {port: 0, admin_port: 0, grace: 1}\n"
        "upstreams: {h: {repository: 'hanging:Hanging', timeout: 200ms}}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with python("-m", "mcp_federator", "serve", "-c", str(tmp_path / "f.yaml")) as process:
        url = process.wait_for(r"MCP endpoint (\S+)")[1]

        async def ask() -> None:
            async with clients.sdk(url) as reader:
                with pytest.raises(MCPError) as error:
                    await reader.read("h+h:1")
                assert error.value.data == {"upstream": "h", "reason": "timeout"}

        asyncio.run(ask())
        process.signal(signal.SIGTERM)
        assert process.ended() == 0


def test_a_class_that_cannot_be_used_is_refused_at_start() -> None:
    """The message names the key and the class; nothing begins to serve."""

    async def body() -> None:
        async with house({"people": {"repository": "people:Nobody"}}):
            raise AssertionError("it serves")

    with pytest.raises(ConfigError, match=r"upstreams\.people\.repository: people:Nobody"):
        asyncio.run(body())


def test_the_public_words_are_there() -> None:
    """Each name that is promised exists, and templates go both ways."""
    assert all(hasattr(repository, name) for name in repository.__all__)
    assert match("x:{a}", expand("x:{a}", {"a": "b c"})) == {"a": "b c"}
