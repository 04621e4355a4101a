"""H13 at the whole product: null, and whatever else a strict client refuses a whole page for."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types.jsonrpc import JSONRPCError

from tests.cases.saying import (
    GOOD,
    INCOMPLETE,
    LIST,
    READ,
    TEMPLATES,
    beside,
    listed_as,
    read_as,
    said,
    valid,
)
from tests.instruments.fronted import SHELF, Clock, fronted, run, shown
from tests.instruments.house import house
from tests.instruments.wire import Wire, page, reply, result

# H13: null, and whatever else a strict client refuses a whole page for.


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


@pytest.mark.parametrize("method", [LIST, TEMPLATES])
def test_H13_a_result_without_any_member_is_an_empty_page(method: str) -> None:
    """`{}` costs nobody anything either; without a hint it is asked for again."""

    async def check() -> None:
        async with (
            Wire({method: result({})}) as odd,
            Wire({method: result(SHELF[method])}) as fine,
            house({"odd": odd.url, "fine": fine.url}, clock=Clock()) as it,
        ):
            for _ in range(2):
                told = await it.page(None, method)
                assert len(shown(told)) == 1
                assert INCOMPLETE not in told.result["_meta"]
                assert told.result["ttlMs"] == 0
            assert (len(odd.calls(method)), len(fine.calls(method))) == (2, 1)

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
