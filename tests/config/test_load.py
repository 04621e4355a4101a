"""From a file to a configuration, or to all that is wrong with it."""

from pathlib import Path

import pytest

from mcp_federator.config import (
    Config,
    Duration,
    Redis,
    Server,
    Size,
    Upstream,
    load,
    of_urls,
    with_options,
)
from mcp_federator.errors import ConfigError
from mcp_federator.model import Scope
from tests.config.reading import SECRET, read, read_upstream, wrong

ORIGIN = "an origin such as https://app.example.com"
HEADER_VALUE = "a header value without control characters, and without space at its ends"


@pytest.mark.parametrize("text", ["", "{}", "---\n", "# nothing\n", "server:\nlists:\ncache:\nupstreams:\n"])
def test_an_empty_file_is_all_defaults(text: str) -> None:
    """So is a file whose sections are empty."""
    assert read(text) == Config()


def test_a_whole_file_is_read() -> None:
    """Every kind of value ends as its type."""
    config = read(
        """
        server:
          {port: 9000, allowed_origins: ["https://app.example.com"], grace: 1.5, max_request_bytes: 2MiB}
        lists: {window: 4, soft_deadline: 250ms}
        cache: {memory: 1.5KiB, max_ttl: 1h, client_refresh: never}
        upstreams:
          docs:
            url: https://docs.example.com/mcp
            headers: {Authorization: Bearer x}
            forward: [X-Tenant, X-Api-Key]
            credential_headers: [X-Tenant]
            prefix: ""
            required: true
            client_capabilities: {elicitation: {form: {}}, n: [1, 2.5, null, text]}
            cache: {default_ttl: 30, default_scope: public}
        """
    )
    assert config.server == Server(
        port=9000,
        allowed_origins=("https://app.example.com",),
        grace=Duration(1.5),
        max_request_bytes=Size(2 << 20),
    )
    assert (config.lists.window, config.lists.soft_deadline) == (4, 0.25)
    assert (config.cache.memory, config.cache.max_ttl) == (1536, 3600.0)
    docs = config.upstreams["docs"]
    assert docs.headers == {"Authorization": "Bearer x"}
    assert docs.forward == ("x-tenant", "x-api-key")
    assert docs.credential_headers == ("x-tenant",)
    assert docs.prefix == ""
    assert docs.client_capabilities == {"elicitation": {"form": {}}, "n": [1, 2.5, None, "text"]}
    assert (docs.cache.default_ttl, docs.cache.default_scope) == (30.0, Scope.PUBLIC)
    assert type(docs.cache.default_ttl) is Duration
    assert type(config.cache.memory) is Size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("1ms", 0.001),
        ("10s", 10),
        ("1.5s", 1.5),
        ("5m", 300),
        ("24h", 86400),
        ("7", 7),
        ("0.5", 0.5),
    ],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    """With a unit, or as a plain number."""
    assert read_upstream(f"timeout: {text}").timeout == seconds


@pytest.mark.parametrize("text", ["10", "0", "64MiB", "8KiB", "1GiB", "512B", "0.5KiB"])
def test_a_size_is_bytes(text: str) -> None:
    """With a binary unit, or as a plain number."""
    sizes = {"10": 10, "0": 0, "64MiB": 64 << 20, "8KiB": 8192, "1GiB": 1 << 30, "512B": 512, "0.5KiB": 512}
    assert read(f"cache: {{memory: {text}}}").cache.memory == sizes[text]


