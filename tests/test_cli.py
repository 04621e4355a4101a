import asyncio
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from mcp_types import InputRequiredResult, ReadResourceRequestParams, ReadResourceResult, TextResourceContents

from mcp_federator import __version__, cli, config
from tests.instruments.processes import Child, command, python
from tests.instruments.servers import Running, Shelf, running, shelf_of
from tests.instruments.wire import Wire, contents, result


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """A real server with seven resources on pages of three."""
    with running(shelf_of(7, page_size=3)) as it:
        yield it


def run(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, to its end; `typed` is its stdin."""
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "mcp_federator", *arguments],
        input=typed,
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


def test_a_shared_cache_without_a_secret_is_refused(tmp_path: Path) -> None:
    """`serve` exits 2 and says what to do, and shows nothing of the URL, whoever named Redis."""
    file = tmp_path / "federator.yaml"
    file.write_text(
        "cache: {redis: {url: 'redis://:hunter2@127.0.0.1:9'}}\nupstreams: {a: {url: 'http://h/'}}"
    )
    for done, source in (
        (run("serve", "-c", str(file)), f"{file}: "),
        (run("serve", "--redis", "redis://:hunter2@127.0.0.1:9", "a=http://h/"), ""),
    ):
        assert done.returncode == 2
        assert done.stderr.startswith(
            f"mcp-federator: {source}server.secret: expected beside `cache.redis`, the same for all processes"
        )
        assert "`openssl rand -hex 32`" in done.stderr
        assert "MCP_FEDERATOR_SECRET" in done.stderr
        assert "hunter2" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_ends_cleanly(server: Running, number: signal.Signals) -> None:
    """A signal ends `serve` with exit 0 and without a traceback."""
    for child, _, _ in serving(f"docs={server.url}"):
        child.signal(number)
        assert child.ended() == 0
        assert "Traceback" not in child.output


def test_a_taken_port_is_told() -> None:
    """A port in use is exit 2 and one sentence."""
    for _, url, _ in serving("docs=http://127.0.0.1:9/mcp"):
        port = url.split(":")[2].split("/")[0]
        done = run("serve", "--port", port, "--admin-port", "0", "docs=http://127.0.0.1:9/mcp")
        assert done.returncode == 2
        said = f"mcp-federator: server.port: {port} of 127.0.0.1 is in use by another program\n"
        assert done.stderr == said


@pytest.mark.parametrize("through", ["a configuration", "a federator"])
@pytest.mark.parametrize(
    ("arguments", "lines"),
    [(("list",), 7), (("list", "--json"), 7), (("templates",), 0)],
    ids=["list", "json", "templates"],
)
def test_a_list_that_lacks_an_upstream_says_so(
    arguments: tuple[str, ...], lines: int, through: str, server: Running
) -> None:
    """Who is missing and why stands on stderr, and the exit code is 3."""
    upstreams = (f"docs={server.url}", "nobody=http://127.0.0.1:9/mcp")
    if through == "a configuration":
        done = run(*arguments, *upstreams)
    else:
        with contextmanager(serving)(*upstreams) as (_, url, _):
            done = run(*arguments, "--url", url)
    assert done.returncode == 3
    assert "# incomplete: nobody (unreachable)" in done.stderr.splitlines()
    assert len(done.stdout.splitlines()) == lines


def test_a_list_without_end_is_printed_in_part(server: Running, tmp_path: Path) -> None:
    """A walk that stops at a bound is told, and is exit 3 too."""
    file = tmp_path / "federator.yaml"
    file.write_text(f"{{lists: {{max_pages: 1}}, upstreams: {{docs: {{url: '{server.url}'}}}}}}")
    done = run("list", "-c", str(file))
    assert (done.returncode, len(done.stdout.splitlines())) == (3, 3)
    assert "# stopped after 3 items: the list goes on (max_pages, max_items)" in done.stderr


def test_check_says_whose_list_goes_on(server: Running, tmp_path: Path) -> None:
    """A count that stops at a bound is told with the upstream's name."""
    file = tmp_path / "federator.yaml"
    file.write_text(f"{{lists: {{max_pages: 1}}, upstreams: {{docs: {{url: '{server.url}'}}}}}}")
    done = run("check", "-c", str(file))
    assert "# docs: stopped after 3 items: the list goes on (max_pages, max_items)" in done.stderr


@pytest.mark.parametrize("servers", [{}, {"a": {"command": "run", "disabled": True}}])
def test_a_file_without_servers_is_told(servers: dict[str, object], tmp_path: Path) -> None:
    """In the words of either kind of file, and with what was left out of it."""
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    done = run("check", "-c", str(file))
    assert done.returncode == 2
    assert "expected at least one server under `upstreams` or `mcpServers`" in done.stderr
    assert ("switched off: mcpServers.a" in done.stderr) is bool(servers)


def test_header_fields_go_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--header`, as often as one likes; a secret can come out of the environment."""
    monkeypatch.setenv("TOKEN", "a-secret")

    async def check() -> None:
        async with Wire({"resources/read": result(contents("x://1"))}) as wire:
            fields = ("--header", "Authorization: Bearer ${TOKEN}", "--header", "X-Tenant:red")
            done = await command("read", "x://1", "--url", wire.url, *fields)
            assert done[:2] == (0, "text\n")
            asked = wire.calls("resources/read")[0]
            assert (asked.header("authorization"), asked.header("x-tenant")) == ("Bearer a-secret", "red")

    asyncio.run(check())


def test_a_blob_that_is_none_is_one_sentence() -> None:
    """What a server gives wrong is no traceback."""
    broken = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    broken["contents"] = [{"uri": "x://1", "blob": "a"}]

    async def check() -> None:
        async with Wire({"resources/read": result(broken)}) as wire:
            code, out, err = await command("read", "x://1", "--url", wire.url)
            assert (code, out) == (1, "")
            assert err.splitlines()[-1] == "mcp-federator: the blob is not base64; --json shows it as it is"
            assert "Traceback" not in err

    asyncio.run(check())


def test_ctrl_c_ends_a_command() -> None:
    """While it waits for a server, with exit 130 and without a traceback."""

    async def check() -> None:
        waiting = result(contents("x://1"), after=asyncio.Event())
        async with Wire({"resources/read": waiting}) as wire:
            with python("-m", "mcp_federator", "read", "x://1", "--url", wire.url) as child:
                async with asyncio.timeout(15):
                    while not wire.calls("resources/read"):  # noqa: ASYNC110 - it is another process
                        await asyncio.sleep(0.01)
                child.signal(signal.SIGINT)
                assert await asyncio.to_thread(child.ended) == 130
                assert child.output == ""

    asyncio.run(check())


TELLING = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        capabilities = {"resources": {"listChanged": True}}
        told = {"protocolVersion": "2025-11-25", "capabilities": capabilities}
        told["serverInfo"] = {"name": "telling", "version": "1"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
    elif "id" in asked:
        error = {"code": -32601, "message": "no"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
    else:
        changed = {"jsonrpc": "2.0", "method": "notifications/resources/list_changed"}
        print(json.dumps(changed), flush=True)
        print(json.dumps(changed), flush=True)
"""
"""A legacy server that tells twice of a change once the handshake is over."""


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "list_changed"),
        (["--json"], '{"change": "list_changed"}'),
        (["--lists", "x://1"], "list_changed"),
    ],
    ids=["lines", "json", "with a resource"],
)
def test_listen_prints_a_line_for_each_change(options: list[str], line: str) -> None:
    """At once, until Ctrl-C, by which it ends as a shell expects, without a traceback."""
    with python("-m", "mcp_federator", "listen", *options, "--", sys.executable, "-c", TELLING) as child:
        child.wait_for("listening")
        child.wait_for(rf"(?m)^{re.escape(line)}$")
        assert ("# not told: x://1" in child.output) is ("x://1" in options)
        child.signal(signal.SIGINT)
        assert child.ended() == 130
        assert "Traceback" not in child.output


def test_listen_says_where_nothing_is_told(server: Running) -> None:
    """It does not wait for what never comes."""
    done = run("listen", "--lists", "file:///0.txt", f"docs={server.url}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "mcp-federator: the server does not tell of these changes\n"


@pytest.mark.parametrize(
    ("words", "uris", "upstreams"),
    [
        (["docs+x://a?b=c", "docs=http://h/"], ["docs+x://a?b=c"], ["docs=http://h/"]),
        (["--url", "http://h/", "a=b", "x://1"], ["a=b", "x://1"], []),
        (["-c", "f.yaml", "users/me"], ["users/me"], []),
        (["a", "--", "server"], ["a"], []),
    ],
    ids=" ".join,
)
def test_what_listen_is_given(words: list[str], uris: list[str], upstreams: list[str]) -> None:
    """What begins like an upstream is one, unless something else says whom to ask."""
    own, command = cli._split(["listen", *words])
    options = cli._parser().parse_args(own)
    options.command = command
    assert cli._apart(options) == uris
    assert options.upstreams == upstreams


def shell(line: str, *arguments: str) -> str:
    """What a shell says on stderr that runs the line, in which `@` is the program with these arguments."""
    program = shlex.join([sys.executable, "-m", "mcp_federator", *arguments])
    return subprocess.run(  # noqa: S603 - our own program
        ["/bin/bash", "-c", line.replace("@", program)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    ).stderr


@pytest.mark.parametrize("pipe", ["|", "|&"])
def test_a_pipe_that_nobody_reads_ends_the_output(server: Running, pipe: str) -> None:
    """Whoever has read enough of a list is told nothing more."""
    told = shell(f"@ {pipe} :; echo ${{PIPESTATUS[0]}} >&2", "list", f"docs={server.url}")
    assert [line for line in told.splitlines() if not line.startswith("# page")] == ["141"]


def test_a_process_can_be_started_without_streams(tmp_path: Path) -> None:
    """Numbers that a supervisor closed are given to no socket."""
    told = tmp_path / "told"
    starting = (
        "import asyncio, sys\n"
        "from mcp_federator import app, cli\n"
        "real = app.App.run\n"
        "async def run(self, ready):\n"
        "    def told(*urls):\n"
        f"        open({str(told)!r}, 'w').write(' '.join(urls)); ready(*urls); self.stop()\n"
        "    await real(self, told)\n"
        "app.App.run = run\n"
        "sys.exit(cli.main(['serve', '--port', '0', '--admin-port', '0', 'docs=http://127.0.0.1:9/mcp']))\n"
    )
    program = shlex.join([sys.executable, "-c", starting])
    done = subprocess.run(  # noqa: S603 - our own program
        ["/bin/bash", "-c", f"{program} 0<&- 1>&- 2>&-"], capture_output=True, timeout=30, check=False
    )
    assert done.returncode == 0
    assert told.read_text().startswith("http://127.0.0.1:")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param(["serve"], "no upstreams", id="nothing"),
        pytest.param(["serve", "docs"], "expected NAME=URL", id="no URL"),
        pytest.param(["serve", "a=http://h/", "--port", "99999"], "--port: expected", id="port too large"),
        pytest.param(["serve", "a=http://h/", "--admin-port", "-1"], "--admin-port: expected", id="no port"),
        pytest.param(
            ["serve", "a=http://h/", "--port", "8081"],
            "server.admin_port: expected another port than `server.port`",
            id="same port",
        ),
        pytest.param(
            ["serve", "a=http://h/", "--port", "90", "--admin-port", "90"],
            "--admin-port: expected another port than `server.port`",
            id="same port twice",
        ),
        pytest.param(["serve", "a=http://h/", "--host", "a b"], "--host: expected a host", id="bad host"),
        pytest.param(
            ["serve", "a=http://h/", "--host", "nowhere.invalid"],
            "server.host: nowhere.invalid cannot be listened on",
            id="unknown host",
        ),
        pytest.param(["list", "--url", "http://h/", "--header", "x"], "--header: expected", id="no field"),
        pytest.param(
            ["list", "--url", "http://h/", "--header", "a:1", "--header", "a:2"],
            "each name once",
            id="field twice",
        ),
        pytest.param(
            ["list", "--url", "http://h/", "--header", "X-Y: ${NO_SUCH_VARIABLE}"],
            "headers.X-Y: environment variable NO_SUCH_VARIABLE is not set",
            id="field without its value",
        ),
        pytest.param(["list", "a=http://h/", "--header", "a:1"], "expected --url", id="field for nobody"),
        pytest.param(["check", "a_b=http://h/"], "upstreams.a_b", id="bad name"),
        pytest.param(["list", "a=ftp://h/"], "upstreams.a.url", id="bad URL"),
        pytest.param(["serve", "-c", "nowhere.yaml"], "nowhere.yaml: cannot be read", id="no file"),
        pytest.param(["serve", "-c", "f.yaml", "a=http://h/"], "not both", id="both"),
        pytest.param(["list", "--url", "http://h/", "a=http://h/"], "not both", id="url and upstreams"),
        pytest.param(["list", "--url", "h"], "url: expected an http", id="no url"),
        pytest.param(["list", "--"], "command: expected a program", id="no command"),
        pytest.param(["list", "--url", "http://h/", "--", "run"], "not both", id="url and command"),
        pytest.param(["read", "x:1", "a=http://h/", "--", "run"], "not both", id="upstreams and command"),
        pytest.param(["read", "x:1"], "no upstreams", id="nobody to ask"),
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
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"mcp-federator {__version__}\n"


@pytest.mark.parametrize(
    ("words", "upstreams", "port"),
    [
        (["serve", "a=http://a/", "--port", "1", "b=http://b/"], ["a=http://a/", "b=http://b/"], 1),
        (["serve", "--port", "1", "a=http://a/", "b=http://b/"], ["a=http://a/", "b=http://b/"], 1),
        (["serve", "a=http://a/", "b=http://b/", "--port", "1"], ["a=http://a/", "b=http://b/"], 1),
        (["read", "x:1", "--json", "a=http://a/"], ["a=http://a/"], None),
        (["read", "--json", "x:1", "a=http://a/", "--input"], ["a=http://a/"], None),
    ],
)
def test_options_may_stand_among_arguments(words: list[str], upstreams: list[str], port: int | None) -> None:
    """Wherever it stands, a word means the same."""
    options = cli._parser().parse_args(words)
    assert (options.upstreams, getattr(options, "port", None)) == (upstreams, port)
    assert getattr(options, "uri", "x:1") == "x:1"


NOTEBOOK = str(Path(__file__).parent.parent / "examples" / "notebook.py")


def test_a_server_over_stdio_is_given_as_its_command() -> None:
    """`list`, `templates` and `read` take it behind `--`, with arguments that are nobody else's."""
    command = ("--", sys.executable, "-u", NOTEBOOK, "--url", "x=y")
    listed = run("list", *command)
    assert (listed.returncode, len(listed.stdout.splitlines())) == (0, 7)
    assert listed.stdout.startswith("note:monday")
    assert "# page 2: 3 items, ttlMs 0, private" in listed.stderr
    assert run("templates", *command).stdout.split()[0] == "note:{day}"
    read = run("read", "note:monday", "--json", *command)
    assert json.loads(read.stdout)["contents"][0]["text"] == "Water the plants."
    none = run("read", "note:nothing", *command)
    assert (none.returncode, none.stdout) == (1, "")
    assert "-32602" in none.stderr


def test_a_program_that_is_not_there_is_one_sentence() -> None:
    """Exit 1, as with any server that does not answer."""
    done = run("list", "--", "/nowhere/server")
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1


def asks_who(params: ReadResourceRequestParams, _: object) -> ReadResourceResult | InputRequiredResult:
    """A resource that wants a name."""
    if params.input_responses:
        given = params.input_responses["who"].model_dump()
        text = f"{given['action']} {(given.get('content') or {}).get('name')}"
        content = TextResourceContents(uri=params.uri, text=text)
        return ReadResourceResult(contents=[content], ttl_ms=0, cache_scope="private")
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    params_ = {"message": "Who?", "requestedSchema": schema}
    request = {"method": "elicitation/create", "params": params_}
    return InputRequiredResult.model_validate(
        {"resultType": "input_required", "inputRequests": {"who": request}, "requestState": "s"}
    )


@pytest.fixture(scope="module")
def asking() -> Iterator[Running]:
    with running(Shelf({"x://who": asks_who})) as it:
        yield it


@pytest.mark.parametrize(
    ("typed", "text"), [("Ada\ny\n", "accept Ada"), ("Ada\nn\n", "decline None"), ("", "cancel None")]
)
def test_read_asks_on_the_terminal_what_the_server_wants_to_know(
    asking: Running, typed: str, text: str
) -> None:
    """With `--input`; questions go to stderr, so that stdout is the contents alone."""
    done = run("read", "x://who", "--input", "--url", asking.url, typed=typed)
    assert (done.returncode, done.stdout) == (0, f"{text}\n")
    assert f"# {asking.url.removesuffix('/mcp')} asks: Who?\n# name: " in done.stderr


def test_read_through_a_configuration_asks_too(asking: Running) -> None:
    """A federator made for the moment passes questions and answers on."""
    done = run("read", "--input", "docs+x://who", f"docs={asking.url}", typed="Ada\ny\n")
    assert (done.returncode, done.stdout) == (0, "accept Ada\n")


def test_read_without_input_shows_what_is_wanted(asking: Running) -> None:
    """And says how to give it."""
    done = run("read", "x://who", "--url", asking.url)
    assert json.loads(done.stdout)["inputRequests"]["who"]["params"]["message"] == "Who?"
    assert "# the server wants input first: --input asks for it" in done.stderr


def test_what_was_left_out_of_a_file_is_told(tmp_path: Path) -> None:
    """`check` and the others say it, `serve` logs it."""
    file = tmp_path / "servers.json"
    server = {"command": sys.executable, "args": [NOTEBOOK], "autoApprove": []}
    file.write_text(json.dumps({"mcpServers": {"notes": server, "Off": {"disabled": True}}}))
    done = run("check", "-c", str(file))
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].split()[:5] == ["notes", "legacy", "2025-11-25", "7", "1"]
    assert done.stderr.splitlines() == [
        "# left out, as it means nothing here: mcpServers.notes.autoApprove",
        "# left out, as it is switched off: mcpServers.Off",
    ]
    for child, _, _ in serving("-c", str(file)):
        child.wait_for("left out, as it means nothing here: mcpServers.notes.autoApprove")


@pytest.mark.parametrize("command", ["serve", "check", "schema"])
def test_a_command_is_for_those_that_ask(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Elsewhere it would have no name."""
    with pytest.raises(SystemExit) as caught:
        cli.main([command, "--", "run"])
    assert caught.value.code == 2
    assert "a command after -- is for list, templates, read and listen" in capsys.readouterr().err
