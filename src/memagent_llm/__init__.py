"""`llm read`: a command for the `llm` tool."""
