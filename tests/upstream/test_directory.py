import base64
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from mcp_federator.config import Duration, Size, Upstream, UpstreamCache
from mcp_federator.errors import ConfigError, Reason
from mcp_federator.model import Hint, Method, Scope
from mcp_federator.upstream.directory import PAGE
from mcp_federator.upstream.repository import opened
from tests.upstream.asking import items, run
from tests.upstream.mounted import directory


def write(root: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


def test_a_file_is_listed_with_what_is_known_of_it(tmp_path: Path) -> None:
    """URI, name, type by its ending, size, and when it was changed."""
    write(tmp_path, {"guides/a b.md": b"hello"})
    os.utime(tmp_path / "guides" / "a b.md", (1_000_000_000.9,) * 2)

    async def body() -> None:
        async with directory(tmp_path) as alpha:
            assert await alpha.page() == [
                {
                    "uri": "alpha+file:///guides/a%20b.md",
                    "name": "a b.md",
                    "mimeType": "text/markdown",
                    "size": 5,
                    "annotations": {"lastModified": "2001-09-09T01:46:40Z"},
                }
            ]
            assert items(await alpha.fetch(Method.TEMPLATES)) == []

    run(body())


@pytest.mark.parametrize(
    ("name", "data", "content"),
    [
        ("a.md", b"# \xc3\xbc", {"mimeType": "text/markdown", "text": "# ü"}),
        ("a.json", b"{}", {"mimeType": "application/json", "text": "{}"}),
        ("a.png", b"\x89PNG", {"mimeType": "image/png", "blob": "iVBORw=="}),
        ("a.md", b"\xff", {"mimeType": "text/markdown", "blob": "/w=="}),
        ("a", b"\x00", {"blob": "AA=="}),
        ("a", b"", {"text": ""}),
        ("a.txt.gz", b"\x1f\x8b", {"mimeType": "application/gzip", "blob": "H4s="}),
        ("data:text,x.html", b"x", {"mimeType": "text/html", "text": "x"}),
    ],
)
def test_a_file_is_a_text_or_a_blob(tmp_path: Path, name: str, data: bytes, content: dict[str, str]) -> None:
    """UTF-8 without NUL is a text; the type comes from the name."""
    write(tmp_path, {name: data})

    async def body() -> None:
        async with directory(tmp_path) as alpha:
            uri = f"file:///{quote(name, safe='')}"
            assert await alpha.read(uri) == [{"uri": f"alpha+{uri}", **content}]

    run(body())


NAMES = [
    *(b"plain", b"with space", "ü世.md".encode(), b"not utf-8 \xff\xfe", b"a%20b", b"a?b#c", b"a&b;c=d"),
    *(b"line\nbreak", b"~tilde", b"(1)", b"\x01", b"'\"", b"...", b"a..b", b"x" * 255, b"{x}"),
]


def test_whatever_is_listed_can_be_read(tmp_path: Path) -> None:
    """Whatever its name is, UTF-8 or not; names with a backslash or that begin with a dot are not listed."""
    shown = [name for name in NAMES if not name.startswith(b".")]
    for name in [*NAMES, b"back\\slash", b".hidden"]:
        (tmp_path / os.fsdecode(name)).write_bytes(name)

    async def body() -> None:
        async with directory(tmp_path) as alpha:
            uris = await alpha.uris()
            assert len(uris) == len(shown)
            bodies = set()
            for uri in uris:
                [content] = await alpha.read(uri)
                text = content.get("text")
                bodies.add(base64.b64decode(content["blob"]) if text is None else text.encode())
            assert bodies == set(shown)

    run(body())


@pytest.mark.parametrize(
    "path",
    [
        *(
            "",
            "/",
            "..",
            ".",
            "../outside",
            "%2e%2e/outside",
            "%2E%2E%2Foutside",
            "d/../f",
            "d/%2e%2e/f",
            "d/./f",
        ),
        *(
            "d%2ff",
            "d%2Ff",
            "f%00",
            "f%00.md",
            "d\\f",
            "d%5cf",
            "d%5C..%5Cf",
            "//f",
            "d//f",
            "d/",
            "f/",
            "d",
            "/f",
        ),
        *("f?x", "f#x", "f%", "f%2", "f%zz", " f", "f ", "F", "ü", "%c0%ae%c0%ae/outside", "..%c0%afoutside"),
        *(
            ".hidden",
            "%2ehidden",
            ".git/config",
            "%2egit/config",
            "link",
            "nothing",
            "x" * 3000,
            "f\n",
            "f\x00",
        ),
        *("/" * 3000, "d/" * 3000 + "f", "etc/passwd", "/etc/passwd"),
    ],
)
def test_what_is_no_path_of_a_file_is_not_found(tmp_path: Path, path: str) -> None:
    """Whatever the spelling; and the list is not walked for it."""
    root = tmp_path / "root"
    write(root, {"f": b"f", "d/f": b"df", ".hidden": b"secret", ".git/config": b"secret"})
    (tmp_path / "outside").write_text("secret")
    (root / "link").symlink_to("f")

    async def body() -> None:
        async with directory(root) as alpha:
            assert (await alpha.errs(f"file:///{path}")).not_found
            assert (await alpha.errs(f"file://host/{path}")).not_found
            assert (await alpha.errs(f"file:{path}")).not_found

    run(body())


def test_each_spelling_of_a_path_is_understood(tmp_path: Path) -> None:
    """URL classes encode more or less; what comes back has the URI that was asked for."""
    write(tmp_path, {"a (1)~.md": b"x"})

    async def body() -> None:
        async with directory(tmp_path) as alpha:
            for uri in ("file:///a%20%281%29~.md", "file:///a%20(1)%7e.md", "file:///%61%20(1)~.md"):
                assert (await alpha.read(uri))[0]["uri"] == f"alpha+{uri}"

    run(body())


def test_ten_thousand_files_come_in_pages(tmp_path: Path) -> None:
    """In the order of their paths, each once; cursors stay below 4 KiB."""
    for number in range(10_000):
        folder = tmp_path / f"{number % 7}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number:05}").touch()

    async def body() -> None:
        async with directory(tmp_path) as alpha:
            first = await alpha.fetch(Method.LIST)
            assert first.count == PAGE
            assert len(first.next_cursor or "") < 4096
            uris = await alpha.uris()
            assert len(uris) == 10_000
            assert uris == sorted(set(uris))

    run(body())


