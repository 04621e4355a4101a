"""How a repository's methods are called: on the loop or in a thread, within bounds."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from mcp_federator.config import Duration, Size
from mcp_federator.errors import ConfigError, Reason, UpstreamError, UpstreamFailure
from mcp_federator.model import Hint, Method, Scope
from mcp_federator.repository import Content, Invalid, NotFound, Unavailable
from mcp_federator.upstream import given as given_room
from mcp_federator.upstream.mounting import examine
from tests.upstream.asking import MAX_TTL, run
from tests.upstream.mounted import Repo, mounted


@dataclass
class Own:
    uri: str
    name: str


def test_methods_may_be_async() -> None:
    """All of them, on the loop's own thread."""

    class Async:
        prefix = "x:"

        def __init__(self) -> None:
            self.threads: Any = []

        async def list(self, cursor: str | None) -> Any:
            self.threads.append(threading.current_thread())
            return [Own("x:1", str(cursor))]

        async def parse_uri(self, uri: str) -> str:
            await asyncio.sleep(0)
            return uri + "!"

        async def read(self, what: str) -> str:
            self.threads.append(threading.current_thread())
            return what

        async def cache_control(self, _: str | None) -> Any:
            return "public", 5

        async def close(self) -> None:
            self.threads.append(None)

    async def body() -> None:
        repo = Async()
        async with mounted(repo) as alpha:
            assert (await alpha.read())[0]["text"] == "x:1!"
            assert await alpha.page()
        assert repo.threads == [threading.main_thread(), threading.main_thread(), None]

    run(body())


def test_a_sync_method_does_not_block_the_loop() -> None:
    """It waits for what only the loop can give, and gets it."""

    async def body() -> None:
        gate = threading.Event()
        async with mounted(Repo(lambda _: str(gate.wait(10)))) as alpha:
            asking = asyncio.ensure_future(alpha.read())
            await asyncio.sleep(0)
            gate.set()
            assert (await asking)[0]["text"] == "True"

    run(body())


def test_a_method_that_hangs_ends_for_its_asker() -> None:
    """At the upstream's time-out; the others go on."""

    async def body() -> None:
        gate = threading.Event()
        repo = Repo(lambda uri: gate.wait(10) if uri == "x:slow" else "text")
        async with mounted(repo, timeout=Duration(0.2)) as alpha:
            slow, fast = await asyncio.gather(alpha.fails(uri="x:slow"), alpha.read())
            assert (slow.reason, fast[0]["text"]) == (Reason.TIMEOUT, "text")
            gate.set()

    run(body())


def test_an_answer_is_bounded() -> None:
    """More than `max_response_bytes` is a bad reply."""

    async def body() -> None:
        async with mounted(Repo("x" * 2000), max_response_bytes=Size(1000)) as alpha:
            failure = await alpha.fails()
            assert (failure.reason, "more than 1000 bytes" in failure.detail) == (Reason.BAD_REPLY, True)

    run(body())


