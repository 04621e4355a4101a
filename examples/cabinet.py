"""A cabinet of awkward things: whatever a URI may be and a proxy likes to get wrong.

Opaque URIs, spaces, letters beyond ASCII, dot segments, a URI that the handbook has too, templates with
operators, binary contents and a folder that answers with several contents at once.  All of it is legal.
"""

import base64

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.uri_template import UriTemplate
from mcp_types import (
    INVALID_PARAMS,
    Annotations,
    BlobResourceContents,
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

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
FOLDER = "file:///cabinet/lower drawer/"

THINGS: dict[str, tuple[str, str | bytes]] = {
    "urn:isbn:0451450523": ("text/plain", "A book known by its number."),
    "memo:insights": ("text/markdown", "# Insights\n\nSee file:///cabinet/lower drawer/keys.txt"),
    "file:///handbook/travel/costs.md": ("text/markdown", "A printed copy, with pencil notes in the margin."),
    f"{FOLDER}keys.txt": ("text/plain", "front door, cellar"),
    f"{FOLDER}Ünïcödé & 日本.txt": ("text/plain", "ça marche"),
    "file:///cabinet/a/../b": ("text/plain", "Not the same as file:///cabinet/b."),
    "cabinet:photo?size=1#thumb": ("image/png", PIXEL),
    "ui://panel/index.html": ("text/html", "<p>A panel</p>"),
}
TEMPLATES = [
    UriTemplate.parse(text)
    for text in ("memo:{topic}", "repo://{owner}/{+path}{?ref}", "search:{/where*}{?q,limit}")
]


def content(uri: str, mime_type: str, data: str | bytes) -> TextResourceContents | BlobResourceContents:
    """One thing as the protocol carries it."""
    if isinstance(data, str):
        return TextResourceContents(uri=uri, mime_type=mime_type, text=data)
    return BlobResourceContents(uri=uri, mime_type=mime_type, blob=base64.b64encode(data).decode())


async def list_resources(_: ServerRequestContext, __: PaginatedRequestParams | None) -> ListResourcesResult:
    """Everything on one page, good for ten seconds."""
    things = [
        Resource(
            uri=uri,
            name=uri,
            mime_type=mime_type,
            size=len(data.encode() if isinstance(data, str) else data),
            annotations=Annotations(priority=0.8),
            _meta={"com.example/shelf": {"row": 3, "tags": [None, "awkward"]}},
        )
        for uri, (mime_type, data) in THINGS.items()
    ]
    folder = Resource(uri=FOLDER, name="lower drawer", description="Answers with all it holds")
    return ListResourcesResult(resources=[*things, folder], ttl_ms=10_000, cache_scope="public")


async def list_templates(
    _: ServerRequestContext, __: PaginatedRequestParams | None
) -> ListResourceTemplatesResult:
    """Templates with every kind of operator."""
    templates = [ResourceTemplate(uri_template=each.template, name=each.template) for each in TEMPLATES]
    return ListResourceTemplatesResult(resource_templates=templates, ttl_ms=10_000, cache_scope="public")


async def read_resource(_: ServerRequestContext, params: ReadResourceRequestParams) -> ReadResourceResult:
    """A thing by its exact URI, the folder with all it holds, or what a template's variables say."""
    uri = params.uri
    if uri in THINGS:
        contents = [content(uri, *THINGS[uri])]
    elif uri == FOLDER:
        contents = [content(inside, *THINGS[inside]) for inside in THINGS if inside.startswith(FOLDER)]
    else:
        matches = [values for template in TEMPLATES if (values := template.match(uri)) is not None]
        if not matches:
            raise MCPError(INVALID_PARAMS, "There is no such thing in the cabinet", {"uri": uri})
        contents = [content(uri, "text/plain", repr(matches[0]))]
    return ReadResourceResult(contents=contents, ttl_ms=10_000, cache_scope="public")


server = Server(
    "cabinet",
    version="1.0",
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
)

if __name__ == "__main__":
    serve("cabinet", server.streamable_http_app(), port(9103))
