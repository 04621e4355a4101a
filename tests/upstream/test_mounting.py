import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from types import ModuleType
from typing import Any

import pytest

from mcp_federator.errors import ConfigError
from mcp_federator.repository import Repository
from mcp_federator.upstream.mounting import examine, mount

PATH = "upstreams.alpha.repository"


class Plain:
    """As little as a repository can be."""

    prefix = "x:"

    def list(self, cursor: str | None) -> Any:
        return [cursor]

    def read(self, uri: str) -> Any:
        return uri


class Derived(Repository):
    prefix = "x:"

    def list(self, cursor: str | None) -> Any:
        return [cursor]


class Optioned(Plain):
    def __init__(self, table: str, limit: int = 1) -> None:
        if limit < 0:
            raise ValueError("s3cret")
        self.table = table


class Exiting(Plain):
    def __init__(self) -> None:
        sys.exit(3)


class Hostile:
    """Ends the process wherever it is looked at."""

    def __getattribute__(self, name: str) -> Any:
        raise SystemExit


class HostileType(type):
    """Likewise, and so is each class of this kind."""

    def __getattribute__(cls, name: str) -> Any:
        raise SystemExit


class Outer:
    Inner = Plain


@pytest.fixture(autouse=True)
def module() -> Iterator[None]:
    made = ModuleType("ourcompany")
    for name in ("Plain", "Derived", "Optioned", "Exiting", "Outer"):
        setattr(made, name, globals()[name])
    made.__dict__["number"] = 5
    sys.modules["ourcompany"] = made
    yield
    del sys.modules["ourcompany"]


def test_a_class_needs_no_base() -> None:
    """Prefix, `list` and `read` are all."""
    mounted = mount(PATH, "ourcompany:Plain", {})
    assert (mounted.prefix, mounted.label) == ("x:", "ourcompany:Plain")
    assert (mounted.template, mounted.reversal, mounted.parse_uri, mounted.close) == (None,) * 4
    assert mount(PATH, "ourcompany:Outer.Inner", {}).prefix == "x:"


def test_options_are_keyword_arguments() -> None:
    """The configuration's `options` reach the constructor."""
    mounted = mount(PATH, "ourcompany:Optioned", {"table": "staff"})
    assert mounted.read.__self__.table == "staff"  # type: ignore[attr-defined] # a bound method


@pytest.mark.parametrize(
    ("where", "options", "problem"),
    [
        ("nothing_of_that_name:X", {}, "cannot be imported: ModuleNotFoundError"),
        ("ourcompany:Nothing", {}, "cannot be imported: AttributeError"),
        ("ourcompany:number", {}, "is no class"),
        ("ourcompany:Derived", {}, "has no `read`"),
        ("ourcompany:Optioned", {}, "missing a required argument: 'table'"),
        ("ourcompany:Optioned", {"table": "x", "more": 1}, "unexpected keyword argument 'more'"),
        (
            "ourcompany:Optioned",
            {"table": "x", "limit": -1},
            "could not be made with its options: ValueError",
        ),
        ("ourcompany:Exiting", {}, "could not be made with its options: SystemExit"),
    ],
)
def test_what_cannot_be_made_is_a_configuration_error(
    where: str, options: Mapping[str, Any], problem: str
) -> None:
    """It names the key and the class, and never what an exception says."""
    with pytest.raises(ConfigError) as error:
        mount(PATH, where, options)
    assert error.value.path == PATH
    assert where in error.value.problem
    assert problem in error.value.problem
    assert "s3cret" not in str(error.value)


def changed(**members: Any) -> Any:
    """A repository with other members; one that is `...` is missing."""
    given = {name: value for name, value in vars(Plain).items() if not name.startswith("__")}
    given |= members
    return type("Repo", (), {name: value for name, value in given.items() if value is not ...})()


def yielding(_: Any, cursor: str | None) -> Iterator[str | None]:
    yield cursor


