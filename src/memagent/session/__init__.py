"""The tool agent: works with tools in a fixed-size context."""
