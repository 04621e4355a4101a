"""What is in lists and contents, cases H10 to H15: bytes come through, odd ones spoil only themselves.

Each row is one input, over the whole product, asked twice: the miss and the hit say the same.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types.jsonrpc import JSONRPCError
from mcp_types.methods import validate_server_result

from tests.instruments.fronted import Clock, fronted, run
from tests.instruments.house import House, Reply, body_of, headers_of, house
from tests.instruments.processes import command
from tests.instruments.wire import Answer, Wire, by_uri, contents, page, reply, result

READ = "resources/read"
LIST = "resources/list"
TEMPLATES = "resources/templates/list"
INCOMPLETE = "dev.mcp-federator/incomplete"
HINTS = '"resultType":"complete","ttlMs":60000,"cacheScope":"public"'


def said(members: str) -> Answer:
    """A complete result with these members, as they are spelt."""
    return result(f"{{{members},{HINTS}}}".encode())


def valid(reply: Reply, method: str) -> dict[str, Any]:
    """The result, which the official types accept."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    found: dict[str, Any] = json.loads(reply.body, parse_constant=refuse)["result"]
    validate_server_result(method, "2026-07-28", found)
    return found


async def asked(it: House, wire: Wire, method: str, params: Mapping[str, Any] | None = None) -> str:
    """The reply as text, which is the same from upstream and from the cache."""
    first, second = await it.post(method, params), await it.post(method, params)
    assert ("fwd=miss" in first.cache_status, "hit" in second.cache_status) == (True, True)
    assert len(wire.calls(method)) == 1
    assert first.body == second.body
    valid(first, method)
    return first.body.decode()


async def read_as(members: str, *, uri: str = "x://1") -> str:
    """The reply to a read, where an upstream gives this result."""
    async with fronted({READ: said(members)}) as (it, wire):
        return await asked(it, wire, READ, {"uri": "alpha+" + uri})


async def listed_as(items: str, method: str = LIST) -> str:
    """The reply to a list, where an upstream gives these items."""
    name = "resources" if method == LIST else "resourceTemplates"
    async with fronted({method: said(f'"{name}":[{items}]')}) as (it, wire):
        return await asked(it, wire, method)


# H10: a blob is a blob.

BLOBS = {
    "gzip": '"mimeType":"application/gzip","blob":"H4sIAAAA+/8="',
    "no-mime-type": '"blob":"H4sIAAAA"',
    "empty-mime-type": '"mimeType":"","blob":"H4sIAAAA"',
    "text-mime-type": '"mimeType":"text/plain","blob":"aGVsbG8="',
    "empty": '"blob":""',
    "unpadded": '"blob":"aGVsbG8"',
    "url-safe": '"blob":"-_-_"',
    "broken-into-lines": '"blob":"aGVs\\nbG8="',
    "no-base64": '"blob":"not base64!"',
    "escaped": '"blob":"\\u0061\\/8="',
    "valid-utf-8-inside": '"blob":"w6k="',
    "long": '"blob":"' + "QUJD" * 100_000 + '"',
    "blob-first": '"blob":"AA==","mimeType":"a/b"',
}


@pytest.mark.parametrize("members", BLOBS.values(), ids=BLOBS)
def test_H10_a_blob_stays_a_blob(members: str) -> None:
    """Character for character, with no text beside it, from upstream and from the cache."""

    async def check() -> None:
        text = await read_as(f'"contents":[{{"uri":"x://1",{members}}}]')
        assert f'"contents":[{{"uri":"alpha+x://1",{members}}}]' in text

    run(check())


@pytest.mark.parametrize(
    "members", ['"text":null,"blob":"AA=="', '"blob":"AA==","text":null', '"blob":"AA==","mimeType":null']
)
def test_H10_a_null_beside_a_blob_is_left_out(members: str) -> None:
    """A client that looks for `text` first finds none."""

    async def check() -> None:
        text = await read_as(f'"contents":[{{"uri":"x://1",{members}}}]')
        assert '"contents":[{"uri":"alpha+x://1","blob":"AA=="}]' in text

    run(check())