async def yielding_async(_: Any, cursor: str | None) -> AsyncIterator[str | None]:
    yield cursor


class Angry:
    prefix = "x:"

    @property
    def list(self) -> Any:
        raise RuntimeError

    def read(self, uri: str) -> Any:
        return uri


@pytest.mark.parametrize(
    ("repository", "problem"),
    [
        (changed(prefix=...), ".prefix: expected text that begins with a scheme"),
        (changed(prefix=5), ".prefix: expected text"),
        (changed(prefix=""), ".prefix: expected text"),
        (changed(prefix="people"), ".prefix: expected text"),
        (changed(prefix="people:{x}"), ".prefix: expected text"),
        (changed(list=...), " has no `list`"),
        (changed(read=...), " has no `read`"),
        (changed(read=5), ".read is no method"),
        (changed(list=lambda _: []), ".list: expected it to take one argument, the cursor"),
        (
            changed(read=lambda self, uri, more: (self, uri, more)),
            ".read: expected it to take one argument, what to read",
        ),
        (changed(list=yielding), ".list yields"),
        (changed(list=yielding_async), ".list yields"),
        (changed(template=5), ".template: expected text or a mapping"),
        (changed(template="x:{"), ".template: expected a URI template"),
        (changed(template="y:{a}"), ".template: expected it to begin with the prefix, x:"),
        (changed(template="{a}"), ".template: expected it to begin with the prefix, x:"),
        (changed(template="x:{a:3}"), ".template: the prefix length of {a:3} cannot be reversed"),
        (changed(template={"name": "n"}), ".template: no template as the protocol has it"),
        (changed(template={"uriTemplate": "x:{a}", "title": 5}), ".template: no template"),
        (changed(parse_uri=5), ".parse_uri is no method"),
        (changed(parse_uri=lambda _: 1), ".parse_uri: expected it to take one argument, the URI"),
        (changed(cache_control=5), ".cache_control: expected"),
        (changed(cache_control=("PUBLIC", 1)), ".cache_control: expected"),
        (changed(cache_control=("public", -1)), ".cache_control: expected"),
        (changed(cache_control=("public", True)), ".cache_control: expected"),
        (changed(cache_control=lambda _: 1), ".cache_control: expected it to take one argument"),
        (changed(close=lambda self, more: (self, more)), ".close: expected it to take no argument"),
        (Angry(), ".list cannot be read: RuntimeError"),
    ],
)
def test_each_rule_is_looked_at_before_the_first_call(repository: Any, problem: str) -> None:
    """A message names the class and what was expected."""
    with pytest.raises(ConfigError) as error:
        examine(repository, "ourcompany:Repo", PATH)
    assert error.value.path == PATH
    assert error.value.problem.startswith("ourcompany:Repo")
    assert problem in error.value.problem


def test_what_cannot_be_reversed_can_be_parsed() -> None:
    """With `parse_uri` any template will do."""
    assert examine(changed(template="x:{a:3}", parse_uri=lambda _, uri: uri), "R", PATH).reversal is None


@pytest.mark.parametrize(
    "members",
    [
        {"__getattribute__": Hostile.__getattribute__},
        {"prefix": Hostile()},
        {"read": Hostile()},
        {"template": Hostile()},
        {"cache_control": Hostile()},
        {"cache_control": (Hostile(), Hostile())},
    ],
    ids=["all", "prefix", "read", "template", "control", "pair"],
)
@pytest.mark.parametrize("kind", [type, HostileType], ids=["class", "metaclass"])
def test_whatever_a_class_is_made_of_is_a_configuration_error(
    kind: type, members: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that names it: a reload that meets it must leave the process alone."""
    odd = kind("Odd", (Plain,), members)
    monkeypatch.setitem(vars(sys.modules["ourcompany"]), "Odd", odd)
    with pytest.raises(ConfigError, match="ourcompany:Odd"):
        mount(PATH, "ourcompany:Odd", {})
