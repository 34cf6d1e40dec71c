"""The Model Context Protocol: the tools of servers for agents, and graphs as tools for anyone (extra `mcp`)."""

from graphflow.mcp.server import McpServer as McpServer
from graphflow.mcp.serving import serve as serve

__all__ = ("McpServer", "serve")
