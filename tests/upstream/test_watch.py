"""What is seen of changes below a directory, look by look."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mcp_federator.upstream.watch import Watch


class Looks:
    """A watch whose looks are made by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.watch = Watch(str(folder))
        self.told: list[str | None] = []

    def want(self, *names: str, lists: bool = False) -> None:
        paths = {name: tuple(os.fsencode(part) for part in name.split("/")) for name in names}
        self.watch.want(paths, lists=lists)

    def look(self) -> list[str | None]:
        """What one more look tells."""
        self.told.clear()
        self.watch._look(self.watch._paths, self.watch._lists, self.told.append)
        return list(self.told)


@pytest.fixture
def looks(tmp_path: Path) -> Looks:
    (tmp_path / "a").write_text("1")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_text("1")
    return Looks(tmp_path)


def touch(path: Path) -> None:
    found = path.stat()
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))


def written(path: Path) -> None:
    path.write_text("another text")


def replaced(path: Path) -> None:
    new = path.with_name("new")
    new.write_text("1")
    found = path.stat()
    os.utime(new, ns=(found.st_atime_ns, found.st_mtime_ns))
    new.replace(path)


def removed(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize("change", [touch, written, replaced, removed])
@pytest.mark.parametrize("name", ["a", "sub/b"])
def test_a_file_that_is_another_is_told_once(looks: Looks, name: str, change: Callable[[Path], None]) -> None:
    """Touched, written, replaced or gone; no other file is named."""
    looks.want("a", "sub/b", "sub/none")
    assert looks.look() == []
    assert looks.look() == []
    change(looks.folder / name)
    assert looks.look() == [name]
    assert looks.look() == []


def test_a_file_that_comes_is_told(looks: Looks) -> None:
    """One that was wanted before it was there."""
    looks.want("c")
    assert looks.look() == []
    (looks.folder / "c").touch()
    assert looks.look() == ["c"]


def test_what_was_not_looked_at_before_is_what_it_is(looks: Looks) -> None:
    """A wish that is new is no change, nor is one that came back."""
    looks.want("a")
    looks.look()
    touch(looks.folder / "sub" / "b")
    looks.want("a", "sub/b")
    assert looks.look() == []
    looks.want("a")
    looks.look()
    touch(looks.folder / "sub" / "b")
    looks.want("sub/b", "a")
    assert looks.look() == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda folder: (folder / "sub" / "new").touch(), [None]),
        (lambda folder: (folder / "a").unlink(), [None]),
        (lambda folder: (folder / "a").rename(folder / "z"), [None]),
        (lambda folder: touch(folder / "a"), []),
        (lambda folder: (folder / ".hidden").touch(), []),
        (lambda folder: (folder / "empty").mkdir(), []),
    ],
)
def test_the_list_is_another_when_files_come_or_go(
    looks: Looks, change: Callable[[Path], object], told: list[None]
) -> None:
    """Hidden files and folders are none; a file that was written is where it was."""
    looks.want(lists=True)
    assert looks.look() == []
    change(looks.folder)
    assert looks.look() == told
    assert looks.look() == []


def test_a_directory_that_is_away_for_a_while_tells_nothing_of_its_files(looks: Looks) -> None:
    """What is there when it is back is compared with what was there before."""
    looks.want("a", "sub/b", lists=True)
    looks.look()
    away = looks.folder.with_name("away")
    looks.folder.rename(away)
    assert looks.look() == []
    away.rename(looks.folder)
    assert looks.look() == []
    touch(looks.folder / "a")
    assert looks.look() == ["a"]


def test_nothing_is_looked_at_while_nobody_wants_anything(
    looks: Looks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread sleeps until there is a wish, looks at once, and ends when it is told to."""
    looked = threading.Semaphore(0)
    monkeypatch.setattr(looks.watch, "_look", lambda *_: looked.release())
    thread = threading.Thread(target=looks.watch.run, args=(looks.told.append,), daemon=True)
    thread.start()
    assert looked.acquire(timeout=5)
    assert not looked.acquire(timeout=0.1)
    looks.want("a")
    assert looked.acquire(timeout=5)
    looks.watch.end()
    thread.join(5)
    assert not thread.is_alive()
