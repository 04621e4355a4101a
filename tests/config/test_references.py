"""`${VAR}`, `${VAR:-default}` and `${file:PATH}`: one text each, never structure, never shown."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_federator.config import Config, Server
from tests.config.reading import SECRET, read, wrong


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "one"),
        ("x${A}y${B}z", "xoneytwoz"),
        ("${EMPTY}", ""),
        ("${UNSET:-three}", "three"),
        ("${UNSET:-}", ""),
        ("${EMPTY:-three}", "three"),
        ("${A:-three}", "one"),
        ("${UNSET:-a:-b}", "a:-b"),
        ("$${A}", "${A}"),
        ("$${", "${"),
        ("$$${A}", "$${A}"),
        ("$A $ $$ {A}", "$A $ $$ {A}"),
        ("${NESTED}", "${A}"),
        ("${file}", "a variable"),
    ],
)
def test_references_are_filled_in(text: str, value: str) -> None:
    """What was filled in is not searched again."""
    environ = {"A": "one", "B": "two", "EMPTY": "", "NESTED": "${A}", "file": "a variable"}
    assert read(f"server: {{instructions: '{text}'}}", environ).server.instructions == value


@pytest.mark.parametrize("text", ["${}", "${A", "${A-x}", "${1A}", "${A B}", "${A:x}", "${file:}", "x ${"])
def test_a_broken_reference_is_refused(text: str) -> None:
    """It is not left standing as if it were a value."""
    (line,) = wrong(f"server: {{instructions: '{text}'}}", {"A": SECRET})
    assert line.startswith("server.instructions: expected ${VAR}, ${VAR:-default} or ${file:PATH}")


def test_an_unset_variable_is_named() -> None:
    """With the way to give it a default."""
    assert wrong("server: {instructions: '${UNSET}'}") == [
        "server.instructions: environment variable UNSET is not set; ${UNSET:-default} gives it a default"
    ]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("server: {secret: '${UNSET}'}", "server.secret"),
        ("server: {secret: ['${UNSET}']}", "server.secret[0]"),
        ("upstreams: {a: {url: 'http://h/', headers: {X-Key: '${UNSET}'}}}", "upstreams.a.headers.X-Key"),
        ("upstreams: {a: {command: run, env: {KEY: '${UNSET}'}}}", "upstreams.a.env.KEY"),
        ("upstreams: {a: {command: run, args: ['${UNSET}']}}", "upstreams.a.args[0]"),
        ("upstreams: {a: {repository: 'm:C', options: {key: '${UNSET}'}}}", "upstreams.a.options.key"),
    ],
)
def test_no_default_is_advised_for_a_credential(text: str, path: str) -> None:
    """It would be a secret that stands in the file."""
    assert wrong(text)[0] == (
        f"{path}: environment variable UNSET is not set;"
        " set it, or put the value in a file and write ${file:PATH}"
    )


@given(value=st.text(st.characters(codec="utf-8")))
def test_a_variable_is_one_text_whatever_it_holds(value: str) -> None:
    """It cannot add a key, a list or a line."""
    config = read("server: {instructions: '${V}', host: h}", {"V": value})
    assert config == Config(server=Server(instructions=value, host="h"))
    assert type(config.server.instructions) is str


def test_a_variable_of_undecodable_bytes_is_refused() -> None:
    """The environment can hold what is no text."""
    assert wrong("server: {instructions: '${V}'}", {"V": "a\udcff"}) == [
        "server.instructions: expected Unicode text"
    ]


def test_a_filled_in_text_can_stand_for_a_scalar() -> None:
    """The environment has no other way to say a number, a truth value, a duration, a size or a word."""
    environ = {"N": "9000", "T": "true", "D": "250ms", "S": "30", "M": "1KiB", "W": "json"}
    config = read(
        """
        server: {port: "${N}", max_in_flight: "${K:-7}", grace: "${S}", log: {format: "${W}"}}
        cache: {memory: "${M}"}
        upstreams: {docs: {url: "http://x:${N}", required: "${T}", timeout: "${D}", prefix: "${N}"}}
        """,
        environ,
    )
    docs = config.upstreams["docs"]
    assert (config.server.port, config.server.max_in_flight, config.server.grace) == (9000, 7, 30.0)
    assert (config.server.log.format, config.cache.memory) == ("json", 1024)
    assert (docs.url, docs.required, docs.timeout, docs.prefix) == ("http://x:9000", True, 0.25, "9000")


@pytest.mark.parametrize("value", [SECRET, "", "80 80", "9" * 5000, "1e999", "[80]", "on"])
def test_a_filled_in_text_that_is_no_number_is_refused_unseen(value: str) -> None:
    """The message shows nothing of it."""
    (line,) = wrong("server: {port: '${V}'}", {"V": value})
    assert line.startswith("server.port: expected a whole number from 0 to 65535")


@pytest.mark.parametrize(
    "text",
    [
        "server: {port: '${V}'}",
        "server: {host: '${V} '}",
        "server: {log: {format: '${V}'}}",
        "server: '${V}'",
        "upstreams: '${V}'",
        "upstreams: {docs: '${V}'}",
        "upstreams: {docs: {url: '${V}'}}",
        "upstreams: {docs: {url: 'https://x', timeout: '${V}', required: '${V}', tls: {ca_file: '${V}'}}}",
        'upstreams: {docs: {url: "https://x", headers: {X: "${V}\\n"}}}',
        "server: {allowed_origins: ['${V}'], secret: '${V} ${UNSET}'}",
        "cache: {memory: '${V}', client_refresh: '${V}', max_ttl: '${V}'}",
    ],
)
def test_no_message_shows_a_value(text: str) -> None:
    """Wherever a secret was put by mistake."""
    assert wrong(text, {"V": SECRET})


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("token", "token"),
        ("token\n", "token"),
        ("token\r\n", "token"),
        (" to\nken \n\n", " to\nken "),
        ("", ""),
    ],
)
def test_a_file_reference_is_the_files_text(tmp_path: Path, content: str, value: str) -> None:
    """Less line breaks at its end; the path begins at the configuration's directory."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "token").write_bytes(content.encode())
    config = read("server: {instructions: '${file:run/token}'}", directory=tmp_path)
    assert config.server.instructions == value
    assert config.files == (tmp_path / "run" / "token",)


def test_an_absolute_file_reference_stays(tmp_path: Path) -> None:
    """As container secrets are mounted."""
    (tmp_path / "token").write_text("x")
    assert read(f"server: {{instructions: '${{file:{tmp_path}/token}}'}}").server.instructions == "x"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe", "expected text in UTF-8"),
        (b"x" * ((1 << 20) + 1), "expected at most 1 MiB"),
    ],
    ids=["missing", "binary", "huge"],
)
def test_a_file_that_cannot_be_taken_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    """By the path that stands in the file."""
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    assert wrong("server: {instructions: '${file:token}'}", directory=tmp_path) == [
        f"server.instructions: file 'token': {problem}"
    ]
