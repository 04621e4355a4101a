import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types import ListResourcesResult, ListResourceTemplatesResult, ReadResourceResult
from mcp_types.methods import validate_server_result
from msgspec import Raw

from mcp_federator.federation.prefix import Mapping
from mcp_federator.federation.rewrite import (
    MAX_ITEMS,
    MAX_REFUSED,
    MAX_VALUES,
    Contents,
    Page,
    completion,
    contents,
    error_data,
    page,
)
from mcp_federator.model import Method

ALPHA = Mapping("alpha")
DOCS = Mapping("docs", "docs://", "file:///srv/docs/")


def members(text: str) -> dict[str, Raw]:
    """The members of a result, as `protocol.modern.decode_result` gives them."""
    decoder = json.JSONDecoder()
    found: dict[str, Raw] = {}
    at = 1
    while text[at] != "}":
        name, at = decoder.raw_decode(text, at)
        start = at + 1
        _, at = decoder.raw_decode(text, start)
        found[name] = Raw(text[start:at].encode())
        at += text[at] == ","
    return found


def listed(*items: str, mapping: Mapping = ALPHA, more: str = "") -> Page:
    return page(members(f'{{"resources":[{",".join(items)}]{more}}}'), Method.LIST, mapping)


def templates(*items: str, mapping: Mapping = ALPHA) -> Page:
    return page(members(f'{{"resourceTemplates":[{",".join(items)}]}}'), Method.TEMPLATES, mapping)


def read(*items: str, mapping: Mapping = ALPHA, more: str = "", asked: str | None = None) -> Contents:
    return contents(members(f'{{"contents":[{",".join(items)}]{more}}}'), mapping, asked)


def test_items_come_out_in_public_form_and_in_order() -> None:
    """Joined by commas, without brackets, beside their native URIs."""
    found = listed('{"uri":"x://1","name":"a"}', '{"name":"b","uri":"ui://2"}')
    assert found.items == b'{"uri":"alpha+x://1","name":"a"},{"name":"b","uri":"ui://alpha/2"}'
    assert found.uris == ("x://1", "ui://2")
    assert (found.count, found.dropped, found.next_cursor, found.extra) == (2, 0, None, b"")


def test_what_comes_out_keeps_no_buffer_alive() -> None:
    """All members are bytes and text of their own, never `Raw`."""
    assert {type(part) for part in (listed(X).items, read('{"uri":"x","text":"t"}').body)} == {bytes}


X = '{"uri":"x","name":"n"}'

RICH = (
    '"name":"n","title":"t","icons":[{"src":"x://i","sizes":[],"other":null}],"annotations":{"audience":["user"],'
    '"priority":0.8,"lastModified":"2025-01-12T15:00:58Z","x":null},"size":7,"_meta":{"com.example/x":{"a":[null,1]}},'
    '"futureField":{"k":1},"other":null,"\\u00fc":"\\u00fc \\/ ü"'
)


def test_H12_what_the_federator_does_not_know_comes_out_as_it_went_in() -> None:
    """Resources, templates and contents keep every member, its order and its spelling; only URIs change."""
    after = RICH.replace('"\\u00fc":', '"ü":')
    assert listed(f'{{"uri":"x://1",{RICH}}}').items.decode() == f'{{"uri":"alpha+x://1",{after}}}'
    shown = templates(f'{{{RICH},"uriTemplate":"x://{{a}}"}}').items.decode()
    assert shown == f'{{{after},"uriTemplate":"alpha+x://{{a}}"}}'
    body = read(
        '{"uri":"x://1","text":"","mimeType":"","_meta":{"a":null},"z":null}', more=',"x-extra":true'
    ).body
    assert body == (
        b'"contents":[{"uri":"alpha+x://1","text":"","mimeType":"","_meta":{"a":null},"z":null}],"x-extra":true'
    )


