"""H14 and H15 at the whole product: numbers that keep their digits, bodies too deep or none at all."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cases.saying import (
    INCOMPLETE,
    LIST,
    READ,
    TEMPLATES,
    beside,
    listed_as,
    read_as,
    said,
)
from tests.instruments.fronted import fronted, run
from tests.instruments.house import body_of, headers_of
from tests.instruments.wire import contents, page, reply, result

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
