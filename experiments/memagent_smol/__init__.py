"""Trains `smol`, a language model of 135M weights, to keep a memory, and measures what that is worth.

What training shows and what it never shows is divided by rules in `vocabulary.py` and `sources.py`.
"""
