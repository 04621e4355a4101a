import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mcp_federator.upstream import tree
from mcp_federator.upstream.limits import TooLargeError

FAR = 1e12


def names(path: Path, after: tree.Path = (), steps: int = 100_000) -> list[bytes]:
    with tree.root(str(path)) as folder:
        return [b"/".join(entry.path) for entry in tree.Walk(steps, FAR).files(folder, after)]


def read(path: Path, *parts: bytes, limit: int = 1 << 20) -> bytes:
    with tree.root(str(path)) as folder:
        return tree.read(folder, parts, limit)


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_files_come_in_the_order_of_their_paths(tmp_path: Path) -> None:
    """Name by name, by bytes: a folder stands where its name does."""
    for name in ("b", "a/z", "a/b/c", "a.md", "B", "ü"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert names(tmp_path) == [b"B", b"a/b/c", b"a/z", b"a.md", b"b", "ü".encode()]


def test_a_walk_goes_on_behind_any_path(tmp_path: Path) -> None:
    """One that is there, one that is gone, one that was a folder and is a file, and the reverse."""
    for name in ("a", "b/x", "b/y", "c"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    for after, rest in {
        (b"a",): [b"b/x", b"b/y", b"c"],
        (b"aa",): [b"b/x", b"b/y", b"c"],
        (b"a", b"q"): [b"b/x", b"b/y", b"c"],
        (b"b",): [b"b/x", b"b/y", b"c"],
        (b"b", b"x"): [b"b/y", b"c"],
        (b"b", b"xx", b"y"): [b"b/y", b"c"],
        (b"c",): [],
        (b"z",): [],
    }.items():
        assert names(tmp_path, after) == rest


def test_more_names_than_a_batch(tmp_path: Path) -> None:
    """2,500 names of one folder come in order, each once, wherever the walk begins."""
    wanted = sorted(b"%d" % number for number in range(2500))
    for name in wanted:
        (tmp_path / name.decode()).touch()
    assert names(tmp_path) == wanted
    assert names(tmp_path, (wanted[999],)) == wanted[1000:]


def test_a_walk_is_cut_short_and_goes_on(tmp_path: Path) -> None:
    """After so many names, empty folders too, it says where it stands."""
    for number in range(30):
        (tmp_path / f"{number:02}" / "inner").mkdir(parents=True)
    (tmp_path / "29" / "inner" / "file").touch()
    found: list[tree.Path] = []
    after: tree.Path = ()
    rounds = 0
    while True:
        rounds += 1
        walk = tree.Walk(7, FAR)
        with tree.root(str(tmp_path)) as folder:
            found += [entry.path for entry in walk.files(folder, after)]
        if not walk.cut:
            break
        assert walk.last > after
        after = walk.last
    assert (found, rounds > 5) == ([(b"29", b"inner", b"file")], True)


def test_a_walk_has_an_end(tmp_path: Path) -> None:
    """When its time is over it fails."""
    (tmp_path / "a").touch()
    with tree.root(str(tmp_path)) as folder, pytest.raises(TimeoutError):
        list(tree.Walk(10, 1.0, lambda: 2.0).files(folder, ()))


@contextmanager
def unix_socket(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))
        yield


def test_only_regular_files_are_there(tmp_path: Path) -> None:
    """No symlink, FIFO, socket, device, folder or hidden name is listed or read, and none of them waits."""
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / ".hidden").mkdir()
    (root / ".hidden" / "f").write_text("secret")
    (root / ".dot").write_text("secret")
    (tmp_path / "outside").write_text("secret")
    (root / "file").write_text("fine")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "inside").symlink_to("file")
    (root / "up").symlink_to("..")
    (root / "loop").symlink_to("loop")
    (root / "null").symlink_to("/dev/null")
    os.mkfifo(root / "fifo")
    before = descriptors()
    with unix_socket(root / "socket"):
        assert names(root) == [b"file"]
        for path in (
            *((name,) for name in (b"link", b"inside", b"loop", b"null", b"fifo", b"socket", b"folder")),
            *((b".dot",), (b".hidden", b"f"), (b"up", b"outside"), (b"..", b"outside"), (b"file", b"x")),
            *((b".",), (), (b"back\\slash",), (b"x" * 300,)),
        ):
            with pytest.raises(OSError, match=r"\[Errno"):
                read(root, *path)
    assert read(root, b"file") == b"fine"
    assert descriptors() == before