def test_a_cursor_survives_changes(tmp_path: Path) -> None:
    """Files that come and go between two pages cost and repeat nothing that stayed."""
    write(tmp_path, {f"{number:04}": b"" for number in range(PAGE + 100)})

    async def body() -> None:
        async with directory(tmp_path) as alpha:
            page = await alpha.fetch(Method.LIST)
            (tmp_path / f"{PAGE - 1:04}").unlink()
            (tmp_path / f"{PAGE:04}").unlink()
            write(tmp_path, {"0000a": b"", "9999": b""})
            rest = await alpha.page(page.next_cursor)
            names = [item["name"] for item in rest]
            assert names == [*(f"{number:04}" for number in range(PAGE + 1, PAGE + 100)), "9999"]

    run(body())


@pytest.mark.parametrize("cursor", ["", "x", "MQ", "äö", "2222", "AAAA"])
def test_a_cursor_of_another_is_refused(tmp_path: Path, cursor: str) -> None:
    """With an answer, never with page 1."""

    async def body() -> None:
        async with directory(tmp_path) as alpha:
            assert (await alpha.errs(None, Method.LIST, cursor)).code == -32602

    run(body())


def test_a_page_is_exactly_full(tmp_path: Path) -> None:
    """The last page has no cursor to an empty one."""
    write(tmp_path, {f"{number:04}": b"" for number in range(PAGE)})

    async def body() -> None:
        async with directory(tmp_path) as alpha:
            page = await alpha.fetch(Method.LIST)
            assert (page.count, page.next_cursor) == (PAGE, None)

    run(body())


def test_a_larger_file_is_neither_listed_nor_read(tmp_path: Path) -> None:
    """`max_response_bytes` is the bound of a file; what grew meanwhile is a bad reply."""
    write(tmp_path, {"small": b"x" * 500, "large": b"x" * 1001})

    async def body() -> None:
        async with directory(tmp_path, max_response_bytes=Size(1000)) as alpha:
            assert [item["name"] for item in await alpha.page()] == ["small"]
            failure = await alpha.fails(uri="file:///large")
            assert (failure.reason, "more than 1000 bytes" in failure.detail) == (Reason.BAD_REPLY, True)

    run(body())


