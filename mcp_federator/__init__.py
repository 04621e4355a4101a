"""A caching federating proxy for MCP resources."""

__version__ = "0.1.0"