@pytest.mark.parametrize(
    "text",
    [
        "10 s",
        "1h30m",
        "10S",
        "-1s",
        "-1",
        "1:30",
        "1d",
        "''",
        "s",
        "on",
        "true",
        "null",
        "[1]",
        "1e9h",
        "9e20",
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Also an hour and a half in two units, and more than ten years."""
    (line,) = wrong(f"cache: {{max_ttl: {text}}}")
    assert line.startswith("cache.max_ttl: expected a duration such as 250ms, 10s, 5m or 24h")


@pytest.mark.parametrize(
    "text", ["64MB", "64 MiB", "1.5", "0.5B", "-1", "true", "null", "64mib", "''", "9999999GiB", "{a: 1}"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    """Also decimal units, and half a byte."""
    (line,) = wrong(f"cache: {{memory: {text}}}")
    assert line.startswith("cache.memory: expected a size such as 512B, 64KiB or 16MiB")


@pytest.mark.parametrize("text", ["0", "0s", "0.0001s", "0ms"])
def test_a_wait_is_never_nothing(text: str) -> None:
    """A timeout of zero would fail every request."""
    (line,) = wrong(f"server: {{request_timeout: {text}}}")
    assert line.endswith("more than 0")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("server: 5", "server: expected a mapping, found a number"),
        ("upstreams: [a]", "upstreams: expected a mapping, found a list"),
        ("[1]", "expected a mapping, found a list"),
        ("just text", "expected a mapping, found text"),
        ("server: {port: '8080'}", "server.port: expected a whole number from 0 to 65535, found text"),
        ("server: {port: 80.5}", "server.port: expected a whole number from 0 to 65535"),
        ("server: {port: true}", "server.port: expected a whole number from 0 to 65535, found true or false"),
        ("server: {port: 65536}", "server.port: expected a whole number from 0 to 65535"),
        ("server: {port: null}", "server.port: expected a whole number from 0 to 65535, found null"),
        ("server: {path: mcp}", "server.path: expected a path that begins with /"),
        ("server: {path: '/{x}'}", "server.path: expected a path that begins with /"),
        ("server: {host: 'http://x'}", "server.host: expected a host name or an IP address, without a port"),
        ("server: {host: ''}", "server.host: expected a host name or an IP address, without a port"),
        ("server: {auth: jwt}", "server.auth: expected none"),
        ("server: {log: {level: trace}}", "server.log.level: expected one of debug, error, info, warning"),
        ("server: {log: {level: on}}", "server.log.level: expected one of debug, error, info, warning"),
        ("server: {instructions: 5}", "server.instructions: expected text, found a number: put it in quotes"),
        ("lists: {window: 0}", "lists.window: expected a whole number from 1 to 64"),
        ("lists: {max_pages: 0}", "lists.max_pages: expected a whole number, at least 1"),
        (
            "server: {allowed_origins: 'https://x'}",
            f"server.allowed_origins: expected a list, each item {ORIGIN}, found text",
        ),
        (
            "server: {allowed_origins: ['https://x', 'https://x/y']}",
            f"server.allowed_origins[1]: expected {ORIGIN}",
        ),
        (
            "server: {allowed_origins: ['null', '*']}",
            f"server.allowed_origins[0]: expected {ORIGIN}",
        ),
        (
            "server: {secret: short}",
            "server.secret: expected text of at least 16 characters",
        ),
        (
            "server: {secret: ['0123456789abcdef', short]}",
            "server.secret[1]: expected text of at least 16 characters",
        ),
        (
            "server: {port: 8081}",
            "server.admin_port: expected another port than `server.port`",
        ),
    ],
)
def test_a_wrong_value_is_placed_and_the_right_form_named(text: str, line: str) -> None:
    """The message says where and what was expected."""
    assert wrong(text)[0] == line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("required: yes", "required: expected true or false, found text"),
        ("required: 1", "required: expected true or false, found a number"),
        ("prefix: 5", "prefix: expected text, found a number: put it in quotes"),
        ("prefix: true", "prefix: expected text, found true or false: put it in quotes"),
        ("cache: {default_scope: PUBLIC}", "cache.default_scope: expected one of public, private"),
        ("breaker: {open_for: 3m}", "breaker.max_open_for: expected no less than `open_for`"),
        ("tls: {ca_file: nope.pem}", "tls.ca_file: expected the path of a file that is there"),
        (
            "proxy: 'http://u:p@x'",
            "proxy: expected `env`, or an http:// or https:// URL without user-info or fragment",
        ),
        (
            "proxy: socks5",
            "proxy: expected `env`, or an http:// or https:// URL without user-info or fragment",
        ),
        (
            "headers: {'Bad Name': x}",
            "headers.'Bad Name': expected the name of an HTTP header field as the key",
        ),
        ("headers: {'': x}", "headers.'': expected the name of an HTTP header field as the key"),
        (
            "headers: {X: 5}",
            f"headers.X: expected {HEADER_VALUE}, found a number: put it in quotes",
        ),
        (
            'headers: {X: "a\\r\\nY: b"}',
            f"headers.X: expected {HEADER_VALUE}",
        ),
        ("headers: {Mcp-Name: x}", "headers.Mcp-Name: the federator writes this header field itself"),
        ("headers: {HOST: x}", "headers.HOST: the federator writes this header field itself"),
        (
            "headers: {X-A: x, x-a: y}",
            "headers.X-A: expected each header field once, in whatever letter case",
        ),
        ("forward: ['x y']", "forward[0]: expected the name of an HTTP header field"),
        ("forward: [Origin]", "forward[0]: the federator writes this header field itself"),
        ("forward: [MCP-Session-Id]", "forward[0]: the federator writes this header field itself"),
        (
            "forward: [X-A, x-a]",
            "forward[1]: expected each header field once in `headers` and `forward` together",
        ),
        (
            "headers: {Authorization: x}, forward: [authorization]",
            "forward[0]: expected each header field once in `headers` and `forward` together",
        ),
        ("credential_headers: [x-a]", "credential_headers[0]: expected a header field that `forward` names"),
        (
            "timeout: null",
            "timeout: expected a duration such as 250ms, 10s, 5m or 24h, more than 0, found null",
        ),
    ],
)
def test_a_wrong_value_of_an_upstream(text: str, line: str) -> None:
    """Likewise, with the upstream's name."""
    assert wrong(f"upstreams: {{docs: {{url: 'https://x', {text}}}}}")[0] == f"upstreams.docs.{line}"


@pytest.mark.parametrize(
    "url",
    [
        "http://x",
        "https://docs.example.com/mcp",
        "HTTPS://docs.example.com:8443/mcp?key=1",
        "http://127.0.0.1:9001/mcp",
        "http://[::1]:80/mcp",
        "https://bücher.example/mcp",
        "https://x/a@b",
    ],
)
def test_a_url_of_an_upstream(url: str) -> None:
    """Either scheme, with any host, port, path and query."""
    assert of_urls([("docs", url)]).upstreams["docs"].url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "docs.example.com",
        "ftp://x",
        "ws://x",
        "file:///etc/passwd",
        "http://",
        "http:///mcp",
        "http://user@x/",
        "http://user:hunter2@x/",
        "http://x:99999/",
        "http://x:0/",
        "http://x:abc/",
        "http://x/#part",
        "http://x/a b",
        "http://x\n/",
        "http://[::::]/",
        "http://[x]/",
        "http://a..b/",
        "http://" + "a" * 64 + "/",
        "http://x\\y/",
    ],
)
def test_what_is_no_url_of_an_upstream_is_refused(url: str) -> None:
    """User-info too: it would end in logs."""
    with pytest.raises(
        ConfigError, match=r"^upstreams\.docs\.url: expected an http:// or https:// URL"
    ) as caught:
        of_urls([("docs", url)])
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["a", "docs", "a1-b", "a" * 31])
def test_a_name_of_an_upstream(name: str) -> None:
    """What can stand at the beginning of a scheme, in lower case."""
    assert list(of_urls([(name, "http://x")]).upstreams) == [name]


