"""The endpoint: how clients and operators reach us.

`routes` is the MCP listener as HTTP and `mcp` what is asked over it; `admin` is the operators' listener;
`guard` says who may knock, and `wire` how replies leave.  aiohttp.web lives here.  What may not come in: any
knowledge of an upstream, a cache or a prefix; all of that is behind one `Source`.
"""
