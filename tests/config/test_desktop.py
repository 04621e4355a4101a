"""`mcpServers` blocks as desktop clients write them: taken as they are, or refused with a way out."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mcp_federator.config import Config, Server, Upstream, schema
from tests.config.reading import SECRET, read, wrong


def block(**servers: object) -> str:
    return json.dumps({"mcpServers": servers})


def the_notes(**server: object) -> tuple[str, ...]:
    return read(block(a=server)).notes


@pytest.mark.parametrize(
    ("server", "upstream"),
    [
        ({"command": "npx", "args": ["-y", "pkg"]}, Upstream(command="npx", args=("-y", "pkg"))),
        ({"command": "npx", "env": {"K": "v"}}, Upstream(command="npx", env={"K": "v"})),
        ({"type": "stdio", "command": "npx", "args": None, "env": None}, Upstream(command="npx")),
        ({"url": "https://x/mcp"}, Upstream(url="https://x/mcp")),
        (
            {"type": "http", "url": "https://x", "headers": {"Authorization": "Bearer t"}},
            Upstream(url="https://x", headers={"Authorization": "Bearer t"}),
        ),
        ({"type": "streamable-http", "url": "https://x"}, Upstream(url="https://x")),
        ({"type": "streamableHttp", "url": "https://x"}, Upstream(url="https://x")),
        ({"transport": "streamable_http", "url": "https://x"}, Upstream(url="https://x")),
        ({"transport": "http", "url": "https://x"}, Upstream(url="https://x")),
        ({"serverUrl": "https://x"}, Upstream(url="https://x")),
        ({"httpUrl": "https://x"}, Upstream(url="https://x")),
        ({"url": "https://x", "disabled": False, "enabled": True}, Upstream(url="https://x")),
    ],
)
def test_a_server_as_clients_write_it_is_an_upstream(server: dict[str, Any], upstream: Upstream) -> None:
    """Nothing has to be changed, and nothing is said about it."""
    assert read(block(a=server)) == Config(upstreams={"a": upstream})


def test_it_may_be_yaml_and_stand_beside_our_own_sections() -> None:
    """The same file serves, with a port."""
    config = read("server: {port: 9000}\nmcpServers:\n  docs:\n    url: https://x\n")
    assert (config.server, config.upstreams) == (Server(port=9000), {"docs": Upstream(url="https://x")})


@pytest.mark.parametrize("value", ["{}", "null"])
def test_an_empty_block_is_no_upstreams(value: str) -> None:
    """As with ours."""
    assert read(f"mcpServers: {value}") == Config()


def test_members_that_mean_nothing_here_are_left_out_and_named() -> None:
    """A client's `timeout` is in milliseconds; it is not taken for ours."""
    text = json.dumps(
        {
            "mcpServers": {
                "a": {
                    "command": "npx",
                    "autoApprove": ["x"],
                    "alwaysAllow": [],
                    "timeout": 60000,
                    "description": SECRET,
                    "env": {"A": "1"},
                }
            },
            "globalShortcut": "",
        }
    )
    config = read(text)
    assert config.upstreams == {"a": Upstream(command="npx", env={"A": "1"})}
    assert config.notes == (
        "left out, as it means nothing here: globalShortcut",
        (
            "left out, as it means nothing here: mcpServers.a.autoApprove, mcpServers.a.alwaysAllow,"
            " mcpServers.a.timeout, mcpServers.a.description"
        ),
    )


def test_what_belongs_to_the_other_kind_is_left_out_and_named() -> None:
    """Clients leave it standing when a server moves."""
    assert the_notes(url="https://x", args=["-y"]) == (
        "left out, as it means nothing here: mcpServers.a.args",
    )


@pytest.mark.parametrize("switch", [{"disabled": True}, {"enabled": False}])
def test_a_server_that_is_switched_off_is_left_out(switch: dict[str, Any]) -> None:
    """Whatever its name, its transport or its variables."""
    config = read(
        block(
            a={"command": "run"},
            My_Files={"type": "sse", "url": "${UNSET}", **switch},
        )
    )
    assert list(config.upstreams) == ["a"]
    assert config.notes == ("left out, as it is switched off: mcpServers.My_Files",)


@pytest.mark.parametrize(
    ("name", "offered"),
    [
        ("my_files", "my-files"),
        ("GitHub", "github"),
        ("My Server (local)", "my-server-local"),
        ("1password", "mcp-1password"),
        ("@scope/pkg.name", "scope-pkg-name"),
        ("Ünïcode", "n-code"),
        ("-a-", "a"),
        ("数", "mcp"),
        ("", "mcp"),
        ("a" * 40, "a" * 31),
        ("a" * 30 + "_b", "a" * 30),
    ],
)
def test_H02_a_name_that_must_be_changed_is_refused_and_another_offered(name: str, offered: str) -> None:
    """The offered name is one that works."""
    (line,) = wrong(json.dumps({"mcpServers": {name: {"command": "run"}}}))
    assert line.startswith("mcpServers.")
    assert line.endswith(f"a letter first: call it `{offered}`")
    assert list(read(block(**{offered: {"command": "run"}})).upstreams) == [offered]


