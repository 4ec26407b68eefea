"""Loops of several frameworks at one server, played by rules: which of them keep what the work needs."""
