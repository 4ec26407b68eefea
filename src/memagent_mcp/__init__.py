"""MCP server with tools that read documents: `memagent mcp --root DIR`."""