@pytest.mark.parametrize(
    "name", ["my_files", "Ünï", "", "Docs", "1a", "-a", "a.b", "a+b", "a" * 32, "a\n", "a b"]
)
def test_H02_a_name_no_scheme_can_carry_is_refused(name: str) -> None:
    """At start, with a sentence."""
    with pytest.raises(
        ConfigError, match="expected 1 to 31 lower-case letters, digits and hyphens"
    ) as caught:
        of_urls([(name, "http://x")])
    assert caught.value.path.startswith("upstreams.")


def test_a_name_that_is_given_twice_is_refused() -> None:
    """On the command line as in a file."""
    with pytest.raises(ConfigError, match=r"^upstreams\.docs: expected once, stands twice$"):
        of_urls([("docs", "http://x"), ("notes", "http://y"), ("docs", "http://z")])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("sever: {}", "sever: unknown key, did you mean `server`?"),
        ("upstream: {}", "upstream: unknown key, did you mean `upstreams`?"),
        ("server: {admin-port: 1}", "server.admin-port: unknown key, did you mean `admin_port`?"),
        ("server: {Port: 1}", "server.Port: unknown key, did you mean `port`?"),
        (
            "cache: {zzz: 1}",
            "cache.zzz: unknown key, expected one of memory, redis, max_ttl, stale_if_error, client_refresh",
        ),
        (
            "cache: {redis: {uri: x}}",
            "cache.redis.uri: unknown key, did you mean `url`?",
        ),
        ("files: []", "files: unknown key, "),
        ("<<: {}", "'<<': unknown key, "),
    ],
)
def test_an_unknown_key_is_refused_and_the_nearest_offered(text: str, line: str) -> None:
    """A typo never becomes a default in silence."""
    assert wrong(text)[0].startswith(line)


