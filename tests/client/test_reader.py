"""What can be asked of any source: pages, walks and their bounds, reads and their rounds."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from mcp_federator.client import (
    InputRequest,
    InputRequiredError,
    ListTooLongError,
    Missing,
    Reader,
    ReadResult,
    Scope,
    TooManyRoundsError,
    UpstreamFailure,
)
from mcp_federator.model import ANYONE, Answer, Caller, Completion, Hint, Method, Query, Retry, Served

PUBLIC = Hint(60_000, Scope.PUBLIC)
ASKS = {"who": {"method": "elicitation/create", "params": {"message": "who?", "n": 1}}}


class Said:
    """A source that says one answer after the other; its last one stays."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Query, Caller]] = []

    async def fetch(self, query: Query, caller: Caller) -> Answer:
        self.asked.append((query, caller))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @property
    def queries(self) -> list[Query]:
        return [query for query, _ in self.asked]


def listed(*uris: str, cursor: str | None = None, **more: Any) -> Answer:
    items = [{"uri": uri, "name": uri.upper()} for uri in uris]
    body = json.dumps(items)[1:-1].encode()
    return Answer(body, more.pop("hint", PUBLIC), next_cursor=cursor, count=len(uris), **more)


def contents(text: str = "text", **more: Any) -> Answer:
    return Answer(b'"contents":[{"uri":"x:1","text":"%b"}],"odd":1.50' % text.encode(), PUBLIC, **more)


def asking(requests: object = ASKS, state: str | None = '"s\\u0041"') -> Answer:
    """An interim answer; the state is JSON text."""
    members = [] if requests is None else [f'"inputRequests":{json.dumps(requests)}']
    members += [] if state is None else [f'"requestState":{state}']
    return Answer(",".join(members).encode(), Hint(0, Scope.PRIVATE), interim=True)


def ask(*answers: Answer, how: Callable[[Reader], Awaitable[Any]]) -> tuple[Any, Said]:
    """What a reader of these answers makes of them, and what it asked."""
    source = Said(*answers)

    async def body() -> Any:
        return await how(Reader(source))

    return asyncio.run(body()), source


def test_list_is_the_first_page() -> None:
    """One query, without a cursor, whatever follows."""
    resources, source = ask(listed("x:1", "x:2", cursor="more"), how=lambda reader: reader.list())
    assert [(each.uri, each.name) for each in resources] == [("x:1", "X:1"), ("x:2", "X:2")]
    assert source.asked == [(Query(Method.LIST), ANYONE)]


@pytest.mark.parametrize("cursor", [None, "", "more", "ü\n"])
def test_a_page_begins_at_its_cursor(cursor: str | None) -> None:
    """Any text is one, the empty one too; None is the first page."""
    page, source = ask(listed("x:3", cursor="last"), how=lambda reader: reader.list_page(cursor))
    assert source.queries == [Query(Method.LIST, cursor=cursor)]
    assert (page.next_cursor, page.ttl_ms, page.cache_scope) == ("last", 60_000, Scope.PUBLIC)


def test_a_page_keeps_all_that_is_said() -> None:
    """Unknown members of items and of the result, `_meta`, and what caches said."""
    answer = Answer(
        b'{"uri":"x:1","name":"n","title":"t","description":"d","mimeType":"a/b","size":5.0,"odd":{"a":[1]}}',
        Hint(0, Scope.PRIVATE),
        count=1,
        extra=b'"more":null',
        meta=b'"a/b":{"c":1}',
        served=Served(beyond="cache; hit"),
    )
    page, _ = ask(answer, how=lambda reader: reader.list_page())
    [item] = page.items
    assert (item.title, item.description, item.mime_type, item.size) == ("t", "d", "a/b", 5)
    assert item.members["odd"] == {"a": [1]}
    assert (page.members, page.meta, page.cache_status) == ({"more": None}, {"a/b": {"c": 1}}, "cache; hit")


@pytest.mark.parametrize(
    "more",
    [
        {"incomplete": (Missing("docs", "timeout"),)},
        {"meta": b'"dev.mcp-federator/incomplete":[{"upstream":"docs","reason":"timeout"}]'},
    ],
    ids=["of a federator in this process", "of one elsewhere"],
)
def test_who_is_missing_in_a_federators_list_is_told(more: dict[str, Any]) -> None:
    """The same for both."""
    page, _ = ask(listed("x:1", **more), how=lambda reader: reader.list_page())
    assert page.incomplete == (Missing("docs", "timeout"),)


@pytest.mark.parametrize("given", ["5", '"docs"', '[{"upstream":5}]', "null"])
def test_what_only_looks_like_missing_is_nothing(given: str) -> None:
    """Anybody may write any `_meta`."""
    answer = listed("x:1", meta=b'"dev.mcp-federator/incomplete":%b' % given.encode())
    page, _ = ask(answer, how=lambda reader: reader.list_page())
    assert page.incomplete == ()


def test_list_all_follows_every_page() -> None:
    """In order, empty pages and empty cursors included."""
    resources, source = ask(
        listed("x:1", cursor=""),
        listed(cursor="b"),
        listed("x:2", "x:3"),
        how=lambda reader: reader.list_all(),
    )
    assert [each.uri for each in resources] == ["x:1", "x:2", "x:3"]
    assert [query.cursor for query in source.queries] == [None, "", "b"]


