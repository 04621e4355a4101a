"""A company handbook: fifty articles, five pages of ten, the same for everybody and good for a minute.

The shape a cache likes best.  Pagination needs the SDK's low-level server, whose handlers see the cursor.
"""

from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from serving import port, serve

CHAPTERS = ("arrival", "hours", "travel", "security", "leaving")
TOPICS = ("overview", "contacts", "checklist", "forms", "dates", "tools", "costs", "limits", "samples", "faq")
PAGE = 10

ARTICLES = {
    f"file:///handbook/{chapter}/{topic}.md": f"# {chapter.title()}: {topic}\n\nWhat we agreed on {topic}.\n"
    for chapter in CHAPTERS
    for topic in TOPICS
}
URIS = list(ARTICLES)


async def list_resources(
    _: ServerRequestContext, params: PaginatedRequestParams | None
) -> ListResourcesResult:
    """One page of articles.  A cursor is the URI that the page begins with."""
    cursor = params.cursor if params else None
    if cursor is not None and cursor not in ARTICLES:
        raise MCPError(INVALID_PARAMS, "This cursor is none of ours")
    start = 0 if cursor is None else URIS.index(cursor)
    page, rest = URIS[start : start + PAGE], URIS[start + PAGE :]
    return ListResourcesResult(
        resources=[
            Resource(uri=uri, name=uri.removeprefix("file:///handbook/"), mime_type="text/markdown")
            for uri in page
        ],
        next_cursor=rest[0] if rest else None,
    )


async def list_templates(
    _: ServerRequestContext, __: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    """The one way all articles are named."""
    article = ResourceTemplate(
        uri_template="file:///handbook/{chapter}/{topic}.md", name="article", mime_type="text/markdown"
    )
    return ListResourceTemplatesResult(resource_templates=[article])


async def read_resource(_: ServerRequestContext, params: ReadResourceRequestParams) -> ReadResourceResult:
    """One article."""
    text = ARTICLES.get(params.uri)
    if text is None:
        raise MCPError(INVALID_PARAMS, "There is no such article", {"uri": params.uri})
    article = TextResourceContents(uri=params.uri, mime_type="text/markdown", text=text)
    return ReadResourceResult(contents=[article])


MINUTE = CacheHint(ttl_ms=60_000, scope="public")

server = Server(
    "handbook",
    version="1.0",
    cache_hints={
        "resources/list": MINUTE,
        "resources/templates/list": MINUTE,
        "resources/read": MINUTE,
        "server/discover": MINUTE,
    },
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
)

if __name__ == "__main__":
    serve("handbook", server.streamable_http_app(), port(9101))
