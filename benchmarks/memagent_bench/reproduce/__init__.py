"""Repeats the published measurement of a checkpoint with the published protocol, and compares the figures."""