@pytest.mark.parametrize(
    ("bounds", "asked", "why"),
    [
        ({"max_pages": 3}, 3, "after 6 items: the list goes on"),
        ({"max_items": 3}, 2, "after 4 items: the list goes on"),
    ],
)
def test_H07_a_list_without_an_end_is_given_up(bounds: dict[str, int], asked: int, why: str) -> None:
    """With an error, since half a list looks like a whole one."""
    pages = [listed("x:1", "x:2", cursor=str(number)) for number in range(10)]
    source = Said(*pages)
    with pytest.raises(ListTooLongError, match=why):
        asyncio.run(Reader(source).list_all(**bounds))
    assert len(source.asked) == asked


def test_H07_a_list_in_a_circle_is_given_up() -> None:
    """As soon as a cursor comes back."""
    source = Said(listed("x:1", cursor="a"), listed("x:2", cursor="b"), listed("x:3", cursor="a"))
    with pytest.raises(ListTooLongError, match="a cursor that it had given before") as caught:
        asyncio.run(Reader(source).list_all())
    assert (len(source.asked), caught.value.items) == (3, 3)


def test_a_list_may_be_exactly_as_long_as_its_bounds() -> None:
    """The bound is what may be read, not what may be there."""
    resources, _ = ask(
        listed("x:1", cursor="a"),
        listed("x:2"),
        how=lambda reader: reader.list_all(max_pages=2, max_items=2),
    )
    assert len(resources) == 2


def test_templates_are_asked_in_the_same_ways() -> None:
    """First page, a page with hints, all pages."""
    answer = Answer(b'{"uriTemplate":"x:{n}","name":"n","odd":1}', PUBLIC, next_cursor="more", count=1)

    async def how(reader: Reader) -> Any:
        first = await reader.list_templates()
        page = await reader.list_templates_result("c")
        return first, page

    (first, page), source = ask(answer, how=how)
    assert first == page.items
    assert (first[0].uri_template, first[0].members["odd"], page.next_cursor) == ("x:{n}", 1, "more")
    assert source.queries == [Query(Method.TEMPLATES), Query(Method.TEMPLATES, cursor="c")]
    with pytest.raises(ListTooLongError):
        asyncio.run(_walk(Reader(Said(answer))))


async def _walk(reader: Reader) -> None:
    async for _ in reader.template_pages():
        pass


def test_read_is_the_contents() -> None:
    """One query for the URI as it was given."""
    found, source = ask(contents(), how=lambda reader: reader.read("x:a b"))
    assert [(each.uri, each.text, each.blob, each.data) for each in found] == [("x:1", "text", None, b"text")]
    assert source.asked == [(Query(Method.READ, "x:a b"), ANYONE)]


def test_a_blob_is_given_as_it_came_and_as_bytes() -> None:
    """Bytes that are no base64 are a mistake of the server's, told when they are wanted."""
    body = b'"contents":[{"uri":"x:1","blob":"aGk="},{"uri":"x:2","blob":"a"}]'
    (good, bad), _ = ask(Answer(body, PUBLIC), how=lambda reader: reader.read("x:1"))
    assert (good.blob, good.data, bad.blob) == ("aGk=", b"hi", "a")
    with pytest.raises(ValueError, match="base64"):
        _ = bad.data


def test_a_read_result_has_type_hints_and_metadata() -> None:
    """And members nobody knows."""
    result, _ = ask(contents(meta=b'"a":1'), how=lambda reader: reader.read_result("x:1"))
    assert (result.result_type, result.ttl_ms, result.cache_scope) == ("complete", 60_000, Scope.PUBLIC)
    assert (result.meta, result.members["odd"]) == ({"a": 1}, 1.5)
    assert (result.input_requests, result.request_state) == ((), None)


def test_an_interim_result_is_a_result() -> None:
    """It tells what the server wants to know."""
    result, _ = ask(asking(), how=lambda reader: reader.read_result("x:1"))
    assert (result.result_type, result.contents, result.request_state) == ("input_required", (), "sA")
    assert result.input_requests == (InputRequest("who", "elicitation/create", {"message": "who?", "n": 1}),)


def test_read_of_something_that_wants_input_says_so() -> None:
    """The contents are not there, and nothing pretends they are."""
    with pytest.raises(InputRequiredError, match="read_with_input") as caught:
        asyncio.run(Reader(Said(asking())).read("x:1"))
    assert caught.value.result.input_requests[0].key == "who"


@pytest.mark.parametrize(
    "requests", [{"a": 5}, {"a": {"params": {}}}, {"a": {"method": "x", "params": 5}}, {"a": {"method": 1}}]
)
def test_an_input_request_that_is_none_is_a_bad_reply(requests: object) -> None:
    """Nobody is asked what cannot be understood."""
    with pytest.raises(UpstreamFailure, match="bad_reply"):
        asyncio.run(Reader(Said(asking(requests))).read_result("x:1"))


