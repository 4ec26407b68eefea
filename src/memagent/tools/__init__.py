"""Tools: their definitions, how they are run, and where they come from."""