ONE = "expected exactly one of `url`, `command`, `repository`, `directory`"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", f"upstreams.a: {ONE}, found none"),
        ("url: null", f"upstreams.a: {ONE}, found none"),
        ("prefix: x", f"upstreams.a: {ONE}, found none"),
        ("url: 'https://x', command: run", f"upstreams.a: {ONE}, found `url` and `command`"),
        ("repository: 'm:C', directory: .", f"upstreams.a: {ONE}, found `repository` and `directory`"),
        ("command: ''", "upstreams.a.command: expected the name or the path of a program"),
        (
            "command: [npx, -y]",
            "upstreams.a.command: expected the name or the path of a program, found a list",
        ),
        (
            "command: run, args: -y",
            "upstreams.a.args: expected a list, each item text without NUL, found text",
        ),
        (
            "command: run, args: [1]",
            "upstreams.a.args[0]: expected text without NUL, found a number: put it in quotes",
        ),
        ("command: run, args: ['\0']", "no YAML: "),
        ('command: run, args: ["\\0"]', "upstreams.a.args[0]: expected text without NUL"),
        (
            "command: run, env: {A=B: x}",
            "upstreams.a.env.'A=B': expected the name of an environment variable",
        ),
        ("command: run, env: {A: true}", "upstreams.a.env.A: expected text without NUL, found true or false"),
        ("command: run, cwd: nope", "upstreams.a.cwd: expected the path of a directory that is there"),
        ("command: run, probe_timeout: 0", "upstreams.a.probe_timeout: expected a duration such as "),
        ("directory: nope", "upstreams.a.directory: expected the path of a directory that is there"),
        ("directory: there.txt", "upstreams.a.directory: expected the path of a directory that is there"),
        ("repository: company.People", "upstreams.a.repository: expected a class, written module:Class"),
        ("repository: 'm:C()'", "upstreams.a.repository: expected a class, written module:Class"),
        ("url: 'https://x', args: [x]", "upstreams.a.args: expected only beside `command`"),
        ("url: 'https://x', options: {a: 1}", "upstreams.a.options: expected only beside `repository`"),
        ("command: run, headers: {A: x}", "upstreams.a.headers: expected only beside `url`"),
        ("command: run, forward: [x-a]", "upstreams.a.forward: expected only beside `url`"),
        ("command: run, tls: {verify: false}", "upstreams.a.tls: expected only beside `url`"),
        ("directory: ., env: {A: x}", "upstreams.a.env: expected only beside `command`"),
        (
            "directory: ., breaker: {failures: 1}",
            "upstreams.a.breaker: expected only beside `url` or `command`",
        ),
        ("repository: 'm:C', proxy: env", "upstreams.a.proxy: expected only beside `url`"),
        ("repository: 'm:C', baggage: true", "upstreams.a.baggage: expected only beside `url` or `command`"),
    ],
)
def test_an_upstream_is_of_one_kind_and_has_the_keys_of_that_kind(
    text: str, line: str, tmp_path: Path
) -> None:
    """A key that would do nothing is refused, not ignored."""
    (tmp_path / "there.txt").touch()
    assert wrong(f"upstreams: {{a: {{{text}}}}}", directory=tmp_path)[0].startswith(line)


def test_paths_of_an_upstream_begin_at_the_directory_of_the_file(tmp_path: Path) -> None:
    """So does a program whose name has a slash; any other is left to `PATH`."""
    (tmp_path / "books").mkdir()
    read_one = read(
        """
        upstreams:
          a: {command: bin/run, args: [./x], env: {A: "1"}, cwd: books}
          b: {command: run}
          c: {command: /bin/run}
          d: {directory: books}
          e: {repository: "company.people:People", options: {table: staff, limit: 5}}
        """,
        directory=tmp_path,
    ).upstreams
    assert read_one["a"] == Upstream(
        command=str(tmp_path / "bin/run"), args=("./x",), env={"A": "1"}, cwd=str(tmp_path / "books")
    )
    assert (read_one["b"].command, read_one["c"].command) == ("run", "/bin/run")
    assert read_one["d"].directory == str(tmp_path / "books")
    assert read_one["e"].options == {"table": "staff", "limit": 5}


def test_every_mistake_is_told_at_once() -> None:
    """One line each, in one message."""
    lines = wrong(
        """
        server: {prot: 1, port: x, secret: "${UNSET}"}
        upstreams:
          My: {}
          docs: {url: "https://u:p@x", timeout: fast}
          docs: {}
        """
    )
    assert [line.split(":")[0] for line in lines] == [
        "upstreams.docs",
        "server.secret",
        "server.prot",
        "server.port",
        "upstreams.My",
        "upstreams.My",
        "upstreams.docs.url",
        "upstreams.docs.timeout",
    ]


