"""Loops of several frameworks at one server, played by rules: which of them retain what the work needs."""
