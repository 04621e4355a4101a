"""How a repository tells of its changes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mcp_federator.config import Upstream
from mcp_federator.model import ANYONE, Change, Event, Offers, Wanted
from mcp_federator.upstream.repository import opened
from tests.upstream.asking import run
from tests.upstream.mounted import Asker, Repo, mounted

UPDATED = Event("alpha", Change.RESOURCE, "x:1")
LIST = Event("alpha", Change.LIST)
Tell = Callable[..., None]


async def until(true: Callable[[], bool], seconds: float = 5) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - what is waited for happens in a thread
            await asyncio.sleep(0.005)


def test_a_class_that_tells_nothing_offers_nothing() -> None:
    """It is asked to tell nothing either."""

    async def body() -> None:
        async with mounted(Repo()) as alpha:
            alpha.client.want(ANYONE, Wanted(lists=True))
            assert (alpha.client.offers, alpha.client.status.listening) == (Offers(), 0)

    run(body())


@pytest.mark.parametrize("kind", ["thread", "async", "later"])
def test_what_watch_tells_is_heard(kind: str) -> None:
    """From a thread of its own, from the loop, or from whatever thread later on."""

    def sync(tell: Tell) -> None:
        tell("x:1")
        tell()

    async def on_loop(tell: Tell) -> None:
        await asyncio.sleep(0)
        sync(tell)
        await asyncio.sleep(60)

    def later(tell: Tell) -> None:
        threading.Timer(0.01, sync, (tell,)).start()

    watch: Any = {"thread": sync, "async": on_loop, "later": later}[kind]

    async def body() -> None:
        async with mounted(Repo(watch=watch)) as alpha:
            assert alpha.client.offers == Offers(lists=True, resources=True)
            await until(lambda: len(alpha.heard) == 2)
            assert alpha.heard == [UPDATED, LIST]

    run(body())


@pytest.mark.parametrize("uri", ["y:1", "", 5, b"x:1"], ids=repr)
def test_only_ones_own_uris_can_be_told(uri: object) -> None:
    """Whoever tells something else learns at once what was expected; nothing is heard."""
    said: list[str] = []

    def watch(tell: Tell) -> None:
        try:
            tell(uri)
        except ValueError as problem:
            said.append(str(problem))

    async def body() -> None:
        async with mounted(Repo(watch=watch)) as alpha:
            await until(lambda: bool(said))
            assert alpha.heard == []

    run(body())
    assert said == ["expected a URI that begins with x:, or None for the list"]


@pytest.mark.parametrize("kind", ["thread", "async"])
def test_a_watch_that_raises_tells_no_more(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """That is a gap, and the log says whose code it was; reads go on."""

    def sync(_: Tell) -> None:
        raise RuntimeError("no inotify here")

    async def on_loop(_: Tell) -> None:
        sync(_)

    watch: Any = {"thread": sync, "async": on_loop}[kind]

    async def body() -> None:
        async with mounted(Repo(watch=watch)) as alpha:
            await until(lambda: alpha.heard == [Event("alpha", Change.GAP)])
            assert alpha.client.offers == Offers()
            assert await alpha.read()

    run(body())
    assert "tests:Repo.watch raised" in caplog.text


def test_want_is_told_the_last_wish() -> None:
    """In a thread; one that fails is told so in the log, and the next wish is passed on."""
    wished: list[tuple[bool, frozenset[str]]] = []
    gate = threading.Event()

    def want(lists: bool, uris: frozenset[str]) -> None:
        wished.append((lists, uris))
        gate.wait(5)
        if len(wished) == 1:
            raise RuntimeError

    async def body() -> None:
        async with mounted(Repo(watch=lambda _: None, want=want)) as alpha:
            alpha.client.want(ANYONE, Wanted(lists=True))
            await until(lambda: len(wished) == 1)
            for number in range(50):
                alpha.client.want(ANYONE, Wanted(uris=frozenset({f"x:{number}"})))
            gate.set()
            await until(lambda: len(wished) == 2)
            assert wished == [(True, frozenset()), (False, frozenset({"x:49"}))]
            assert alpha.client.status.listening == 1
            alpha.client.want(ANYONE, Wanted())
            await until(lambda: len(wished) == 3)
            assert alpha.client.status.listening == 0

    run(body())


def test_what_is_told_after_the_end_is_not_heard() -> None:
    """Nor does it fail: whoever tells cannot know."""
    kept: list[Tell] = []

    async def body() -> Asker:
        async with mounted(Repo(watch=kept.append)) as alpha:
            await until(lambda: bool(kept))
        kept[0]("x:1")
        await asyncio.sleep(0)
        assert alpha.heard == []
        return alpha

    alpha = run(body())
    kept[0]("x:1")
    assert alpha.heard == []


@asynccontextmanager
async def handbook(folder: Path) -> AsyncIterator[Asker]:
    chosen = Upstream(directory=str(folder))
    asker = Asker(await opened("alpha", chosen), chosen)
    await asker.client.start()
    try:
        yield asker
    finally:
        await asker.client.close()


def test_a_directory_tells_of_its_files(tmp_path: Path) -> None:
    """A touch is heard well within a second or two, also of a file whose name needs encoding."""
    (tmp_path / "a b.md").write_text("1")
    uri = "file:///a%20b.md"

    async def body() -> None:
        async with handbook(tmp_path) as alpha:
            assert alpha.client.offers == Offers(lists=True, resources=True)
            alpha.client.want(ANYONE, Wanted(lists=True, uris=frozenset({uri, "file:///../x"})))
            await asyncio.sleep(0.3)
            (tmp_path / "a b.md").write_text("another")
            await until(lambda: Event("alpha", Change.RESOURCE, uri) in alpha.heard)
            (tmp_path / "new").touch()
            await until(lambda: LIST in alpha.heard)
            assert len(alpha.heard) == 2

    run(body())
