import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.repository import Resource
from mcp_federator.upstream import orders, tree
from mcp_federator.upstream.directory import PAGE, Directory
from mcp_federator.upstream.orders import Gathering, Orders
from tests.upstream.asking import Clock

FAR = 1e12


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """One item for each look at a folder."""
    seen: list[int] = []
    scandir = os.scandir

    def counting(folder: Any) -> Any:
        seen.append(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", counting)
    yield seen
    seen.clear()


def files(path: Path, count: int) -> list[bytes]:
    names = [b"%06d" % number for number in range(count)]
    for name in names:
        (path / name.decode()).touch()
    return names


def page(path: Path, kept: Orders, clock: Clock, after: tree.Path, size: int = PAGE) -> list[tree.Path]:
    walk = tree.Walk(10**6, FAR, clock, kept)
    with tree.root(str(path)) as folder:
        found = walk.files(folder, after)
        return [entry.path for entry, _ in zip(found, range(size), strict=False)]


def walked(path: Path, kept: Orders, clock: Clock) -> list[bytes]:
    """All files, a page at a time."""
    found: list[tree.Path] = []
    while part := page(path, kept, clock, found[-1] if found else ()):
        found += part
    return [b"/".join(each) for each in found]


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=3), st.booleans()), unique_by=lambda each: each[0]),
    st.binary(max_size=2),
    st.integers(1, 5),
)
def test_a_run_has_the_first_names_in_order(names: list[tuple[bytes, bool]], start: bytes, most: int) -> None:
    """Of those from its start on, whatever order they came in; and it knows whether there are more."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(orders, "MAX_NAMES", most)
        gathering = Gathering(start)
        for name, is_folder in names:
            if gathering.wants(name):
                gathering.add(name, is_folder=is_folder)
            assert len(gathering._names) < 2 * most
        run = gathering.run()
    wanted = sorted(each for each in names if each[0] >= start)
    assert list(run.since(start)) == wanted[:most]
    assert run.more is (len(wanted) > most)
    for name, _ in names:
        following = sorted(each for each in names if each[0] >= name)[:1]
        if run.covers(name):
            assert list(run.since(name))[:1] == following
    assert run.covers(start)
    assert run.folders <= set(run.names)


def test_a_walk_looks_at_a_large_folder_once(tmp_path: Path, scans: list[int]) -> None:
    """And not at each of its pages."""
    names = files(tmp_path, 2600)
    clock = Clock()
    assert walked(tmp_path, Orders(clock), clock) == names
    assert len(scans) == 1


def test_the_pages_of_a_directory_share_one_look(
    tmp_path: Path, scans: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same through the repository we ship."""
    monkeypatch.setattr(orders, "SHARE", 1e9)
    names = files(tmp_path, 2600)
    directory = Directory(str(tmp_path), 1000, 60.0)
    uris: list[str] = []
    cursor = None
    while True:
        found = directory.list(cursor)
        uris += [item.uri for item in found.items if isinstance(item, Resource)]
        cursor = found.next_cursor
        if cursor is None:
            break
    assert uris == [f"file:///{name.decode()}" for name in names]
    assert len(scans) == 1


def test_a_folder_larger_than_a_run_takes_a_look_for_each(
    tmp_path: Path, scans: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept is bounded, and the walk is whole all the same."""
    monkeypatch.setattr(orders, "MAX_NAMES", 1000)
    names = files(tmp_path, 2600)
    clock = Clock()
    assert walked(tmp_path, Orders(clock), clock) == names
    assert len(scans) == 3


@pytest.mark.parametrize("most", [1000, 50_000])
def test_a_walk_that_begins_looks_anew(
    most: int, tmp_path: Path, scans: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it meets all that is there then, whichever run it is in; walks under way share what it found."""
    monkeypatch.setattr(orders, "MAX_NAMES", most)
    inner = tmp_path / "inner"
    inner.mkdir()
    names = files(inner, 2600)
    clock = Clock()
    kept = Orders(clock)
    assert walked(tmp_path, kept, clock) == [b"inner/" + name for name in names]
    for name in (b"000000x", b"001400x", b"002599x"):
        (inner / name.decode()).touch()
        names.append(name)
    assert walked(tmp_path, kept, clock) == [b"inner/" + name for name in sorted(names)]
    scans.clear()
    assert page(tmp_path, kept, clock, (b"inner", b"001400"))[0] == (b"inner", b"001400x")
    assert len(scans) == 1, "the small folder above alone"


@pytest.mark.parametrize(("cost", "life"), [(0.5, 5.0), (100.0, orders.LONGEST)])
def test_what_is_kept_grows_old(cost: float, life: float, tmp_path: Path) -> None:
    """Ten times as long as it took to find, and a minute at most."""
    clock = Clock()
    kept = Orders(clock)
    gathering = Gathering(b"")
    for number in range(tree.LARGE):
        gathering.add(b"%04d" % number, is_folder=False)
    with tree.root(str(tmp_path)) as folder:
        kept.keep(folder, gathering.run(), cost)
        clock.now += life
        assert kept.find(folder, b"0500") is not None
        clock.now += 0.001
        assert kept.find(folder, b"0500") is None


def test_few_runs_are_kept(tmp_path: Path) -> None:
    """The one used longest ago goes; and one is only for its own folder."""
    kept = Orders(Clock())
    gathering = Gathering(b"")
    for number in range(tree.LARGE):
        gathering.add(b"%04d" % number, is_folder=False)
    run = gathering.run()
    for name in "abcdef":
        (tmp_path / name).mkdir()

    def is_kept(name: str) -> bool:
        with tree.root(str(tmp_path / name)) as folder:
            return kept.find(folder, b"") is not None

    for name in "abcde":
        with tree.root(str(tmp_path / name)) as folder:
            kept.keep(folder, run, 1.0)
        assert is_kept("a")
    assert [is_kept(name) for name in "abcdef"] == [True, False, True, True, True, False]


def test_files_that_come_and_go_spoil_no_walk(tmp_path: Path) -> None:
    """What is there all the time is met once, in its place, what is gone is not; the next walk meets all."""
    chosen = random.Random(1)
    names = files(tmp_path, 2600)
    lasting = set(chosen.sample(names, 1500))
    there = set(names)
    clock = Clock()
    kept = Orders(clock)
    found: list[bytes] = []
    while True:
        part = page(tmp_path, kept, clock, (found[-1],) if found else ())
        assert {name for (name,) in part} <= there
        if not part:
            break
        found += [name for (name,) in part]
        for _ in range(200):
            name = b"%06d" % chosen.randrange(5200)
            if name in there - lasting:
                (tmp_path / name.decode()).unlink()
                there.remove(name)
            elif name not in there:
                (tmp_path / name.decode()).touch()
                there.add(name)
    assert found == sorted(set(found))
    assert lasting <= set(found)
    assert walked(tmp_path, kept, clock) == sorted(there)
