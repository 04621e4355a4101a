"""Bodies on their way in: how large, how packed, in how many pieces, or not at all."""

import gzip
import logging
import tracemalloc
import zlib

import pytest

from mcp_federator import config
from tests.endpoint.door import (
    Door,
    compact,
    once,
    read,
    read_fields,
    request,
    run,
    settle,
)

pytestmark = pytest.mark.usefixtures("each_loop")

MIB = 1 << 20


# Size


def padded(size: int) -> bytes:
    """A good read whose body has exactly `size` bytes."""
    sent = compact(read())
    return sent[:-1] + b" " * (size - len(sent)) + b"}"


def chunked(body: bytes) -> bytes:
    pieces = [body[start : start + 65_536] for start in range(0, len(body), 65_536)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in [*pieces, b""])


def sized(body: bytes, how: str) -> bytes:
    fields = read_fields()
    if how == "length":
        return request(body, fields)
    if how == "chunked":
        framed = chunked(body)
        return request(b"", {**fields, "Content-Length": None, "Transfer-Encoding": "chunked"}) + framed
    if how == "deflate":
        return request(zlib.compress(body), {**fields, "Content-Encoding": "deflate"})
    return request(gzip.compress(body), {**fields, "Content-Encoding": "gzip"})


@pytest.mark.parametrize("how", ["length", "chunked", "gzip", "deflate"])
@pytest.mark.parametrize(
    ("size", "status"), [(1000, 200), (MIB, 200), (MIB + 1, 413), (1_100_000, 413), (5_000_000, 413)]
)
def test_H37_body_limit(how: str, size: int, status: int) -> None:
    """Exactly the limit passes; beyond it 413 with a JSON-RPC error, however the body comes."""

    async def body() -> None:
        async with Door() as door:
            client = await door.connect()
            await client.send(sized(padded(size), how))
            response = await client.receive()
            assert response.status == status
            assert response.code == (None if status == 200 else -32600)
            assert len(door.source.asked) == (1 if status == 200 else 0)
            # What was sent is read to its end, and the connection serves on, but after a chunked body.
            if how == "chunked":
                assert await client.at_end()
                return
            await client.send(request(read()))
            assert (await client.receive()).status == 200

    run(body())


def test_H37_limit_is_a_setting() -> None:
    """`server.max_request_bytes` is the limit, and the error names it."""
    door = Door(settings=config.Server(max_request_bytes=config.Size(1000)))
    response = run(once(request(padded(1001), read_fields()), door=door))
    assert response.status == 413
    assert "max_request_bytes" in response.message["error"]["message"]


def test_H37_zeros_inflate_no_further_than_the_limit() -> None:
    """50 MB of zeros in 50 kB are refused after 1 MiB of them, and never held."""
    zeros = request(gzip.compress(bytes(50_000_000)), {**read_fields(), "Content-Encoding": "gzip"})
    assert len(zeros) < 60_000
    tracemalloc.start()
    try:
        response = run(once(zeros))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (response.status, response.code) == (413, -32600)
    assert peak < 8 * MIB


@pytest.mark.parametrize(
    "broken",
    [b"no gzip", gzip.compress(b"{}")[:-3], gzip.compress(b"{}") + b"rest", b""],
    ids=["other", "cut", "rest", "empty"],
)
def test_H37_body_that_does_not_inflate(broken: bytes) -> None:
    """400 and -32700, and the connection serves on."""

    async def body() -> None:
        async with Door() as door:
            client = await door.connect()
            await client.send(request(broken, {**read_fields(), "Content-Encoding": "gzip"}))
            response = await client.receive()
            assert (response.status, response.code) == (400, -32700)
            await client.send(request(read()))
            assert (await client.receive()).status == 200

    run(body())


@pytest.mark.parametrize(("length", "status"), [(None, 200), (2_000_000, 413)])
def test_H37_body_on_request(length: int | None, status: int) -> None:
    """A client that asks before it sends is told to go on, or that it need not."""

    async def body() -> None:
        async with Door() as door:
            sent = compact(read())
            client = await door.connect()
            headers = {**read_fields(), "Expect": "100-continue", "Content-Length": str(length or len(sent))}
            await client.send(request(b"", headers))
            if status == 200:
                assert (await client.receive()).status == 100
                await client.send(sent)
            assert (await client.receive()).status == status
            await client.close()

    run(body())