def test_H10_the_command_line_writes_a_blob_s_bytes() -> None:
    """And says what it cannot decode."""

    async def check() -> None:
        blobs = {"good": "AP8=", "bad": "A"}
        known = {uri: contents("") | {"contents": [{"uri": uri, "blob": it}]} for uri, it in blobs.items()}
        async with Wire({READ: by_uri(known)}) as wire:
            status, out, _ = await command("read", "good", "--url", wire.url)
            assert (status, out) == (0, "\x00\udcff")
            status, out, err = await command("read", "bad", "--url", wire.url)
            assert (status, out) == (1, "")
            assert "not base64" in err.splitlines()[-1]

    run(check())


# H11: contents are many, and each has its own URI.


def test_H11_all_contents_come_in_order_each_readable() -> None:
    """A directory: its files, one of them twice; what a text says of a URI stays, and each can be read."""

    async def check() -> None:
        a, b = "file:///dir/a", "file:///dir/b"
        told = {
            "contents": [{"uri": a, "text": f"see {b}"}, {"uri": b, "text": "1"}, {"uri": b, "text": "2"}]
        }
        known = {"file:///dir": contents("") | told, a: contents(a, "A"), b: contents(b, "B")}
        async with fronted({READ: by_uri(known)}) as (it, wire):
            for _ in range(2):
                reply = await it.read("alpha+file:///dir")
                assert valid(reply, READ)["contents"] == [
                    {"uri": "alpha+file:///dir/a", "text": "see file:///dir/b"},
                    {"uri": "alpha+file:///dir/b", "text": "1"},
                    {"uri": "alpha+file:///dir/b", "text": "2"},
                ]
                texts = [(await it.read(uri)).result["contents"][0]["text"] for uri in reply.uris]
                assert texts == ["A", "B", "B"]
            assert [call.params["uri"] for call in wire.calls(READ)] == ["file:///dir", a, b]

    run(check())


@pytest.mark.parametrize(
    ("own", "shown"),
    [
        pytest.param("x://1", "alpha+x://1", id="the-asked-one"),
        pytest.param("y://other", "alpha+y://other", id="another"),
        pytest.param("ui://app", "ui://alpha/app", id="app"),
        pytest.param("beta+x://1", "alpha+beta+x://1", id="looks-like-anothers"),
        pytest.param("", "alpha+", id="empty"),
        pytest.param("a b/é", "alpha+a b/é", id="odd"),
    ],
)
def test_H11_contents_are_shown_under_their_own_uri(own: str, shown: str) -> None:
    """In public form, and not under the one that was asked for."""

    async def check() -> None:
        text = await read_as(json.dumps({"contents": [{"uri": own, "text": "t"}]})[1:-1])
        assert json.loads(text)["result"]["contents"] == [{"uri": shown, "text": "t"}]

    run(check())


@pytest.mark.parametrize(
    "own", ["", '"uri":null,', '"uri":"file:///etc/passwd",'], ids=["none", "null", "outside"]
)
def test_H11_contents_without_a_public_uri_get_the_asked_one(own: str) -> None:
    """They are what was asked for, whatever they are called upstream."""

    async def check() -> None:
        settings = {"prefix": "docs://", "native_prefix": "file:///srv/"}
        answer = said(f'"contents":[{{{own}"text":"t"}}]')
        async with fronted({READ: answer}, settings) as (it, wire):
            text = await asked(it, wire, READ, {"uri": "docs://a"})
            assert json.loads(text)["result"]["contents"] == [{"uri": "docs://a", "text": "t"}]

    run(check())


def test_H11_many_contents_come_whole() -> None:
    """A thousand of them, in order."""

    async def check() -> None:
        many = [{"uri": f"x://{number}", "text": str(number)} for number in range(1000)]
        text = await read_as(json.dumps({"contents": many})[1:-1])
        assert json.loads(text)["result"]["contents"] == [
            {"uri": f"alpha+x://{number}", "text": str(number)} for number in range(1000)
        ]

    run(check())


def test_H11_no_contents_are_the_upstreams_word() -> None:
    """An empty list is an answer, passed on as such."""

    async def check() -> None:
        assert '"contents":[]' in await read_as('"contents":[]')

    run(check())


# H12: what we do not know comes out as it went in.