def test_H12_members_beside_the_list_are_kept_apart() -> None:
    """`extra` holds the result's other members, without the list and the cursor."""
    found = listed(X, more=',"x-extra":[1,null],"nextCursor":"c","y":1.0')
    assert found.extra == b'"x-extra":[1,null],"y":1.0'
    assert found.next_cursor == "c"


json_values = st.recursive(
    st.sampled_from(
        ["null", "true", "1.10", "1e2", "-0.0", "1E400", "9007199254740993", '"\\u00fc"', '""', '"ü"']
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
        | st.lists(inner, max_size=3).map(
            lambda parts: "{" + ",".join(f'"k{at}": {part}' for at, part in enumerate(parts)) + "}"
        )
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(st.lists(json_values, max_size=4))
def test_invariant_6_unknown_members_survive_byte_for_byte(values: list[str]) -> None:
    """Whatever stands in members that are not ours, in whichever spelling."""
    unknown = "".join(f',"x{at}":{value}' for at, value in enumerate(values))
    named = f'"name":"n"{unknown}'
    assert listed(f'{{"uri":"u",{named}}}').items.decode() == f'{{"uri":"alpha+u",{named}}}'
    shown = templates(f'{{"uriTemplate":"u",{named}}}').items.decode()
    assert shown == f'{{"uriTemplate":"alpha+u",{named}}}'
    assert read(f'{{"uri":"u","text":"t"{unknown}}}', more=unknown).body.decode() == (
        f'"contents":[{{"uri":"alpha+u","text":"t"{unknown}}}]{unknown}'
    )


@pytest.mark.parametrize(
    "number",
    ["9007199254740993", "1.10", "1e2", "1E-7", "-0.0", str(2**63), "9" * 5000, "1E400", "-1e-400"],
    ids=lambda number: number[:20],
)
def test_H14_numbers_keep_their_digits(number: str) -> None:
    """Also those that a JSON library would round, refuse or turn into Infinity."""
    raw = {"resources": Raw(f'[{{"uri":"x","name":"n","_meta":{{"n":[{number}]}}}}]'.encode())}
    found = page(raw, Method.LIST, ALPHA)
    assert found.items.decode() == f'{{"uri":"alpha+x","name":"n","_meta":{{"n":[{number}]}}}}'


@pytest.mark.parametrize(
    "size",
    ["0", "-0", "1.0", "1e2", "1E+2", str(2**53 + 1), str(2**63), "9" * 300],
    ids=lambda size: size[:9],
)
def test_H14_a_size_is_a_whole_number_in_any_spelling(size: str) -> None:
    """It comes out as it came in."""
    item = f'{{"uri":"x","name":"n","size":{size}}}'
    assert listed(item).items.decode() == item.replace('"x"', '"alpha+x"')


@pytest.mark.parametrize("mime", ['"mimeType":"application/gzip",', ""], ids=["mime type", "none"])
def test_H10_a_blob_stays_a_blob(mime: str) -> None:
    """Character for character, and no text beside it."""
    item = f'{{"uri":"x://1",{mime}"blob":"H4sIAAAA+/8="}}'
    assert read(item).body.decode() == f'"contents":[{item.replace("x:", "alpha+x:")}]'


def test_H11_all_contents_come_through_each_under_its_own_public_uri() -> None:
    """In order, repeated ones too; what a text says stays as it is."""
    found = read(
        '{"uri":"file:///dir/a","text":"see file:///dir/b"}',
        '{"uri":"file:///dir/b","text":"1"}',
        '{"uri":"file:///dir/b","text":"2"}',
    )
    assert found.body == (
        b'"contents":[{"uri":"alpha+file:///dir/a","text":"see file:///dir/b"},'
        b'{"uri":"alpha+file:///dir/b","text":"1"},{"uri":"alpha+file:///dir/b","text":"2"}]'
    )
    assert found.uris == ("file:///dir/a", "file:///dir/b", "file:///dir/b")
    assert found.count == 3


def test_H04_a_duplicate_inside_one_upstream_is_passed_on() -> None:
    """Two entries with one URI stay two."""
    assert listed(X, X).count == 2


@pytest.mark.parametrize(
    "uri", ["file:///a b.txt", "file:///café/x", "x://h/A%2fb", "x://h?", "users/me", 'q"\\\x01\U0001f600']
)
def test_H01_a_uri_is_prefixed_and_not_otherwise_changed(uri: str) -> None:
    """However its JSON is spelt, the text is the prefix and the URI."""
    for spelt in (json.dumps(uri), json.dumps(uri, ensure_ascii=False), json.dumps(uri).replace("/", "\\/")):
        found = listed(f'{{"uri":{spelt},"name":"n"}}')
        assert json.loads(found.items)["uri"] == "alpha+" + uri
        assert found.uris == (uri,)


class TestH13Nulls:
    def test_optional_members_of_a_resource(self) -> None:
        """Those that are null go, of annotations and icons too; null in unknown ones and in `_meta` stays."""
        found = listed(
            '{"uri":"x","name":"n","title":null,"description":null,"mimeType":null,"size":null,"icons":null,'
            '"annotations":null,"_meta":null,"x":null}',
            '{"uri":"y","name":"n","annotations":{"audience":null,"priority":null,"lastModified":null,"x":null},'
            '"icons":[{"src":"s","sizes":null,"x":null},{"src":"t","theme":null}],"_meta":{"a":null}}',
        )
        assert found.items == (
            b'{"uri":"alpha+x","name":"n","x":null},'
            b'{"uri":"alpha+y","name":"n","annotations":{"x":null},'
            b'"icons":[{"src":"s","x":null},{"src":"t"}],"_meta":{"a":null}}'
        )

    def test_optional_members_of_a_template(self) -> None:
        """The same; `size` is none of them and stays."""
        found = templates(
            '{"uriTemplate":"x","name":"n","title":null,"annotations":{"priority":null},"size":null}'
        )
        assert found.items == b'{"uriTemplate":"alpha+x","name":"n","annotations":{},"size":null}'

    def test_optional_members_of_contents(self) -> None:
        """A blob beside a null text is a blob alone."""
        found = read('{"uri":"x","mimeType":null,"_meta":null,"text":null,"blob":"AA==","annotations":null}')
        assert found.body == b'"contents":[{"uri":"alpha+x","blob":"AA==","annotations":null}]'

    @pytest.mark.parametrize("text", ["{}", '{"resources":null}', '{"resources":[],"nextCursor":null}'])
    def test_no_list_is_an_empty_list(self, text: str) -> None:
        """A page without a list has no items and no cursor."""
        assert page(members(text), Method.LIST, ALPHA) == Page(b"", 0, ())

    @pytest.mark.parametrize(
        "bad",
        ["null", "5", '"x"', "[]", "{}", '{"name":"n"}', '{"uri":"x"}', '{"URI":"x","name":"n"}']
        + [
            f'{{"uri":"x","name":"n",{member}}}'
            for member in (
                '"uri":null',
                '"uri":1',
                '"uri":["x"]',
                '"name":null',
                '"name":5',
                '"title":5',
                '"description":["d"]',
                '"description":false',
                '"mimeType":{}',
                '"size":"5"',
                '"size":1.5',
                '"size":true',
                '"size":1e300',
                '"icons":{}',
                '"icons":["x"]',
                '"icons":[null]',
                '"icons":[{}]',
                '"icons":[{"src":null}]',
                '"icons":[{"src":"s"},{"src":5}]',
                '"icons":[{"src":"s","mimeType":5}]',
                '"icons":[{"src":"s","sizes":"48x48"}]',
                '"icons":[{"src":"s","sizes":[48]}]',
                '"icons":[{"src":"s","theme":"blue"}]',
                '"annotations":"high"',
                '"annotations":[]',
                '"annotations":{"audience":"user"}',
                '"annotations":{"audience":["robot"]}',
                '"annotations":{"audience":[null]}',
                '"annotations":{"priority":"1"}',
                '"annotations":{"priority":1.01}',
                '"annotations":{"priority":-1}',
                '"annotations":{"lastModified":0}',
                '"_meta":[]',
                '"_meta":"m"',
                '"\\u006eame":5',
            )
        ],
    )
    def test_an_item_without_the_schema_s_shape_costs_only_itself(self, bad: str) -> None:
        """Its neighbours stay as they are, and it is counted."""
        found = listed('{"uri":"a","name":"n"}', bad, '{"uri":"b","name":"n","title":null}')
        assert found.items == b'{"uri":"alpha+a","name":"n"},{"uri":"alpha+b","name":"n"}'
        assert (found.count, found.dropped, found.uris) == (2, 1, ("a", "b"))
        found = templates(
            '{"uriTemplate":"a","name":"n"}',
            bad.replace('"uri"', '"uriTemplate"') if '"size"' not in bad else "{}",
            '{"uriTemplate":"b","name":"n"}',
        )
        assert (found.count, found.dropped, found.uris) == (2, 1, ("a", "b"))

    @pytest.mark.parametrize(
        "bad",
        ["null", "5", "[]", "{}"]
        + [
            f'{{"uri":"x",{members}}}'
            for members in (
                '"mimeType":"m"',
                '"text":null',
                '"text":5',
                '"blob":5',
                '"text":{}',
                '"text":"t","blob":5',
                '"text":[],"blob":"AA=="',
                '"text":"t","mimeType":5',
                '"text":"t","_meta":[]',
                '"text":"t","uri":5',
            )
        ],
    )
    def test_contents_without_the_schema_s_shape_cost_only_themselves(self, bad: str) -> None:
        """Whether or not there is a URI to give them."""
        good = '{"uri":"a","text":"t"}', '{"uri":"b","blob":"not base64!","text":null}'
        for asked in (None, "y"):
            found = read(good[0], bad, good[1], asked=asked)
            assert found.uris == ("a", "b")
            assert found.body == (
                b'"contents":[{"uri":"alpha+a","text":"t"},{"uri":"alpha+b","blob":"not base64!"}]'
            )

    def test_contents_that_are_text_and_blob_stay_both(self) -> None:
        """No schema refuses them."""
        both = '"text":"t","blob":"dA=="}'
        assert read('{"uri":"a",' + both).body.decode() == '"contents":[{"uri":"alpha+a",' + both + "]"

    def test_what_comes_out_validates(self) -> None:
        """The official types accept a page, a list of templates and contents that came with nulls."""
        item = '"name":"n","title":null,"mimeType":null,"annotations":{"audience":null},"_meta":null'
        hints = '"resultType":"complete","ttlMs":0,"cacheScope":"private"'
        items = listed(f'{{"uri":"x",{item}}}').items.decode()
        ListResourcesResult.model_validate_json(f'{{"resources":[{items}],{hints}}}')
        items = templates(f'{{"uriTemplate":"x",{item}}}').items.decode()
        ListResourceTemplatesResult.model_validate_json(f'{{"resourceTemplates":[{items}],{hints}}}')
        body = read('{"uri":"x","text":"t","mimeType":null}').body.decode()
        ReadResourceResult.model_validate_json(f"{{{body},{hints}}}")


@pytest.mark.parametrize("bad", ["{x", "a b", "{}", "{default-graph-uri}"])
def test_H03_a_malformed_template_is_dropped_alone(bad: str) -> None:
    """What is not RFC 6570 costs only itself."""
    found = templates(
        *(f'{{"uriTemplate":"{template}","name":"n"}}' for template in ("x://{a}", bad, "y://{+a}"))
    )
    assert found.items == (
        b'{"uriTemplate":"alpha+x://{a}","name":"n"},{"uriTemplate":"alpha+y://{+a}","name":"n"}'
    )
    assert (found.count, found.dropped, found.uris) == (2, 1, ("x://{a}", "y://{+a}"))


def test_what_is_outside_the_native_prefix_is_not_published() -> None:
    """Resources by their URI, templates by their literal head."""
    inside, outside = '{"uri":"file:///srv/docs/a","name":"n"}', '{"uri":"file:///etc/passwd","name":"n"}'
    found = listed(inside, outside, mapping=DOCS)
    assert (found.items, found.dropped) == (b'{"uri":"docs://a","name":"n"}', 1)
    assert found.uris == ("file:///srv/docs/a",)
    inside, outside = (f'{{"uriTemplate":"file:///{below}{{+p}}","name":"n"}}' for below in ("srv/docs/", ""))
    found = templates(inside, outside, mapping=DOCS)
    assert (found.items, found.dropped) == (b'{"uriTemplate":"docs://{+p}","name":"n"}', 1)


@pytest.mark.parametrize(
    ("mapping", "after"),
    [
        (ALPHA, '{"z":1,"ui":{"a":[null],"resourceUri":"ui://alpha/app","b":1E400},"y":null}'),
        (DOCS, '{"z":1,"ui":{"a":[null],"b":1E400},"y":null}'),
        (Mapping("alpha", ""), '{"z":1,"ui":{"a":[null],"resourceUri":"ui://app","b":1E400},"y":null}'),
    ],
    ids=["prefixed", "not published", "no prefix"],
)
def test_the_app_that_shows_a_resource_is_named_in_public_form(mapping: Mapping, after: str) -> None:
    """`_meta.ui.resourceUri` is a URI like any other; beside it all stays as it is."""
    meta = '{"z":1,"ui":{"a":[null],"resourceUri":"ui://app","b":1E400},"y":null}'
    uri = mapping.native_prefix + "x"
    found = listed(f'{{"uri":"{uri}","name":"n","_meta":{meta}}}', mapping=mapping)
    assert found.items.decode() == f'{{"uri":"{mapping.public(uri)}","name":"n","_meta":{after}}}'
    body = read(f'{{"uri":"{uri}","text":"","_meta":{meta}}}', mapping=mapping).body.decode()
    assert body == f'"contents":[{{"uri":"{mapping.public(uri)}","text":"","_meta":{after}}}]'


def test_the_app_is_found_under_any_spelling_of_the_name() -> None:
    """An escaped member name is the same name, so no native URI slips through."""
    found = listed('{"uri":"x","name":"n","_m\\u0065ta":{"\\u0075i":{"resource\\u0055ri":"ui://app"}}}')
    assert found.items == b'{"uri":"alpha+x","name":"n","_meta":{"ui":{"resourceUri":"ui://alpha/app"}}}'


@pytest.mark.parametrize(
    "meta", ["{}", '{"x":5}', '{"ui":5}', '{"ui":{}}', '{"ui":{"resourceUri":5}}', '{"ui":null}']
)
def test_other_metadata_stays(meta: str) -> None:
    """What is no app is not touched."""
    found = listed(f'{{"uri":"x","name":"n","_meta":{meta}}}')
    assert found.items.decode() == f'{{"uri":"alpha+x","name":"n","_meta":{meta}}}'


class TestContentsWithoutUsableUri:
    @pytest.mark.parametrize(
        "item", ['{"text":"t"}', '{"uri":null,"text":"t"}', '{"uri":"file:///mnt/a","text":"t"}']
    )
    def test_they_get_the_uri_that_was_asked_for(self, item: str) -> None:
        """What comes without a URI, or under one that is not published, is still what was asked for."""
        found = read(item, mapping=DOCS, asked="file:///srv/docs/a")
        assert json.loads(b"{" + found.body + b"}") == {"contents": [{"uri": "docs://a", "text": "t"}]}
        assert found.uris == ("file:///srv/docs/a",)

    def test_without_it_they_are_left_out(self) -> None:
        """What has no URI, and gets none, cannot be shown."""
        found = read('{"text":"t"}', '{"uri":"x","text":"u"}')
        assert (found.body, found.count) == (b'"contents":[{"uri":"alpha+x","text":"u"}]', 1)

    @pytest.mark.parametrize("items", [['{"text":"t"}'], ["null"], ["5", "{}"]])
    def test_an_answer_is_never_emptied(self, items: list[str]) -> None:
        """No empty contents are made of a bad answer: that would say something else."""
        with pytest.raises(ValueError, match="contents"):
            read(*items)

    def test_empty_contents_are_the_upstream_s_own_word(self) -> None:
        """They are passed on."""
        assert read(more=',"x":1') == Contents(b'"contents":[],"x":1', 0, ())


@pytest.mark.parametrize(
    "result",
    [
        {"resources": Raw(b"5")},
        {"resources": Raw(b'{"uri":"x"}')},
        {"resources": Raw(b'"x"')},
        {"nextCursor": Raw(b"5")},
        {"nextCursor": Raw(b"{}")},
        {"resources": Raw(b"[" * 100_000)},
        {"resources": Raw(b'[{"uri":"x","name":"n"},]')},
        {"resources": Raw(b'[{"uri":"\\x","name":"n"}]')},
        {"resources": Raw(b'[{"uri":"\xff","name":"n"}]')},
        {"resources": Raw(b"")},
    ],
    ids=lambda result: str({name: bytes(raw)[:20] for name, raw in result.items()}),
)
def test_invariant_12_a_page_that_cannot_be_read_is_a_bad_reply(result: dict[str, Raw]) -> None:
    """It raises ValueError and nothing else, however deep or broken it is."""
    with pytest.raises(ValueError, match=r"resources|nextCursor|UTF-8"):
        page(result, Method.LIST, ALPHA)


@pytest.mark.parametrize("raw", [None, b"null", b"5", b'{"uri":"x"}', b"[" * 100_000, b'[{"uri":"x"'])
def test_a_read_without_contents_is_a_bad_reply(raw: bytes | None) -> None:
    """Missing, null, no list, too deep or cut off: ValueError."""
    with pytest.raises(ValueError, match="contents"):
        contents({} if raw is None else {"contents": Raw(raw)}, ALPHA)


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
icons = st.fixed_dictionaries(
    {"src": st.text() | any_json},
    optional={"sizes": st.lists(st.text() | any_json, max_size=2) | any_json, "theme": any_json},
)
annotations = st.fixed_dictionaries(
    {},
    optional={
        "audience": st.lists(st.sampled_from(["user", "assistant", "robot", None]), max_size=2) | any_json,
        "priority": st.floats(-0.5, 1.5) | st.integers(-1, 2) | any_json,
        "lastModified": any_json,
    },
)


def odd(uri: str) -> st.SearchStrategy[Any]:
    """Items that are almost right, and any JSON."""
    return any_json | st.fixed_dictionaries(
        {uri: st.text() | any_json, "name": st.text() | any_json},
        optional={
            "title": st.text() | any_json,
            "description": st.none() | st.text() | any_json,
            "mimeType": st.none() | st.text() | any_json,
            "icons": st.lists(icons | any_json, max_size=2) | any_json,
            "annotations": annotations | any_json,
            "size": st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_json,
            "_meta": st.dictionaries(st.text(max_size=3), any_json, max_size=2) | any_json,
            "text": st.text() | any_json,
            "blob": st.text() | any_json,
        },
    )


SURFACES = {
    Method.LIST: ("resources", "uri", {"name": "n", "x": [None]}),
    Method.TEMPLATES: ("resourceTemplates", "uriTemplate", {"name": "n", "x": [None]}),
    Method.READ: ("contents", "uri", {"text": "t", "x": [None]}),
}


@settings(deadline=None)
@given(st.data(), st.sampled_from(list(SURFACES)), st.integers(0, 4))
def test_invariant_12_odd_items_never_spoil_a_page(data: st.DataObject, method: Method, place: int) -> None:
    """What comes out is valid by the official types, has public URIs, and good items stay."""
    name, where, members = SURFACES[method]
    items = data.draw(st.lists(odd(where), max_size=4))
    items.insert(place, {where: "good://1", **members})
    given = {name: Raw(json.dumps(items).encode())}
    if method is Method.READ:
        body = contents(given, ALPHA).body
    else:
        found = page(given, method, ALPHA)
        body = f'"{name}":['.encode() + found.items + b"]"
        assert found.count + found.dropped == len(items)
    result = json.loads(b"{" + body + b"}")
    assert {where: "alpha+good://1", **members} in result[name]
    assert all(item[where].startswith(("alpha+", "ui://alpha/")) for item in result[name])
    validate_server_result(
        method, "2026-07-28", {**result, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    )


@pytest.mark.parametrize(
    ("data", "asked", "after"),
    [
        pytest.param(None, None, None, id="none"),
        pytest.param("5", None, "5", id="no object"),
        pytest.param('{"k":1E400}', "alpha+x", '{"k":1E400}', id="no uri"),
        pytest.param('{"uri":5}', "alpha+x", '{"uri":5}', id="uri is no text"),
        pytest.param(
            '{"a":1,"uri":"x://1","b":null}', None, '{"a":1,"uri":"alpha+x://1","b":null}', id="H22"
        ),
        pytest.param('{"uri":"x://1"}', "ALPHA+x://1", '{"uri":"ALPHA+x://1"}', id="H22 as it was asked"),
        pytest.param(
            '{"uri":"ui://1"}', "alpha+ui://1", '{"uri":"alpha+ui://1"}', id="H22 ui as it was asked"
        ),
        pytest.param('{"uri":"x://2"}', "alpha+x://1", '{"uri":"alpha+x://2"}', id="another uri"),
    ],
)
def test_the_uri_of_an_error_is_public(data: str | None, asked: str | None, after: str | None) -> None:
    """`data.uri` is rewritten, in the asker's own spelling where it is what was asked for; the rest stays."""
    found = error_data(None if data is None else data.encode(), ALPHA, asked)
    assert found == (None if after is None else after.encode())


@pytest.mark.parametrize(
    "data", [b'{"a":' + b"[" * 100_000, b'{"uri":"x"', b'{"uri":"\\x"}'], ids=["deep", "cut", "escape"]
)
def test_error_data_that_cannot_be_read_is_a_bad_reply(data: bytes) -> None:
    """It raises ValueError and nothing else."""
    with pytest.raises(ValueError, match=r"error\.data"):
        error_data(data, ALPHA)


@pytest.mark.parametrize(("asked", "after"), [("docs://a", b'{"uri":"docs://a","k":1}'), (None, b'{"k":1}')])
def test_an_error_never_names_what_is_not_published(asked: str | None, after: bytes) -> None:
    """A native URI without a public form gives way to what was asked for, or goes."""
    assert error_data(b'{"uri":"file:///mnt/a","k":1}', DOCS, asked) == after


def item(number: int, more: str = "") -> str:
    return f'{{"uri":"x:{number}","name":"n"{more}}}'


def test_a_long_page_comes_out_like_a_short_one() -> None:
    """In order, whole, without the items that are wrong or not published, wherever they stand."""
    mapping = Mapping("docs", "docs:", "x:")
    given = [item(number, f',"description":"{"d" * 100}"') for number in range(3500)]
    expected = b",".join(text.encode().replace(b'"x:', b'"docs:') for text in given)
    for place in (0, 999, 1000, 2345, 3500):
        found = listed(*given[:place], "{}", '{"uri":"y:1","name":"n"}', *given[place:], mapping=mapping)
        assert found.items == expected
        assert (found.count, found.dropped) == (3500, 2)
        assert found.uris == tuple(f"x:{number}" for number in range(3500))


def test_long_contents_come_out_like_short_ones() -> None:
    """A content without a URI gets the one that was asked for, in whichever portion."""
    given = [f'{{"text":"{"t" * 100}"}}'] * 2500
    found = read(*given, asked="x:1")
    assert json.loads(b"{%b}" % found.body)["contents"] == [
        json.loads(one) | {"uri": "alpha+x:1"} for one in given
    ]
    assert (found.count, found.uris) == (2500, ("x:1",) * 2500)


def test_the_length_of_a_list_is_limited() -> None:
    """As many items as allowed pass; one more, and the page is a bad reply."""
    assert listed(*[item(1)] * MAX_ITEMS).count == MAX_ITEMS
    with pytest.raises(ValueError, match=f"more than {MAX_ITEMS} items"):
        listed(*[item(1)] * (MAX_ITEMS + 1))
    with pytest.raises(ValueError, match=f"more than {MAX_ITEMS} items"):
        read(*["1"] * (MAX_ITEMS + 1))


@pytest.mark.parametrize("good", [0, 20], ids=["alone", "among-good-ones"])
def test_the_number_of_wrong_items_is_limited(good: int) -> None:
    """So many are left out one by one; with one more there is no end to it, and the page is a bad reply."""
    given = [*["{}"] * 50, *[item(1)] * good]
    found = listed(item(1), *given * (MAX_REFUSED // 50))
    assert found.dropped == MAX_REFUSED
    with pytest.raises(ValueError, match=f"more than {MAX_REFUSED} items"):
        listed(item(1), *given * (MAX_REFUSED // 50), "{}")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ('{"values":[]}', '{"values":[]}'),
        ('{ "values":["\\u0061"],"n":1.10 }', '{"values":["\\u0061"],"n":1.10}'),
        ('{"total":3.0,"values":["a"],"hasMore":true}', '{"total":3.0,"values":["a"],"hasMore":true}'),
        ('{"values":["a"],"total":null,"hasMore":null,"n":null}', '{"values":["a"],"n":null}'),
        ('{"values":["file:///a"]}', '{"values":["file:///a"]}'),
    ],
)
def test_a_completion_comes_out_as_it_went_in(given: str, shown: str) -> None:
    """No value is a URI, unknown members survive byte for byte, nulls of optional members are dropped."""
    body = completion(members(f'{{"x":[1E2],"completion":{given}}}'))
    assert body == f'"x":[1E2],"completion":{shown}'.encode()
    validate_server_result(
        "completion/complete", "2026-07-28", {"resultType": "complete", **json.loads(b"{%b}" % body)}
    )


def test_more_values_than_the_schema_allows_are_cut() -> None:
    """The first of them stay, and there are more."""
    given = json.dumps({"values": [str(n) for n in range(MAX_VALUES + 1)], "hasMore": False, "total": 101})
    found = json.loads(b"{%b}" % completion(members(f'{{"completion":{given}}}')))["completion"]
    assert found == {"values": [str(n) for n in range(MAX_VALUES)], "hasMore": True, "total": 101}


@pytest.mark.parametrize(
    "result",
    [
        "{}",
        '{"completion":null}',
        '{"completion":[]}',
        '{"completion":{}}',
        '{"completion":{"values":null}}',
        '{"completion":{"values":["a",1]}}',
        '{"completion":{"values":["a"],"total":1.5}}',
        '{"completion":{"values":["a"],"total":"1"}}',
        '{"completion":{"values":["a"],"hasMore":"no"}}',
    ],
)
def test_a_completion_of_another_shape_is_a_bad_reply(result: str) -> None:
    """Strict clients would refuse it whole."""
    with pytest.raises(ValueError, match="completion"):
        completion(members(result))
