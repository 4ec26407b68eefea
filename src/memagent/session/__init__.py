"""The tool agent: works with tools in a context of fixed size."""