DESCRIBED = (
    '"title":"t","description":"","mimeType":"text/plain","icons":[{"src":"https://h/i.png","sizes":["48x48"],'
    '"mimeType":"image/png","theme":"dark","x":null}],"annotations":{"audience":["user","assistant"],'
    '"priority":0.8,"lastModified":"2025-01-12T15:00:58Z","x":{"a":null}},'
    '"_meta":{"com.example/x":{"a":[null,1]},"":0},"futureField":{"k":1},"futureNull":null'
)
ITEMS = {
    "as-the-case-has-it": DESCRIBED,
    "bare": "",
    "members-in-another-order": '"z":1,"a":2,"m":3',
    "spelt-with-escapes": '"title":"\\u00fc\\/ \\ud83d\\ude00","x":"\\u0022\\n"',
    "spaced": '"x" : [ 1 , 2 ] ,\n"y" :{ "k" :\tnull }',
    "empty-names": '"":{"":[]}',
    "deep": '"x":' + "[" * 55 + "]" * 55,
    "other-peoples-metadata": '"_meta":{"io.modelcontextprotocol/x":1,"dev.mcp-federator/x":2}',
    "long": '"x":"' + "é" * 100_000 + '"',
}


def unspaced(text: str) -> str:
    """JSON text without blanks between members of the outermost object, where we join them anew."""
    return text.replace('"x" : [', '"x":[').replace('] ,\n"y" :{', '],"y":{')


@pytest.mark.parametrize("method", [LIST, TEMPLATES])
@pytest.mark.parametrize("members", ITEMS.values(), ids=ITEMS)
def test_H12_an_item_keeps_its_members(members: str, method: str) -> None:
    """Every member, in its order and its spelling; only the URI becomes another."""
    uri = "uri" if method == LIST else "uriTemplate"
    size = ',"size":0' if method == LIST else ""
    rest = f',"name":"n"{size}{"," if members else ""}{members}}}'

    async def check() -> None:
        text = await listed_as(f'{{"{uri}":"x://1"{rest}', method)
        assert f'[{{"{uri}":"alpha+x://1"{unspaced(rest)}]' in text

    run(check())


@pytest.mark.parametrize("members", ITEMS.values(), ids=ITEMS)
def test_H12_contents_keep_their_members(members: str) -> None:
    """The same of a read, beside other members of its result."""
    rest = f',"text":"t"{"," if members else ""}{members}}}'

    async def check() -> None:
        text = await read_as(f'"x-extra":true,"contents":[{{"uri":"x://1"{rest}],"y-extra":[1.0,null]')
        after = f'"x-extra":true,"contents":[{{"uri":"alpha+x://1"{unspaced(rest)}],"y-extra":[1.0,null]'
        assert after in text

    run(check())