def test_an_offered_name_is_not_one_that_is_taken() -> None:
    """To follow the offer must not make another mistake."""
    lines = wrong(block(**{"my-files": {"command": "a"}, "my-files-2": {"command": "b"}, "My_Files": {}}))
    assert lines[0].endswith("call it `my-files-3`")


def test_two_names_are_not_offered_the_same() -> None:
    """What becomes one name by folding becomes two."""
    lines = wrong(block(**{"My_Files": {"command": "a"}, "my files": {"command": "b"}, "my-files-2": {}}))
    assert [line.partition("call it ")[2] for line in lines[:2]] == ["`my-files`", "`my-files-3`"]


@pytest.mark.parametrize(
    ("server", "line"),
    [
        ({"type": "sse", "url": "https://x/sse"}, "a.type: the HTTP+SSE transport of 2024-11-05 is not supp"),
        (
            {"transport": "sse", "url": "https://x"},
            "a.transport: the HTTP+SSE transport of 2024-11-05 is not",
        ),
        (
            {"type": "ws", "url": "wss://x"},
            "a.type: expected one of stdio, http, streamable-http, streamableH",
        ),
        ({"type": 5, "url": "https://x"}, "a.type: expected one of stdio, http, "),
        ({}, "a: expected `command` or `url`, exactly one"),
        ({"command": "run", "disabled": "true"}, "a.disabled: expected true or false"),
        ({"command": "run", "enabled": 0}, "a.enabled: expected true or false"),
        ({"command": "run", "url": "https://x"}, "a: expected `command` or `url`, exactly one"),
        (
            {"type": "http", "command": "run"},
            "a: expected `command` or `url`, exactly `url` and not the other",
        ),
        ({"type": "stdio", "url": "https://x"}, "a: expected `command` or `url`, exactly `command` and not"),
        (["run"], "a: expected a mapping"),
        ({"command": "run", "args": "x"}, "a.args: expected a list, each item text without NUL, found text"),
        ({"command": "run", "env": {"P": 1}}, "a.env.P: expected text without NUL, found a number"),
        ({"command": "run", "cwd": "nowhere"}, "a.cwd: expected the path of a directory that is there"),
        ({"url": "ftp://x"}, "a.url: expected an http:// or https:// URL"),
        ({"url": "https://x", "headers": {"Host": "y"}}, "a.headers.Host: the federator writes this header"),
        ({"command": "run", "env": {"K": "${UNSET}"}}, "a.env.K: environment variable UNSET is not set"),
        ({"command": "run", "env": {"K": "${input:key}"}}, "a.env.K: expected ${VAR}, ${VAR:-default}"),
    ],
)
def test_what_cannot_be_federated_is_named_where_it_stands(server: object, line: str) -> None:
    """In the words of the file, not in ours."""
    assert wrong(block(a=server))[0].startswith(f"mcpServers.{line}")


def test_both_blocks_in_one_file_are_refused() -> None:
    """Which of them is meant is not guessed."""
    assert wrong("upstreams: {a: {url: 'https://x'}}\nmcpServers: {b: {url: 'https://y'}}") == [
        "mcpServers: expected either `mcpServers` or `upstreams`, found both"
    ]


@pytest.mark.parametrize("value", ["[]", "5", "text"])
def test_a_block_that_is_no_mapping_is_refused(value: str) -> None:
    """With the place."""
    assert wrong(f"mcpServers: {value}") == ["mcpServers: expected a mapping of names to servers"]


@pytest.mark.parametrize("written", ["${TOKEN}", "${env:TOKEN}", "${NONE:-s3}", "${env:NONE:-s3}"])
def test_variables_are_filled_in_as_clients_write_them(written: str) -> None:
    """With and without `env:`, which some clients want."""
    config = read(block(a={"command": "run", "env": {"K": f"x-{written}"}}), {"TOKEN": "s3"})
    assert config.upstreams["a"].env == {"K": "x-s3"}


def test_the_file_is_watched_like_any_other(tmp_path: Path) -> None:
    """With the files it names."""
    (tmp_path / "token").write_text("t\n")
    config = read(block(a={"url": "https://x", "headers": {"X": "${file:token}"}}), directory=tmp_path)
    assert config.upstreams["a"].headers == {"X": "t"}
    assert config.files == (tmp_path / "token",)


@pytest.mark.parametrize(
    ("tree", "valid"),
    [
        ({"mcpServers": {"a": {"command": "run", "alwaysAllow": []}}, "server": {"port": 0}}, True),
        ({"mcpServers": None}, True),
        ({"mcpServers": {"a": {"type": "sse", "url": "https://x"}}}, False),
        ({"mcpServers": [], "lists": {}}, False),
        ({"mcpServers": {}, "upstreams": {}}, False),
    ],
)
def test_editors_know_the_block(tree: object, valid: bool) -> None:
    """It is in the schema, as far as it means something here."""
    assert jsonschema.Draft202012Validator(schema()).is_valid(tree) is valid
