"""Measures a published checkpoint again with the published protocol, and compares the figures."""