def test_whatever_its_bytes_are_a_listed_file_can_be_read(tmp_path: Path) -> None:
    """At the very bound, however long it is as JSON; and one beyond it says nothing of the others."""
    bodies = {"blob": b"\xff" * 1000, "control": b"\x01" * 1000, "text": b"x" * 1000, "zeros": bytes(1000)}
    write(tmp_path, {**bodies, "beyond": b"x" * 1001})

    async def body() -> None:
        async with directory(tmp_path, max_response_bytes=Size(1000)) as alpha:
            assert await alpha.uris() == [f"file:///{name}" for name in bodies]
            for name in bodies:
                assert await alpha.read(f"file:///{name}")
            await alpha.fails(uri="file:///beyond")
            assert alpha.client.status.up

    run(body())


def test_a_page_of_long_names_is_shorter(tmp_path: Path) -> None:
    """It ends before it is longer than an answer may be; no file is lost for that."""
    names = [f"{number:03}{'x' * 100}" for number in range(100)]
    write(tmp_path, dict.fromkeys(names, b""))

    async def body() -> None:
        async with directory(tmp_path, max_response_bytes=Size(2000)) as alpha:
            assert 3 < len(await alpha.page()) < 10
            assert await alpha.uris() == [f"file:///{name}" for name in names]

    run(body())


def test_hints_come_from_the_configuration(tmp_path: Path) -> None:
    """A file says nothing of how long it stays as it is."""
    write(tmp_path, {"f": b"x"})

    async def body() -> None:
        cache = UpstreamCache(default_ttl=Duration(30), default_scope=Scope.PUBLIC)
        async with directory(tmp_path, cache=cache) as alpha:
            hint = Hint(30_000, Scope.PUBLIC)
            assert (await alpha.fetch(Method.READ, "file:///f")).hint == hint
            assert (await alpha.fetch(Method.LIST)).hint == hint

    run(body())


def test_a_file_that_vanishes_after_the_list_is_not_found(tmp_path: Path) -> None:
    """And one that comes is read, though no list had it."""
    write(tmp_path, {"f": b"x"})

    async def body() -> None:
        async with directory(tmp_path) as alpha:
            assert await alpha.uris() == ["file:///f"]
            (tmp_path / "f").unlink()
            assert (await alpha.errs("file:///f")).not_found
            write(tmp_path, {"g": b"y"})
            assert (await alpha.read("file:///g"))[0]["text"] == "y"

    run(body())


def test_a_directory_that_vanishes_is_unreachable_until_it_is_back(tmp_path: Path) -> None:
    """So stale copies may be served; a symlink in its place is followed, for it is the configured path."""
    root = tmp_path / "root"
    write(root, {"f": b"x"})

    async def body() -> None:
        async with directory(root) as alpha:
            root.rename(tmp_path / "other")
            for failure in (await alpha.fails(uri="file:///f"), await alpha.fails(Method.LIST, None)):
                assert (failure.reason, failure.stale_ok) == (Reason.UNREACHABLE, True)
            assert not alpha.client.status.up
            root.symlink_to(tmp_path / "other")
            assert await alpha.read("file:///f")
            assert alpha.client.status.up

    run(body())


def test_a_directory_that_is_not_there_is_a_configuration_error(tmp_path: Path) -> None:
    """So is a file."""
    (tmp_path / "f").touch()
    for path in (tmp_path / "nothing", tmp_path / "f"):
        with pytest.raises(ConfigError, match=r"directory: expected a directory") as error:
            run(opened("alpha", Upstream(directory=str(path))))
        assert error.value.path == "upstreams.alpha.directory"


@contextmanager
def nobody() -> Iterator[Path]:
    """A directory of our own, and no rights beyond it: root may read everything."""
    root = Path(tempfile.mkdtemp())
    user = os.geteuid()
    try:
        if user == 0:
            os.chown(root, 65534, -1)
            os.seteuid(65534)
        yield root
    finally:
        if user == 0:
            os.seteuid(0)
        shutil.rmtree(root)


def test_what_may_not_be_read_harms_nothing() -> None:
    """An unreadable file or folder is not listed and not found; the others are there."""

    async def body(root: Path) -> None:
        async with directory(root) as alpha:
            assert await alpha.uris() == ["file:///fine", "file:///open/f"]
            for path in ("shut", "closed/f", "unlisted/f"):
                assert (await alpha.errs(f"file:///{path}")).not_found

    with nobody() as root:
        write(root, dict.fromkeys(("fine", "shut", "closed/f", "open/f", "unlisted/f"), b"x"))
        (root / "shut").chmod(0)
        (root / "closed").chmod(0)
        (root / "unlisted").chmod(0o100)
        try:
            run(body(root))
        finally:
            (root / "closed").chmod(0o700)
            (root / "unlisted").chmod(0o700)