def test_http_1_0_is_not_told_to_go_on() -> None:
    """Its clients know no interim response, whatever they say they expect."""

    async def body() -> None:
        async with Door() as door:
            sent = compact(read())
            headers = {**read_fields(), "Expect": "100-continue", "Content-Length": str(len(sent))}
            client = await door.connect()
            await client.send(request(b"", headers).replace(b"HTTP/1.1", b"HTTP/1.0", 1) + sent[:1])
            while not door.endpoint.body_bytes:
                await settle()
            await client.send(sent[1:])
            assert (await client.receive()).status == 200

    run(body())


def test_body_in_many_pieces() -> None:
    """A body that comes byte by byte is the same body."""
    sent = request(read())
    cut = sent.index(b"\r\n\r\n") + 4
    assert run(once(sent[:cut], *(sent[n : n + 1] for n in range(cut, len(sent))), asked=1)).status == 200


def test_body_that_never_comes() -> None:
    """A client that does not send its body gets 408 after `request_timeout`, and waits no longer."""
    door = Door(settings=config.Server(request_timeout=config.Duration(0.01)))
    response = run(once(request(b"", {**read_fields(), "Content-Length": "10"}), door=door))
    assert (response.status, response.code) == (408, -32600)


@pytest.mark.parametrize("before", [b"", request(read())], ids=["alone", "behind another"])
def test_broken_chunks(before: bytes) -> None:
    """A body whose chunks turn out to be none is 400 at once, and the connection's last."""

    async def body() -> None:
        async with Door() as door:
            headers = {**read_fields(), "Content-Length": None, "Transfer-Encoding": "chunked"}
            client = await door.connect()
            await client.send(before + request(b"", headers) + b"2\r\n{}\r\n")
            if before:
                assert (await client.receive()).status == 200
            while not door.endpoint.body_bytes:
                await settle()
            await client.send(b"xyz\r\n")
            response = await client.receive()
            assert (response.status, response.code) == (400, -32700)
            assert await client.at_end()
            assert len(door.source.asked) == bool(before)
            assert len(door.told) == 1 + bool(before)

    run(body())


def test_broken_chunks_behind_a_refusal(caplog: pytest.LogCaptureFixture) -> None:
    """What is read only to be thrown away ends the connection where it breaks, and is no trouble of ours."""

    async def body() -> None:
        async with Door() as door:
            headers = {"Content-Length": None, "Transfer-Encoding": "chunked"}
            client = await door.connect()
            await client.send(request(b"", headers, path="/elsewhere") + b"2\r\n{}\r\n")
            assert (await client.receive()).status == 404
            await client.send(b"xyz\r\n")
            assert await client.at_end()
            assert len(door.told) == 1

    run(body())
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


@pytest.mark.parametrize("how", ["length", "chunked"])
def test_H38_client_that_leaves_within_its_body(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """A body cut off by its client is no trouble of ours."""

    async def body() -> None:
        async with Door() as door:
            client = await door.connect()
            await client.send(sized(padded(100_000), how)[:50_000])
            await client.close()
            while not door.told:
                await settle()
            assert door.told[0]["status"] == "client_error"
            assert door.source.asked == []

    run(body())
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_bodies_that_arrive_have_a_budget() -> None:
    """Beyond 64 of the largest bodies, all together, one that still arrives is 503; whole ones are not."""

    async def body() -> None:
        async with Door(settings=config.Server(max_request_bytes=config.Size(1000))) as door:
            sent = request(padded(1000), read_fields())
            begun = [await door.connect() for _ in range(64)]
            for client in begun:
                await client.send(sent[:-10])
            while door.endpoint.body_bytes < 64 * 990:
                await settle()
            assert (await door.ask(sent)).status == 200
            late = await door.connect()
            await late.send(sent[:-10])
            # What is left of the budget, and one byte.
            response = await late.receive()
            assert (response.status, response.code) == (503, -32603)
            assert response.message["error"]["data"] == {"reason": "overloaded"}
            assert response.header("Retry-After") == "1"
            for client in begun[1:]:
                await client.send(sent[-10:])
                assert (await client.receive()).status == 200
            assert door.endpoint.body_bytes == 990

    run(body())