@pytest.mark.parametrize(
    "given",
    [
        "x" * 1001,
        "ü" * 501,
        b"x" * 1001,
        bytearray(1001),
        memoryview(bytes(1001)),
        ["x" * 600, b"x" * 401],
        {"uri": "x:1", "text": "x" * 1001},
        {"uri": "x:1", "blob": "x" * 1001},
        Content(body=b"x" * 1001),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_is_too_large_is_known_before_it_is_encoded(given: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it says nothing of the upstream's health: the other resources can be read."""

    def must_not(_: object) -> bytes:
        raise AssertionError("it was encoded")

    async def body() -> None:
        async with mounted(Repo(given), max_response_bytes=Size(1000)) as alpha:
            with monkeypatch.context() as patched:
                patched.setattr(given_room, "_encode", must_not)
                failure = await alpha.fails()
            assert (failure.reason, "more than 1000 bytes" in failure.detail) == (Reason.BAD_REPLY, True)
            assert "max_response_bytes" in failure.detail
            assert alpha.client.status.up

    run(body())


@pytest.mark.parametrize("given", ["\x01" * 1000, b"\xff" * 1000, "\U0001f4c1" * 250], ids=repr)
def test_what_grows_as_json_may_be_as_large_as_what_does_not(given: Any) -> None:
    """A control character takes six bytes there, three bytes of a blob take four."""

    async def body() -> None:
        async with mounted(Repo(given), max_response_bytes=Size(1000)) as alpha:
            assert await alpha.read()

    run(body())


def test_more_than_max_in_flight_is_refused_at_once() -> None:
    """As with any upstream."""

    async def body() -> None:
        gate = threading.Event()
        async with mounted(Repo(lambda _: str(gate.wait(10))), max_in_flight=1) as alpha:
            first = asyncio.ensure_future(alpha.read())
            await asyncio.sleep(0)
            assert (await alpha.fails()).reason is Reason.OVERLOADED
            gate.set()
            await first

    run(body())


def no_words(_: object) -> str:
    raise RuntimeError("no words")


@pytest.mark.parametrize("kind", [NotFound, Invalid, Unavailable, ValueError, OSError])
def test_an_exception_need_not_be_able_to_say_what_it_is(kind: type[Exception]) -> None:
    """It is told apart by its class; the next call is made as if nothing had been."""
    mute = type("Mute", (kind,), {"__str__": no_words})

    def read(uri: str) -> str:
        if uri == "x:mute":
            raise mute
        return "text"

    async def body() -> None:
        async with mounted(Repo(read)) as alpha:
            with pytest.raises((UpstreamError, UpstreamFailure)) as caught:
                await alpha.fetch(Method.READ, "x:mute")
            assert isinstance(caught.value, UpstreamError) == (kind in {NotFound, Invalid})
            assert (await alpha.read())[0]["text"] == "text"

    run(body())


class Odd(str):
    """Is equal to nothing without a fuss."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __str__(self) -> str:
        raise RuntimeError("no words")


class OddPair(tuple[Any, ...]):
    """Cannot be looked at."""

    __slots__ = ()

    def __iter__(self) -> Any:
        raise RuntimeError("no looking")


@pytest.mark.parametrize(
    ("control", "hint"),
    [
        (("public", 10**5000), Hint(int(MAX_TTL * 1000), Scope.PUBLIC)),
        ((Odd("public"), 5), Hint(5, Scope.PUBLIC)),
        ((Odd("other"), 5), None),
        (OddPair(("public", 5)), None),
        (("public", 5, 5), None),
    ],
    ids=["huge", "odd-text", "odd-other", "odd-pair", "three"],
)
def test_whatever_cache_control_gives_harms_nobody(control: Any, hint: Hint | None) -> None:
    """It is a pair, or a bad reply that names the method; at start it is a configuration error."""

    async def body() -> None:
        async with mounted(Repo(cache_control=lambda _: control)) as alpha:
            if hint is None:
                assert "Repo.cache_control: expected" in (await alpha.fails()).detail
            else:
                assert (await alpha.fetch(Method.READ, "x:1")).hint == hint

    run(body())
    if hint is None:
        with pytest.raises(ConfigError, match=r"Repo\.cache_control: expected"):
            examine(Repo(cache_control=control), "Repo", "upstreams.alpha.repository")


def test_how_many_there_may_be_is_known_before_they_are_encoded() -> None:
    """Resources on a page, contents of a resource."""

    async def body() -> None:
        async with mounted(Repo([""] * 100_001, list=[None] * 100_001)) as alpha:
            failure = await alpha.fails(Method.LIST)
            assert "more than 100000 resources on one page" in failure.detail
            assert "more than 100000 contents" in (await alpha.fails()).detail

    run(body())


@pytest.mark.parametrize("method", [Method.LIST, Method.READ])
def test_what_is_said_many_times_is_not_written_down_to_its_end(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long text costs nothing in their objects, however often it stands there."""
    written = 0
    encode = given_room._encode

    def counting(item: object) -> bytes:
        nonlocal written
        made = encode(item)
        written += len(made)
        return made

    async def body() -> None:
        long = {"uri": "x:1", "name": "n" * 100_000, "text": ""}
        repo = Repo([long] * 10_000, list=[long] * 10_000)
        async with mounted(repo, max_response_bytes=Size(1_000_000)) as alpha:
            failure = await alpha.fails(method, "x:1")
            assert "more than 1000000 bytes (`max_response_bytes`)" in failure.detail
            assert alpha.client.status.up

    monkeypatch.setattr(given_room, "_encode", counting)
    run(body())
    assert written < 7_000_000


def test_a_pair_that_changes_later_does_not_matter() -> None:
    """It was looked at, and taken, when the repository was mounted."""
    control: list[Any] = ["public", 5]

    async def body() -> None:
        async with mounted(Repo(cache_control=control)) as alpha:
            control[:] = ["nobody", -1, None]
            assert (await alpha.fetch(Method.READ, "x:1")).hint == Hint(5, Scope.PUBLIC)

    run(body())


class Hostile:
    """Ends the process wherever it is looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit


class HostileText(str):
    """Likewise, and is text."""

    __slots__ = ()

    def __len__(self) -> int:
        raise SystemExit

    def encode(self, *_: object) -> bytes:
        raise SystemExit


class HostileError(ValueError):
    """Likewise, and is raised."""

    def __str__(self) -> str:
        raise SystemExit


class HostileAwaitable:
    """Can be awaited, and then ends the process."""

    def __await__(self) -> Any:
        raise SystemExit


def exits(_: object) -> Any:
    raise SystemExit


def fails_mutely(_: object) -> Any:
    raise HostileError


def is_cancelled(_: object) -> Any:
    raise asyncio.CancelledError


HOSTILE: dict[str, Any] = {
    "object": lambda _: Hostile(),
    "text": lambda _: HostileText("text"),
    "awaitable": lambda _: HostileAwaitable(),
    "items": lambda _: [Hostile()],
    "exit": exits,
    "mute": fails_mutely,
    "cancelled": is_cancelled,
}


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("name", ["read", "list", "parse_uri", "cache_control"])
@pytest.mark.parametrize("what", HOSTILE)
def test_nothing_that_a_method_gives_or_raises_ends_more_than_its_call(
    what: str, name: str, is_async: bool
) -> None:
    """Not the process, not the call of another, and the failure names the method."""
    calls = HOSTILE[what]

    async def calls_on_the_loop(argument: object) -> Any:
        return calls(argument)

    async def body() -> None:
        repo = Repo()
        setattr(repo, name, calls_on_the_loop if is_async else calls)
        async with mounted(repo) as alpha:
            method = Method.LIST if name == "list" else Method.READ
            failure: UpstreamFailure | None = None
            try:
                await alpha.fetch(method, None if name == "list" else "x:1")
            except UpstreamFailure as raised:
                failure = raised
            # What `parse_uri` gives goes to `read` as it is.
            assert failure is not None or name == "parse_uri"
            assert failure is None or failure.reason is Reason.BAD_REPLY
            assert failure is None or failure.detail.startswith(f"tests:Repo.{name}")

    run(body())
