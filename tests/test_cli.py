import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mcp_federator import __version__, cli, config
from tests.instruments.processes import Child, python
from tests.instruments.servers import Running, running, shelf_of


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """A real server with seven resources on pages of three."""
    with running(shelf_of(7, page_size=3)) as it:
        yield it


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, to its end."""
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "mcp_federator", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def serving(*arguments: str) -> Iterator[tuple[Child, str, str]]:
    with python("-m", "mcp_federator", "serve", "--port", "0", "--admin-port", "0", *arguments) as child:
        found = child.wait_for(r"MCP endpoint (\S+)   admin (\S+)")
        yield child, found[1], found[2]


@pytest.fixture(scope="module")
def served(server: Running) -> Iterator[tuple[Child, str, str]]:
    """A federator over that server, started by the command line."""
    yield from serving(f"docs={server.url}")


def test_check_tells_of_each_upstream(server: Running) -> None:
    """`check` has a row for each upstream: era, version, counts, time, or what is wrong; then it exits 1."""
    done = run("check", f"docs={server.url}", "nobody=http://127.0.0.1:9/mcp")
    head, good, bad = done.stdout.splitlines()
    assert head.split() == ["upstream", "era", "version", "resources", "templates", "time"]
    assert good.split()[:5] == ["docs", "modern", "2026-07-28", "7", "0"]
    assert bad.startswith("nobody    -       -           unreachable: ")
    assert done.returncode == 1


def test_check_exits_0_when_all_is_well(server: Running) -> None:
    """`check` over reachable upstreams succeeds, so that it can stand before a roll-out."""
    assert run("check", f"docs={server.url}").returncode == 0


def test_list_follows_all_pages_of_a_configuration(server: Running) -> None:
    """`list` over `NAME=URL` prints every resource in public URIs, and hints with each page on stderr."""
    done = run("list", f"docs={server.url}")
    assert [line.split()[0] for line in done.stdout.splitlines()] == [f"docs+file:///{n}" for n in range(7)]
    assert [line.partition(",")[0] for line in done.stderr.splitlines()] == [
        "# page 1: 3 items",
        "# page 2: 3 items",
        "# page 3: 1 items",
    ]


def test_list_and_read_ask_a_running_federator(served: tuple[Child, str, str]) -> None:
    """With `--url`, what a server gives is shown as it is, its own `Cache-Status` included."""
    _, url, _ = served
    assert run("list", "--url", url).stdout.splitlines()[0].split()[0] == "docs+file:///0"
    first, second = (run("read", "docs+file:///3", "--url", url) for _ in range(2))
    assert first.stdout == second.stdout != ""
    assert "Cache-Status: mcp-federator; fwd=miss; stored" in first.stderr
    assert "Cache-Status: mcp-federator; hit; ttl=" in second.stderr


def test_list_prints_json(server: Running) -> None:
    """With `--json` each item is one JSON object on a line."""
    done = run("list", "--json", f"docs={server.url}")
    assert [json.loads(line)["uri"] for line in done.stdout.splitlines()][6] == "docs+file:///6"


def test_read_of_nothing_says_so(server: Running) -> None:
    """A resource that does not exist is exit 1 and one line."""
    done = run("read", "docs+file:///nowhere", f"docs={server.url}")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "-32602" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_ends_cleanly(server: Running, number: signal.Signals) -> None:
    """A signal ends `serve` with exit 0 and without a traceback."""
    for child, _, _ in serving(f"docs={server.url}"):
        child.signal(number)
        assert child.ended() == 0
        assert "Traceback" not in child.output


def test_a_taken_port_is_told() -> None:
    """A port in use is exit 1 and one sentence."""
    for _, url, _ in serving("docs=http://127.0.0.1:9/mcp"):
        port = url.split(":")[2].split("/")[0]
        done = run("serve", "--port", port, "--admin-port", "0", "docs=http://127.0.0.1:9/mcp")
        assert done.returncode == 1
        assert "address already in use" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["serve"], "no upstreams", id="nothing"),
        pytest.param(["serve", "docs"], "expected NAME=URL", id="no URL"),
        pytest.param(["check", "a_b=http://h/"], "upstreams.a_b", id="bad name"),
        pytest.param(["list", "a=ftp://h/"], "upstreams.a.url", id="bad URL"),
        pytest.param(["serve", "-c", "nowhere.yaml"], "nowhere.yaml: cannot be read", id="no file"),
        pytest.param(["serve", "-c", "f.yaml", "a=http://h/"], "not both", id="both"),
        pytest.param(["list", "--url", "http://h/", "a=http://h/"], "not both", id="url and upstreams"),
        pytest.param(["list", "--url", "h"], "url: expected an http", id="no url"),
    ],
)
def test_what_cannot_be_used_is_exit_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong command line or configuration is exit 2 and a sentence on stderr."""
    assert cli.main(arguments) == 2
    assert says in capsys.readouterr().err


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    """`--port` and the like replace what the file says."""
    file = tmp_path / "federator.yaml"
    file.write_text("{server: {port: 1, log: {format: text}}, upstreams: {a: {url: 'http://127.0.0.1:9/'}}}")
    for child, url, _ in serving("-c", str(file), "--log-format", "json"):
        assert not url.endswith(":1/mcp")
        child.wait_for(r'\{"time":')


def test_the_files_a_configuration_names_are_watched(tmp_path: Path) -> None:
    """Another secret in a `${file:}` is another digest, and so is a file that is gone."""
    (tmp_path / "token").write_text("one")
    file = tmp_path / "federator.yaml"
    file.write_text("upstreams: {a: {url: 'http://127.0.0.1:9/', headers: {X-Key: '${file:token}'}}}")
    given = config.load(file, {})
    digests = [cli._digest(given)]
    (tmp_path / "token").write_text("two")
    digests.append(cli._digest(given))
    (tmp_path / "token").unlink()
    digests.append(cli._digest(given))
    file.write_text(file.read_text() + "\n")
    digests.append(cli._digest(given))
    assert len(set(digests)) == 4


def test_schema_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    """`schema` prints the JSON Schema and `version` the version."""
    assert cli.main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == config.schema()
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out == f"mcp-federator {__version__}\n"


def test_what_comes_from_outside_cannot_command_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters in cells are shown escaped."""
    cli._print_table([("\x1b[2Jx", "a\nb")])
    assert capsys.readouterr().out == "\\x1b[2Jx  a\\nb\n"
