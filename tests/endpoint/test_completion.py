"""`completion/complete` at the MCP listener, in both eras; the source is scripted."""

from typing import Any

import pytest

from mcp_federator.errors import McpError
from mcp_federator.model import Answer, Completion, Era, Hint, Method, Outcome, Query, Scope, Served
from mcp_federator.protocol.vocabulary import LEGACY
from tests.endpoint.door import Door, ScriptedSource, began, message, run

COMPLETE = "completion/complete"
PARAMS = {"ref": {"type": "ref/resource", "uri": "docs+x://{a}"}, "argument": {"name": "a", "value": "v"}}
SUGGESTED = Answer(
    b'"completion":{"values":["v1"],"hasMore":false}',
    Hint(60_000, Scope.PUBLIC),
    served=Served(Outcome.BYPASS, upstreams=("docs",)),
)
ASKED = Query(Method.COMPLETE, "docs+x://{a}", completion=Completion(b'{"name":"a","value":"v"}'))
ABSENT = McpError(-32601, "Method not found: no upstream completes arguments.", status=404)


def counted(door: Door, era: Era, status: str) -> bool:
    series = f'requests_total{{era="{era}",method="{COMPLETE}",status="{status}"}} 1'
    return series in door.metrics.render()[0].decode()


def test_a_modern_client_gets_its_suggestions() -> None:
    """With a type and without hints; the reply says that no cache had part in it."""

    async def body() -> None:
        async with Door(ScriptedSource(SUGGESTED)) as door:
            response = await door.post(message(COMPLETE, PARAMS, id="c"), {"Mcp-Name": None})
            assert (response.status, response.message["id"]) == (200, "c")
            result = response.message["result"]
            assert result.pop("_meta").keys() == {"io.modelcontextprotocol/serverInfo"}
            assert result == {"resultType": "complete", "completion": {"values": ["v1"], "hasMore": False}}
            assert response.header("Cache-Status") == "mcp-federator; fwd=bypass"
            assert door.source.asked == [ASKED]
            assert counted(door, Era.MODERN, "ok")

    run(body())


@pytest.mark.parametrize("version", LEGACY)
def test_a_legacy_client_gets_its_suggestions(version: str) -> None:
    """Within its session, whichever revision that speaks."""

    async def body() -> None:
        async with Door(ScriptedSource(SUGGESTED)) as door:
            response = await (await began(door, version)).ask(COMPLETE, PARAMS)
            assert response.status == 200
            assert response.message["result"] == {"completion": {"values": ["v1"], "hasMore": False}}
            assert door.source.asked == [ASKED]
            assert counted(door, Era.LEGACY, "ok")

    run(body())


@pytest.mark.parametrize(
    "params", [{}, PARAMS | {"ref": {"type": "ref/resource"}}, PARAMS | {"argument": {"name": "a"}}]
)
def test_malformed_params_are_refused(params: dict[str, Any]) -> None:
    """-32602 before anything is asked, with 400 to a modern client."""

    async def body() -> None:
        async with Door(ScriptedSource(SUGGESTED)) as door:
            modern = await door.post(message(COMPLETE, params))
            assert (modern.status, modern.code) == (400, -32602)
            old = await (await began(door)).ask(COMPLETE, params)
            assert (old.status, old.code) == (200, -32602)
            assert door.source.asked == []

    run(body())


def test_H33_the_method_must_be_that_of_the_field() -> None:
    """400 and -32020."""

    async def body() -> None:
        async with Door(ScriptedSource(SUGGESTED)) as door:
            response = await door.post(message(COMPLETE, PARAMS), {"Mcp-Method": "resources/read"})
            assert (response.status, response.code) == (400, -32020)
            assert door.source.asked == []

    run(body())


def test_a_method_that_is_not_declared_is_unknown() -> None:
    """404 and -32601 to a modern client, the code alone to a legacy one."""

    async def body() -> None:
        async with Door(ScriptedSource(ABSENT)) as door:
            modern = await door.post(message(COMPLETE, PARAMS))
            assert (modern.status, modern.code) == (404, -32601)
            old = await (await began(door)).ask(COMPLETE, PARAMS)
            assert (old.status, old.code) == (200, -32601)

    run(body())
