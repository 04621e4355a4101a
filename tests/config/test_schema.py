"""The JSON Schema and docs/configuration.md say what the loader does."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from msgspec import inspect

from mcp_federator.config import Config, Duration, Size, parse, schema
from mcp_federator.config.schema import expected, fields, unwrap, written
from mcp_federator.errors import ConfigError

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


def is_valid(tree: object) -> bool:
    return bool(jsonschema.Draft202012Validator(schema()).is_valid(tree))


def upstream(**keys: object) -> dict[str, object]:
    return {"upstreams": {"docs": {"url": "https://x", **keys}}}


def sections(type_: inspect.Type, path: str = "") -> Iterator[tuple[str, inspect.StructType]]:
    """Every section below `type_` with its path, `NAME` standing for an upstream's."""
    bare, _, _ = unwrap(type_)
    if isinstance(bare, inspect.StructType):
        yield path, bare
        for name, field in fields(bare).items():
            yield from sections(field.type, f"{path}.{name}" if path else name)
    elif isinstance(bare, inspect.DictType):
        yield from sections(bare.value_type, f"{path}.NAME")
    elif isinstance(bare, inspect.UnionType):
        yield from sections(bare.types[0], path)


def test_the_schema_is_one() -> None:
    """Of the draft it names, and JSON."""
    jsonschema.Draft202012Validator.check_schema(schema())
    assert json.loads(json.dumps(schema())) == schema()


def test_every_key_of_the_schema_is_described() -> None:
    """Editors show it."""

    def undescribed(form: dict[str, Any], path: str) -> Iterator[str]:
        for name, below in form.get("properties", {}).items():
            if not below.get("description"):
                yield f"{path}.{name}"
            yield from undescribed(below, f"{path}.{name}")
        if isinstance(form.get("additionalProperties"), dict):
            yield from undescribed(form["additionalProperties"], f"{path}.NAME")

    assert list(undescribed(schema(), "")) == []


@pytest.mark.parametrize(
    "tree",
    [
        None,
        {},
        {"server": None, "lists": None, "cache": None, "upstreams": None},
        {"server": {"port": 0, "secret": "0123456789abcdef", "log": {"format": "json"}}},
        {"server": {"secret": ["0123456789abcdef", "${S:-0123456789abcdef}"], "port": "${P:-80}"}},
        {"server": {"allowed_origins": ["https://x:8443"], "allowed_hosts": ["federator"], "grace": 0}},
        {
            "cache": {
                "memory": "64MiB",
                "max_ttl": 1.5,
                "stale_if_error": "0s",
                "client_refresh": "${R:-never}",
            }
        },
        {"cache": {"memory": 0}},
        {"cache": {"redis": {"url": "unix:///run/redis"}}, "server": {"secret": "0123456789abcdef"}},
        upstream(),
        upstream(headers={"X-A": "Bearer ${T:-x}"}, forward=["x-b"], credential_headers=["x-b"]),
        upstream(prefix=None, native_prefix="", required="${R:-true}", tls=None, proxy="env"),
        upstream(client_capabilities={"a": [1, {"b": None}]}, cache={"default_scope": "public"}),
        upstream(url=None, command="npx", args=["-y", "${P:-x}"], env={"A": "${V:-y}"}, probe_timeout="1s"),
        upstream(url=None, repository="company.people:People", options={"table": "staff"}, directory=None),
        upstream(url=None, directory=str(Path(__file__).parent)),
    ],
)
def test_what_the_loader_takes_the_schema_takes(tree: object) -> None:
    """The schema never warns of a file that works."""
    assert is_valid(tree)
    config = parse(json.dumps(tree), source="x", directory=Path(), environ={})
    assert isinstance(config, Config)