def test_a_fifo_that_takes_a_file_s_place_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the opening, the file becomes a FIFO without a writer."""
    (tmp_path / "a").write_text("x")
    looked = os.stat

    def swapping(name: bytes, *, dir_fd: int, follow_symlinks: bool) -> os.stat_result:
        found = looked(name, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
        (tmp_path / "a").unlink()
        os.mkfifo(tmp_path / "a")
        return found

    monkeypatch.setattr(os, "stat", swapping)
    with pytest.raises(FileNotFoundError):
        read(tmp_path, b"a")


def test_a_walk_does_not_follow_what_takes_a_folder_s_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look and the opening, the folder becomes a symlink to one outside."""
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "folder").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").touch()
    opened = os.open

    def swapping_open(name: str | bytes, flags: int, *, dir_fd: int | None = None) -> int:
        if name == b"folder" and not (inside / "folder").is_symlink():
            (inside / "folder").rmdir()
            (inside / "folder").symlink_to(outside)
        return opened(name, flags, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swapping_open)
    assert names(inside) == []
    assert (inside / "folder").is_symlink()


def test_what_is_deep_or_long_is_not_there(tmp_path: Path) -> None:
    """64 names and 2,048 bytes are the bounds; the rest of the tree is listed."""
    folder = tmp_path
    for _ in range(tree.MAX_DEPTH + 6):
        folder = folder / "d"
        folder.mkdir()
        (folder / "f").touch()
    long = tmp_path / "long"
    for _ in range(10):
        long = long / ("x" * 250)
    long.mkdir(parents=True)
    (long / "f").touch()
    found = names(tmp_path)
    assert len(found) == tree.MAX_DEPTH - 1
    assert max(map(len, found)) <= tree.MAX_PATH_BYTES
    assert read(tmp_path, *[b"d"] * (tree.MAX_DEPTH - 1), b"f") == b""
    with pytest.raises(OSError, match="no such path"):
        read(tmp_path, *[b"d"] * tree.MAX_DEPTH, b"f")


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    """One byte more is too large, whatever its size was said to be."""
    (tmp_path / "a").write_bytes(b"x" * 1000)
    assert read(tmp_path, b"a", limit=1000) == b"x" * 1000
    with pytest.raises(TooLargeError):
        read(tmp_path, b"a", limit=999)


def _rewritten(path: Path, times: int) -> Callable[[int, int, int], bytes]:
    """A `pread` after which the file is another, so many times."""
    taken = os.pread
    left = [times]

    def pread(file: int, size: int, offset: int) -> bytes:
        data = taken(file, size, offset)
        if data and left[0]:
            left[0] -= 1
            path.write_bytes(b"%d" % left[0] * (left[0] + 1))
        return data

    return pread


@pytest.mark.parametrize(("times", "text"), [(1, b"0"), (2, b"0"), (9, b"77777777")])
def test_a_file_that_changes_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, text: bytes
) -> None:
    """At most three times; then what came last is taken, and it ends."""
    (tmp_path / "a").write_bytes(b"old" * 10)
    monkeypatch.setattr(os, "pread", _rewritten(tmp_path / "a", times))
    data = read(tmp_path, b"a")
    assert data.startswith(text[:1])


@contextmanager
def swapping(make: Callable[[], None]) -> Iterator[threading.Event]:
    """Do something again and again, in a thread, until the block ends."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            make()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(10)


def test_nothing_outside_is_read_while_a_folder_becomes_a_symlink(tmp_path: Path) -> None:
    """Thousands of reads and walks meet the folder, the symlink and neither; none meets what is outside."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    for folder in (root / "d" / "e", outside / "e"):
        folder.mkdir(parents=True)
        (folder / "f").write_text("inside" if folder.is_relative_to(root) else "secret")
    (outside / "e" / "only").write_text("secret")
    (tmp_path / "link").symlink_to(outside)

    def swap() -> None:
        (root / "d").rename(tmp_path / "kept")
        (tmp_path / "link").rename(root / "d")
        (root / "d").rename(tmp_path / "link")
        (tmp_path / "kept").rename(root / "d")

    before = descriptors()
    seen: dict[str, int] = {}
    with swapping(swap):
        for _ in range(4000):
            try:
                result = read(root, b"d", b"e", b"f").decode()
            except OSError as problem:
                result = type(problem).__name__
            seen[result] = seen.get(result, 0) + 1
            listed = names(root)
            assert listed in ([], [b"d/e/f"])
    assert "secret" not in seen
    assert seen.get("inside")
    assert len(seen) > 1
    assert descriptors() == before


def test_nothing_outside_is_read_while_a_file_becomes_a_symlink(tmp_path: Path) -> None:
    """Likewise for the last name of a path."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "f").write_text("inside")
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "outside")

    def swap() -> None:
        (root / "f").rename(tmp_path / "kept")
        (tmp_path / "link").rename(root / "f")
        (root / "f").rename(tmp_path / "link")
        (tmp_path / "kept").rename(root / "f")

    seen = set()
    with swapping(swap):
        for _ in range(4000):
            try:
                seen.add(read(root, b"f").decode())
            except OSError as problem:
                seen.add(type(problem).__name__)
    assert "inside" in seen
    assert "secret" not in seen
