"""Tools with a state of their own and a verdict."""
