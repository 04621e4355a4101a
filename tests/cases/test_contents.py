"""What is in lists and contents, cases H10 to H12: it comes through, byte for byte.

Each row is one input, over the whole product, asked twice: the miss and the hit say the same.
"""

import json

import pytest

from tests.cases.saying import LIST, READ, TEMPLATES, asked, listed_as, read_as, said, valid
from tests.instruments.fronted import fronted, run
from tests.instruments.processes import command
from tests.instruments.wire import Wire, by_uri, contents

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