def test_an_error_carries_the_path_of_the_first_mistake() -> None:
    """For whoever wants to point at it."""
    with pytest.raises(ConfigError) as caught:
        read("server: {port: x}")
    assert (caught.value.path, caught.value.problem) == (
        "server.port",
        "expected a whole number from 0 to 65535, found text",
    )


def test_one_secret_or_several() -> None:
    """The first seals, all open."""
    environ = {"S": SECRET}
    assert read("server: {secret: '${S}'}", environ).server.secret == (SECRET,)
    assert read("server: {secret: ['${S}', 0123456789abcdef]}", environ).server.secret == (
        SECRET,
        "0123456789abcdef",
    )
    assert read("server: {secret: []}").server.secret == ()


def test_paths_of_certificates_begin_at_the_configurations_directory(tmp_path: Path) -> None:
    """And must be there."""
    (tmp_path / "ca.pem").touch()
    assert read_upstream("tls: {ca_file: ca.pem}", directory=tmp_path).tls.ca_file == str(tmp_path / "ca.pem")


def test_load_reads_a_file_and_names_what_to_watch(tmp_path: Path) -> None:
    """Itself first, then every file it refers to, once."""
    (tmp_path / "token").write_text("abc\n")
    file = tmp_path / "federator.yaml"
    file.write_text(
        "upstreams: {a: {url: 'http://x', headers: {X: '${file:token}', Y: '${file:token}'}}, b: {url: 'http://y'}}"
    )
    config = load(file, {})
    assert config.upstreams["a"].headers == {"X": "abc", "Y": "abc"}
    assert config.files == (file, tmp_path / "token")
    assert list(config.upstreams) == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"a: \xff", "expected text in UTF-8"),
        (b"#" * ((1 << 20) + 1), "expected at most 1 MiB"),
        (b"a: [", "no YAML: "),
        (b"server: {port: x}", "server.port: expected"),
    ],
    ids=["missing", "binary", "huge", "broken", "wrong"],
)
def test_a_message_begins_with_the_files_name(tmp_path: Path, content: bytes | None, problem: str) -> None:
    """Whatever is wrong with it."""
    file = tmp_path / "federator.yaml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert str(caught.value).startswith(f"{file}: {problem}")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    """A mount that went wrong."""
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path, {})


def test_processes_that_share_a_cache_share_a_secret() -> None:
    """Without one none could read what the others keep; the message says how to make one."""
    text = "cache: {redis: {url: redis://h}}"
    (line,) = wrong(text)
    assert line.startswith("server.secret: expected beside `cache.redis`, the same for all processes")
    assert "`openssl rand -hex 32`" in line
    assert read(f"{text}\nserver: {{secret: {SECRET}}}").cache.redis == Redis(url="redis://h")


@pytest.mark.parametrize(
    "url",
    ["", "h:6379", "http://h", "redis:/h", "redis://h /0", f"rediss+unix://{SECRET}@h"],
)
def test_a_redis_url_has_a_form_for_each_deployment(url: str) -> None:
    """What is wrong is told without the URL: it may hold a password."""
    (line, *_) = wrong(f"cache: {{redis: {{url: '{url}'}}}}\nserver: {{secret: {SECRET}}}")
    assert line.startswith("cache.redis.url: expected a URL such as redis://HOST:6379/0, ")


def test_an_option_names_another_redis() -> None:
    """All else of `cache.redis` stays; it needs a secret as well, and is refused without its value."""
    text = f"cache: {{redis: {{url: redis://h, timeout: 1s}}}}\nserver: {{secret: {SECRET}}}"
    given = with_options(read(text), {}, redis="redis://other").cache.redis
    assert given == Redis(url="redis://other", timeout=Duration(1))
    assert with_options(read(text), {}, redis=None).cache.redis == Redis(url="redis://h", timeout=Duration(1))
    with pytest.raises(ConfigError, match=r"^server\.secret: expected beside"):
        with_options(read(""), {}, redis="redis://other")
    with pytest.raises(ConfigError, match=r"^--redis: expected a URL such as redis://HOST:6379/0") as caught:
        with_options(read(text), {}, redis=SECRET)
    assert SECRET not in str(caught.value)