@pytest.mark.parametrize("method", [LIST, TEMPLATES, READ])
def test_H12_a_result_keeps_its_members(method: str) -> None:
    """Its own `_meta` too, less what belongs to the connection; hints and server are ours."""
    items = {LIST: "resources", TEMPLATES: "resourceTemplates", READ: "contents"}[method]
    server = '"io.modelcontextprotocol/serverInfo":{"name":"secret-name","version":"6.6.6"}'
    members = f'"{items}":[],"x-extra":true,"_meta":{{{server},"com.example/x":[1.0,null]}}'

    async def check() -> None:
        async with fronted({method: said(members)}) as (it, wire):
            text = await asked(it, wire, method, {"uri": "alpha+x://1"} if method == READ else None)
            assert '"x-extra":true' in text
            assert '"com.example/x":[1.0,null]' in text
            assert "secret-name" not in text
            told = json.loads(text)["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]
            assert told["name"] == "mcp-federator"

    run(check())


def test_H12_the_app_that_shows_a_thing_is_named_in_public_form() -> None:
    """`_meta.ui.resourceUri` is a URI: what is listed with it can be read."""

    async def check() -> None:
        answers = {
            LIST: said(
                '"resources":[{"uri":"x","name":"n","_meta":{"ui":{"resourceUri":"ui://app","a":1}}}]'
            ),
            READ: by_uri({"ui://app": contents("ui://app")}),
        }
        async with fronted(answers) as (it, wire):
            text = await asked(it, wire, LIST)
            ui = json.loads(text)["result"]["resources"][0]["_meta"]["ui"]
            assert ui == {"resourceUri": "ui://alpha/app", "a": 1}
            assert (await it.read(ui["resourceUri"])).uris == ["ui://alpha/app"]

    run(check())


# H13: null, and whatever else a strict client refuses a whole page for.

GOOD = '{"uri":"good","name":"n"}'


@asynccontextmanager
async def beside(members: str, method: str = LIST) -> AsyncIterator[tuple[House, Reply, Reply]]:
    """A page of `odd`, which gives this result, and of `fine`; from upstream and from the cache."""
    items, uri = ("resources", "uri") if method == LIST else ("resourceTemplates", "uriTemplate")
    fine = f'"{items}":[{GOOD.replace("uri", uri)}]'
    async with AsyncExitStack() as open_:
        wires = {
            name: await open_.enter_async_context(Wire({method: said(text)}))
            for name, text in (("odd", members), ("fine", fine))
        }
        it = await open_.enter_async_context(
            house({name: wire.url for name, wire in wires.items()}, clock=Clock())
        )
        first, second = await it.page(None, method), await it.page(None, method)
        assert valid(first, method)[items] == valid(second, method)[items]
        yield it, first, second


@pytest.mark.parametrize(
    ("given", "left"),
    [
        pytest.param('"description":null,"mimeType":null,"_meta":null', "", id="as-the-case-has-it"),
        pytest.param('"title":null,"size":null,"icons":null,"annotations":null', "", id="the-others"),
        pytest.param(
            '"annotations":{"audience":null,"priority":null,"lastModified":null,"x":null}',
            ',"annotations":{"x":null}',
            id="of-annotations",
        ),
        pytest.param(
            '"icons":[{"src":"s","mimeType":null,"sizes":null,"theme":null,"x":null}]',
            ',"icons":[{"src":"s","x":null}]',
            id="of-icons",
        ),
        pytest.param('"_meta":{"a":null,"b":[null]}', ',"_meta":{"a":null,"b":[null]}', id="in-metadata"),
        pytest.param('"future":null', ',"future":null', id="of-what-nobody-knows"),
    ],
)
def test_H13_a_null_of_an_optional_member_is_left_out(given: str, left: str) -> None:
    """What comes out is valid, the item stays, and null inside values is kept."""

    async def check() -> None:
        text = await listed_as(f'{{"uri":"x","name":"n",{given}}}')
        assert f'[{{"uri":"alpha+x","name":"n"{left}}}]' in text

    run(check())


PAGES = {
    "resources-null": '"resources":null',
    "resources-null-and-cursor-null": '"resources":null,"nextCursor":null',
    "nothing": '"x":1',
    "cursor-null": '"resources":[],"nextCursor":null',
}


@pytest.mark.parametrize("members", PAGES.values(), ids=PAGES)
def test_H13_a_page_without_a_list_is_an_empty_page(members: str) -> None:
    """It costs nobody anything: the others are listed, and nothing is missing."""

    async def check() -> None:
        async with beside(members) as (_, first, second):
            assert first.uris == second.uris == ["fine+good"]
            assert INCOMPLETE not in first.result["_meta"]
            assert "nextCursor" not in first.result
            assert first.result["ttlMs"] == 60_000

    run(check())


@pytest.mark.parametrize(
    "members",
    [
        '"resources":5',
        '"resources":{}',
        '"resources":"[]"',
        '"resources":[],"nextCursor":5',
        '"resources":[],"nextCursor":{}',
        '"resources":[{"uri":"x","name":"\\ud800"}]',
    ],
)
def test_H13_a_page_that_is_none_costs_its_upstream_alone(members: str) -> None:
    """It is named as missing, and the others are listed."""

    async def check() -> None:
        async with beside(members) as (_, first, _):
            assert first.uris == ["fine+good"]
            assert first.result["_meta"][INCOMPLETE] == [{"upstream": "odd", "reason": "bad_reply"}]
            assert first.result["ttlMs"] == 0

    run(check())


WRONG = {
    "no-uri": '{"name":"n"}',
    "null-uri": '{"uri":null,"name":"n"}',
    "number-uri": '{"uri":5,"name":"n"}',
    "no-name": '{"uri":"x"}',
    "null-name": '{"uri":"x","name":null}',
    "null": "null",
    "number": "5",
    "list": "[]",
    "empty": "{}",
    **{
        f"{number}-{member.partition(':')[0].strip(chr(34))}": f'{{"uri":"x","name":"n",{member}}}'
        for number, member in enumerate(
            (
                '"name":5',
                '"title":{}',
                '"description":["d"]',
                '"mimeType":false',
                '"size":"5"',
                '"size":0.5',
                '"icons":{"src":"s"}',
                '"icons":[{"mimeType":"image/png"}]',
                '"icons":[{"src":null}]',
                '"icons":[{"src":"s","sizes":"any"}]',
                '"icons":[{"src":"s","theme":"blue"}]',
                '"annotations":[]',
                '"annotations":{"audience":"user"}',
                '"annotations":{"audience":["robot"]}',
                '"annotations":{"priority":2}',
                '"annotations":{"priority":"high"}',
                '"annotations":{"lastModified":1736694058}',
                '"_meta":"m"',
                '"_meta":[]',
            )
        )
    },
}


@pytest.mark.parametrize(
    ("method", "wrong"),
    [pytest.param(LIST, item, id=f"resource-{name}") for name, item in WRONG.items()]
    + [
        pytest.param(TEMPLATES, item.replace('"uri"', '"uriTemplate"'), id=f"template-{name}")
        for name, item in WRONG.items()
        if '"size"' not in item  # of which templates have none
    ],
)
def test_H13_an_item_that_strict_clients_refuse_costs_only_itself(method: str, wrong: str) -> None:
    """Its neighbours stay, in its own upstream and in others, and the page is valid."""
    items, uri = ("resources", "uri") if method == LIST else ("resourceTemplates", "uriTemplate")
    one, another = (GOOD.replace('"uri":"good"', f'"{uri}":"{number}"') for number in "12")

    async def check() -> None:
        async with beside(f'"{items}":[{one},{wrong},{another}]', method) as (_, first, _):
            assert [item[uri] for item in first.result[items]] == ["odd+1", "odd+2", "fine+good"]
            assert INCOMPLETE not in first.result["_meta"]

    run(check())


@pytest.mark.parametrize(
    "wrong",
    [
        "null",
        "5",
        "{}",
        '{"uri":"x"}',
        '{"uri":"x","mimeType":"a/b"}',
        '{"uri":"x","text":null}',
        '{"uri":"x","text":5}',
        '{"uri":"x","text":"t","blob":5}',
        '{"uri":"x","blob":{}}',
        '{"uri":"x","text":"t","mimeType":5}',
        '{"uri":"x","text":"t","_meta":[]}',
        '{"uri":5,"text":"t"}',
    ],
)
def test_H13_contents_that_strict_clients_refuse_cost_only_themselves(wrong: str) -> None:
    """The others of the same read stay; where there are none it is a bad reply, and nothing is kept."""

    async def check() -> None:
        good = '{"uri":"y","text":"t"}'
        text = await read_as(f'"contents":[{wrong},{good}]')
        assert '"contents":[{"uri":"alpha+y","text":"t"}]' in text
        async with fronted({READ: said(f'"contents":[{wrong}]')}) as (it, wire):
            for _ in range(2):
                error = (await it.read("alpha+x")).error
                assert (error["code"], error["data"]["reason"]) == (-32603, "bad_reply")
            assert len(wire.calls(READ)) == 2

    run(check())


@pytest.mark.parametrize("members", ['"x":1', '"contents":null', '"contents":5', '"contents":{}'])
def test_H13_a_read_without_contents_is_a_bad_reply(members: str) -> None:
    """No empty contents are made of it."""

    async def check() -> None:
        async with fronted({READ: said(members)}) as (it, _):
            error = (await it.read("alpha+x")).error
            assert (error["code"], error["data"]["reason"]) == (-32603, "bad_reply")

    run(check())


def test_H13_what_is_left_out_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An operator who misses something finds out whose it is."""

    async def check() -> None:
        await listed_as(f"{GOOD},5,null")
        await read_as('"contents":[{"uri":"x","text":"t"},{}]')

    caplog.set_level("INFO")
    run(check())
    told = [line.partition(" are left out")[0] for line in caplog.messages if "left out" in line]
    assert told == [f"alpha: 2 items in an answer to {LIST}", f"alpha: 1 items in an answer to {READ}"]


any_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)
almost = st.fixed_dictionaries(
    {},
    optional={
        "uri": st.text() | any_json,
        "uriTemplate": st.just("x://{a}") | st.text() | any_json,
        "name": st.text() | any_json,
        "text": st.text() | any_json,
        "blob": any_json,
        "size": any_json,
        "_meta": any_json | st.dictionaries(st.text(max_size=2), any_json, max_size=2),
        "annotations": any_json,
        "icons": any_json,
    },
)
results = any_json | st.fixed_dictionaries(
    {},
    optional={
        name: st.lists(almost | any_json, max_size=3) | any_json
        for name in ("resources", "resourceTemplates", "contents")
    }
    | {
        "nextCursor": st.text() | any_json,
        "ttlMs": st.integers() | any_json,
        "cacheScope": st.sampled_from(["public", "private", "PUBLIC"]) | any_json,
        "resultType": st.sampled_from(["complete", "complete", "input_required", "other"]) | any_json,
        "requestState": st.text() | any_json,
        "inputRequests": any_json,
        "_meta": any_json | st.dictionaries(st.text(max_size=2), any_json, max_size=2),
        "x": any_json,
    },
)
errors = any_json | st.fixed_dictionaries(
    {},
    optional={
        "code": st.integers(-32800, -31900) | any_json,
        "message": st.text() | any_json,
        "data": any_json | st.fixed_dictionaries({"uri": st.text() | any_json}),
    },
)


@settings(deadline=None, max_examples=100)
@given(st.tuples(st.just("result"), results) | st.tuples(st.just("error"), errors))
def test_invariant_12_whatever_an_upstream_says_a_client_gets_what_is_valid(said: tuple[str, Any]) -> None:
    """A valid list of the others, and a valid result or error of a read; then the next request is served."""
    name, value = said
    body = b'{"jsonrpc":"2.0","id":$ID,"%b":%b}' % (name.encode(), json.dumps(value).encode())

    async def check() -> None:
        odd = reply(body)
        fine = {
            LIST: result(page("good")),
            TEMPLATES: result({"resourceTemplates": [{"uriTemplate": "good", "name": "n"}]}),
        }
        async with (
            Wire({LIST: odd, TEMPLATES: odd, READ: odd}) as one,
            Wire(fine) as another,
            house({"odd": one.url, "fine": another.url}, clock=Clock()) as it,
        ):
            assert "fine+good" in [item["uri"] for item in valid(await it.page(), LIST)["resources"]]
            valid(await it.page(None, TEMPLATES), TEMPLATES)
            told = await it.read("odd+x")
            if "error" not in told.message:
                # What it may require of its one asker is between the two.
                assert told.result["resultType"] == "input_required" or valid(told, READ)
            else:
                JSONRPCError.model_validate_json(told.body)
                assert told.error["code"] not in range(-32099, -32042)
            assert (await it.get("/healthz")).status == 200

    run(check())


# H14: numbers keep their digits.

NUMBERS = {
    "beyond-2^53": "9007199254740993",
    "beyond-2^63": "9223372036854775808",
    "beyond-2^64": "18446744073709551617",
    "300-digits": "9" * 300,
    "trailing-zero": "1.10",
    "exponent": "1e2",
    "capital-exponent": "1E-7",
    "plus": "1E+2",
    "minus-zero": "-0.0",
    "minus-zero-whole": "-0",
    "too-exact": "0.1234567890123456789012345678901234567890",
    "underflow": "1e-400",
    "largest": "1.7976931348623157e308",
}


@pytest.mark.parametrize("number", NUMBERS.values(), ids=NUMBERS)
def test_H14_a_number_keeps_its_digits(number: str) -> None:
    """In a list, in contents and in a result, from upstream and from the cache."""
    meta = f'"_meta":{{"n":{number},"l":[{number}]}}'

    async def check() -> None:
        assert meta in await listed_as(f'{{"uri":"x","name":"n",{meta}}}')
        assert meta in await listed_as(f'{{"uriTemplate":"x","name":"n",{meta}}}', TEMPLATES)
        text = await read_as(f'"contents":[{{"uri":"x","text":"t",{meta}}}],"n":{number}')
        assert meta in text
        assert f'"n":{number}' in text

    run(check())


@pytest.mark.parametrize("size", ["0", "1e2", "1.0", str(2**53 + 1), str(2**63), "-1"])
def test_H14_a_size_keeps_its_digits(size: str) -> None:
    """A whole number, however it is spelt."""

    async def check() -> None:
        assert f'"size":{size}' in await listed_as(f'{{"uri":"x","name":"n","size":{size}}}')

    run(check())


UNREADABLE = {
    "5000-digits": "1" * 5_000,
    "minus-5000-digits": "-" + "1" * 5_000,
    "1E400": "1E400",
    "minus-1e400": "-1e400",
    "with-a-point": "1" * 400 + ".5",
    "NaN": "NaN",
    "Infinity": "Infinity",
    "minus-Infinity": "-Infinity",
    "hexadecimal": "0x10",
    "leading-zero": "01",
    "leading-point": ".5",
    "leading-plus": "+1",
    "no-digits": "1.",
}


@pytest.mark.parametrize("number", UNREADABLE.values(), ids=UNREADABLE)
@pytest.mark.parametrize(
    "place", ['"_meta":{"n":%s}', '"size":%s', '"x":[%s]'], ids=["meta", "size", "unknown"]
)
def test_H14_a_number_that_readers_fail_on_fails_its_upstream_alone(number: str, place: str) -> None:
    """The others are listed, nothing like NaN is sent, and the process goes on."""

    async def check() -> None:
        item = f'{{"uri":"x","name":"n",{place.replace("%s", number)}}}'
        async with beside(f'"resources":[{item}]') as (it, first, second):
            for page in (first, second):  # both went upstream, and both are valid
                assert page.uris == ["fine+good"]
                assert page.result["_meta"][INCOMPLETE] == [{"upstream": "odd", "reason": "bad_reply"}]
            assert (await it.get("/healthz")).status == 200

    run(check())


@pytest.mark.parametrize("number", UNREADABLE.values(), ids=UNREADABLE)
def test_H14_a_read_with_such_a_number_is_a_bad_reply(number: str) -> None:
    """And is not kept: the next one asks anew."""

    async def check() -> None:
        bad = said(f'"contents":[{{"uri":"x","text":"t"}}],"n":{number}')
        async with fronted({READ: [bad, result(contents("x"))]}) as (it, _):
            error = (await it.read("alpha+x")).error
            assert (error["code"], error["data"]) == (-32603, {"upstream": "alpha", "reason": "bad_reply"})
            assert (await it.read("alpha+x")).result["contents"][0]["text"] == "text"

    run(check())


# H15: bodies that are too deep, or none.

DEEP_READ = json.dumps(body_of(READ, {"uri": "alpha+x", "d": "$"}))
BODIES: dict[str, tuple[bytes, int]] = {
    "100000-brackets": (b"[" * 100_000, -32700),
    "100000-braces": (b'{"a":' * 100_000, -32700),
    "closed-brackets": (b"[" * 100_000 + b"]" * 100_000, -32700),
    "200-levels-in-params": (DEEP_READ.replace('"$"', '{"a":' * 200 + "1" + "}" * 200).encode(), -32700),
    "200-levels-in-meta": (
        json.dumps(body_of(READ, {"uri": "x"}, meta={"d": "$"}))
        .replace('"$"', "[" * 200 + "]" * 200)
        .encode(),
        -32700,
    ),
    "65-levels": (DEEP_READ.replace('"$"', "[" * 63 + "]" * 63).encode(), -32700),
    "byte-order-mark": (b"\xef\xbb\xbf" + DEEP_READ.encode(), -32700),
    "utf-16": (DEEP_READ.encode("utf-16"), -32700),
    "utf-16-without-mark": (DEEP_READ.encode("utf-16-le"), -32700),
    "utf-32": (DEEP_READ.encode("utf-32"), -32700),
    "latin-1": (DEEP_READ.replace("$", "é").encode("latin-1"), -32700),
    "nothing": (b"", -32700),
    "blank": (b" \n", -32700),
    "nul": (b"\x00", -32700),
    "cut-off": (DEEP_READ.encode()[:-1], -32700),
    "more-behind": (DEEP_READ.encode() + b"{}", -32700),
    "two-messages": (DEEP_READ.encode() + b"\n" + DEEP_READ.encode(), -32700),
    "single-quotes": (DEEP_READ.replace('"', "'").encode(), -32700),
    "trailing-comma": (DEEP_READ.encode()[:-1] + b",}", -32700),
    "NaN": (DEEP_READ.replace('"$"', "NaN").encode(), -32700),
    "half-a-surrogate": (DEEP_READ.replace("$", "\\ud800").encode(), -32700),
    "control-in-a-string": (DEEP_READ.replace("$", "\x01").encode(), -32700),
    "json-of-another-kind": (b'"x"', -32600),
    "null": (b"null", -32600),
    "number": (b"1", -32600),
}


@pytest.mark.parametrize(("body", "code"), BODIES.values(), ids=BODIES)
def test_H15_a_body_that_is_no_request_is_refused_at_once(body: bytes, code: int) -> None:
    """400 with a JSON-RPC error, nothing upstream, and the connection serves the next request."""

    async def check() -> None:
        async with fronted({READ: result(contents("x"))}) as (it, wire), connection(it.url) as ask:
            status, told = await ask(body)
            assert (status, told["error"]["code"]) == (400, code)
            assert "id" not in told
            assert "result" not in told
            status, told = await ask(json.dumps(body_of(READ, {"uri": "alpha+x"})).encode())
            assert (status, told["result"]["contents"][0]["uri"]) == (200, "alpha+x")
            assert len(wire.calls(READ)) == 1

    run(check())


def test_H15_64_levels_are_deep_enough() -> None:
    """Up to there a request is served, and what nobody asked for is not sent on."""

    async def check() -> None:
        body = DEEP_READ.replace('"$"', "[" * 62 + "]" * 62).encode()
        async with fronted({READ: result(contents("x"))}) as (it, wire):
            assert (await it.send(body, headers_of(READ, {"uri": "alpha+x"}))).status == 200
            assert wire.calls(READ)[0].params.keys() == {"uri", "_meta"}

    run(check())


Ask = Any


@asynccontextmanager
async def connection(url: str) -> AsyncIterator[Ask]:
    """One connection to the endpoint, which posts a body as it is and gives status and JSON of the reply."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)

    async def ask(body: bytes) -> tuple[int, Any]:
        fields = headers_of(READ, {"uri": "alpha+x"}) | {
            "Host": parts.netloc,
            "Content-Length": str(len(body)),
        }
        lines = [f"POST {parts.path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        head = await reader.readuntil(b"\r\n\r\n")
        first, *rest = head.decode().lower().splitlines()
        (length,) = [line.partition(":")[2] for line in rest if line.startswith("content-length:")]
        return int(first.split()[1]), json.loads(await reader.readexactly(int(length)))

    try:
        yield ask
    finally:
        writer.close()
        await writer.wait_closed()


DEEP_REPLIES = {
    "100000-brackets": b'{"jsonrpc":"2.0","id":$ID,"result":' + b"[" * 100_000,
    "200-levels": b'{"jsonrpc":"2.0","id":$ID,"result":{"contents":' + b"[" * 200 + b"]" * 200 + b"}}",
    "not-utf-8": b'{"jsonrpc":"2.0","id":$ID,"result":{"contents":[{"uri":"x","text":"\xff"}]}}',
    "byte-order-mark": b'\xef\xbb\xbf{"jsonrpc":"2.0","id":$ID,"result":{"contents":[]}}',
    "nothing": b"",
    "null": b"null",
    "cut-off": b'{"jsonrpc":"2.0","id":$ID,"result":{"contents":[]}',
}


@pytest.mark.parametrize("body", DEEP_REPLIES.values(), ids=DEEP_REPLIES)
@pytest.mark.parametrize("method", [READ, LIST])
def test_H15_such_a_reply_of_an_upstream_is_a_bad_one(body: bytes, method: str) -> None:
    """One error for whoever asked, nothing kept, and the next request is served."""

    async def check() -> None:
        good = result(contents("x") if method == READ else page("x"))
        async with fronted({method: [reply(body), good]}) as (it, wire):
            params = {"uri": "alpha+x"} if method == READ else None
            error = (await it.post(method, params)).error
            assert (error["code"], error["data"]) == (-32603, {"upstream": "alpha", "reason": "bad_reply"})
            assert (await it.post(method, params)).uris == ["alpha+x"]
            assert len(wire.calls(method)) == 2

    run(check())
