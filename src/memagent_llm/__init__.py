"""`llm read`: a command of the `llm` tool."""