@pytest.mark.parametrize(
    "tree",
    [
        [],
        "text",
        {"server": {"prot": 1}},
        {"server": {"port": "8080"}},
        {"server": {"port": 65536}},
        {"server": {"port": 1.5}},
        {"server": {"host": ""}},
        {"server": {"secret": "short"}},
        {"server": {"secret": ["short"]}},
        {"server": {"log": {"level": "trace"}}},
        {"server": {"allowed_origins": "https://x"}},
        {"server": {"request_timeout": 0}},
        {"server": {"request_timeout": "10"}},
        {"lists": {"window": 65}},
        {"cache": {"memory": "64MB"}},
        {"cache": {"memory": 1.5}},
        {"cache": {"max_ttl": "-1s"}},
        {"cache": {"redis": {}}},
        {"cache": {"redis": {"url": "http://x"}}},
        {"cache": {"redis": {"url": "redis://x", "key_prefix": "{x}"}}},
        {"files": []},
        {"upstreams": {"My": {"url": "https://x"}}},
        {"upstreams": {"docs": {}}},
        upstream(url="ftp://x"),
        upstream(url="https://u:p@x"),
        upstream(command="npx"),
        upstream(url=None),
        upstream(url=None, command="npx", repository="m:C"),
        upstream(url=None, command="npx", args="-y"),
        upstream(url=None, repository="C"),
        upstream(prefix=5),
        upstream(required="yes"),
        upstream(headers={"A B": "x"}),
        upstream(headers={"A": "x\ny"}),
        upstream(forward="x-a"),
        upstream(proxy="socks5://x"),
        upstream(timeout=None),
        upstream(breaker={"failures": 0}),
        upstream(tls={"verify": "no"}),
        upstream(client_capabilities=[]),
    ],
)
def test_what_the_schema_refuses_the_loader_refuses(tree: object) -> None:
    """An editor's warning is never a false one."""
    assert not is_valid(tree)
    with pytest.raises(ConfigError):
        parse(json.dumps(tree), source="x", directory=Path(), environ={})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Duration(30), "30s"),
        (Duration(0.25), "250ms"),
        (Duration(86400), "24h"),
        (Duration(90), "90s"),
        (Duration(0), "0ms"),
        (Size(64 << 20), "64MiB"),
        (Size(1000), "1000B"),
        (Size(0), "0B"),
    ],
)
def test_a_quantity_is_written_so_that_it_is_read_back(value: Duration | Size, text: str) -> None:
    """In the largest unit that fits."""
    assert written(value) == text
    key = "max_ttl" if isinstance(value, Duration) else "memory"
    config = parse(f"cache: {{{key}: {text}}}", source="x", directory=Path(), environ={})
    assert getattr(config.cache, key) == value


def test_the_defaults_of_the_schema_are_the_defaults() -> None:
    """A file that says all of them says nothing."""

    def defaults(form: dict[str, Any]) -> dict[str, Any]:
        nested = {
            name: defaults(below) for name, below in form["properties"].items() if "properties" in below
        }
        return nested | {
            name: below["default"] for name, below in form["properties"].items() if "default" in below
        }

    form = schema()
    one = defaults(form["properties"]["upstreams"]["additionalProperties"])
    tree = {**defaults(form), "upstreams": {"docs": {**one, "url": "https://x"}}}
    said = parse(json.dumps(tree), source="x", directory=Path(), environ={})
    assert said == parse(json.dumps(upstream()), source="x", directory=Path(), environ={})


def test_docs_configuration_has_every_key_and_no_other() -> None:
    """Section by section: name, what is expected, default, meaning."""
    expected_rows = {}
    for path, section in sections(inspect.type_info(Config)):
        rows = []
        for name, field in fields(section).items():
            bare, _, meaning = unwrap(field.type)
            is_section = isinstance(bare, inspect.StructType) or name == "upstreams"
            if not is_section:
                rows.append(f"| `{name}` | {expected(field.type)} | {shown_default(field)} | {meaning} |")
        if rows:
            expected_rows[path] = rows
    assert documented_rows() == expected_rows


def shown_default(field: inspect.Field) -> str:
    if field.required:
        return "required"
    default = written({} if field.default is msgspec.NODEFAULT else field.default)
    return f"`{default}`" if isinstance(default, str) and default else f"`{json.dumps(default)}`"


def documented_rows() -> dict[str, list[str]]:
    _, *parts = re.split(r"^## ((?:server|lists|cache|upstreams)\S*)$", DOCS.read_text(), flags=re.MULTILINE)
    return {
        path: re.findall(r"^\| `.*$", text, re.MULTILINE)
        for path, text in zip(parts[::2], parts[1::2], strict=True)
    }


def test_the_examples_in_the_docs_are_valid(tmp_path: Path) -> None:
    """For the schema and for the loader."""
    (tmp_path / "docs-token").write_text("token\n")
    (tmp_path / "handbook").mkdir()
    examples = re.findall(r"^```yaml\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        assert is_valid(yaml.safe_load(example))
        assert parse(
            example, source="x", directory=tmp_path, environ={"MCP_FEDERATOR_SECRET": "0123456789abcdef"}
        ).upstreams