def say_me(request: InputRequest) -> Mapping[str, Any]:
    return {"action": "accept", "content": {"name": "me", "for": request.key}}


async def say_me_later(request: InputRequest) -> Mapping[str, Any]:
    await asyncio.sleep(0)
    return say_me(request)


@pytest.mark.parametrize("handler", [say_me, say_me_later])
def test_input_is_given_round_by_round(handler: Any) -> None:
    """Answers go back by key, the state as it came, and each round is a query of this caller alone."""
    result, source = ask(
        asking(),
        asking({"a": ASKS["who"], "b": ASKS["who"]}, state=None),
        contents("done"),
        how=lambda reader: reader.read_with_input("x:1", handler),
    )
    assert result.contents[0].text == "done"
    first, second, third = source.queries
    assert first == Query(Method.READ, "x:1", alone=True)
    assert second.retry == Retry(
        b'{"who":{"action":"accept","content":{"name":"me","for":"who"}}}', b'"s\\u0041"'
    )
    assert third.retry is not None
    assert list(json.loads(third.retry.input_responses or b"")) == ["a", "b"]
    assert third.retry.request_state is None
    assert {caller.capabilities for _, caller in source.asked} == {b'{"elicitation":{"form":{}}}'}


def test_a_state_alone_goes_back_without_answers() -> None:
    """Nothing was asked, so nobody is; the server wants to be asked again."""
    result, source = ask(
        asking(None), contents(), how=lambda reader: reader.read_with_input("x:1", _never_asked)
    )
    assert result.result_type == "complete"
    assert source.queries[1].retry == Retry(None, b'"s\\u0041"')


def _never_asked(request: InputRequest) -> Mapping[str, Any]:
    raise AssertionError(request)


def test_a_server_that_asks_for_ever_is_given_up() -> None:
    """After as many rounds as were allowed, with its last word."""
    source = Said(asking())
    with pytest.raises(TooManyRoundsError, match="still wants input after 3 rounds") as caught:
        asyncio.run(Reader(source).read_with_input("x:1", say_me, 3))
    assert len(source.asked) == 4
    assert isinstance(caught.value.result, ReadResult)


def test_as_many_rounds_as_are_allowed_are_given() -> None:
    """The last answer is looked at."""
    result, _ = ask(asking(), asking(), contents(), how=lambda it: it.read_with_input("x:1", say_me, 2))
    assert result.result_type == "complete"


def test_a_handler_that_fails_ends_the_read() -> None:
    """With its own error; nothing more is sent."""
    source = Said(asking(), contents())

    def handler(_: InputRequest) -> Mapping[str, Any]:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        asyncio.run(Reader(source).read_with_input("x:1", handler))
    assert len(source.asked) == 1


def test_a_handler_that_forgets_to_return_is_told() -> None:
    """What it gave is not sent to the server as an answer."""
    source = Said(asking(), contents())

    def handler(_: InputRequest) -> Any:
        return None

    with pytest.raises(TypeError, match="to return a mapping for elicitation/create, found NoneType"):
        asyncio.run(Reader(source).read_with_input("x:1", handler))
    assert len(source.asked) == 1


def test_what_the_handler_can_do_is_declared() -> None:
    """To the server, which asks for nothing else."""
    _, source = ask(
        contents(),
        how=lambda reader: reader.read_with_input("x:1", say_me, capabilities={"roots": {}}),
    )
    assert source.asked[0][1].capabilities == b'{"roots":{}}'


def test_a_reader_of_nothing_says_so() -> None:
    """It is a mistake in the program."""
    with pytest.raises(RuntimeError, match="no connection"):
        asyncio.run(Reader().list())


@pytest.mark.parametrize(
    ("said", "values", "total", "has_more"),
    [
        ('{"values":["a","b"],"total":7,"hasMore":true}', ("a", "b"), 7, True),
        ('{"values":[],"total":0.0}', (), 0, False),
        ('{"values":["a"]}', ("a",), None, False),
    ],
)
def test_a_completion_is_told_whole(
    said: str, values: tuple[str, ...], total: int | None, has_more: bool
) -> None:
    """What the server did not say is None, and there is no more."""
    answer = Answer(f'"completion":{said},"odd":1.50'.encode(), Hint(0, Scope.PRIVATE), meta=b'"k":1')
    found, source = ask(answer, how=lambda reader: reader.complete("x:{n}", "n", "a"))
    assert (found.values, found.total, found.has_more) == (values, total, has_more)
    assert (found.meta, found.members) == ({"k": 1}, {"odd": 1.5})
    assert source.queries == [
        Query(Method.COMPLETE, "x:{n}", completion=Completion(b'{"name":"n","value":"a"}'))
    ]


def test_a_completion_may_have_a_context() -> None:
    """The arguments that are settled, by name."""
    answer = Answer(b'"completion":{"values":[]}', Hint(0, Scope.PRIVATE))
    _, source = ask(answer, how=lambda reader: reader.complete("x:{n}{m}", "n", "", context={"m": "1"}))
    [query] = source.queries
    assert query.completion == Completion(b'{"name":"n","value":""}', b'{"arguments":{"m":"1"}}')
