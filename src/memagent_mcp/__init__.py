"""Reading documents as tools of an MCP server: `memagent mcp --root DIR`."""
