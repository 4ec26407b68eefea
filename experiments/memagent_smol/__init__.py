"""Trains `smol`, a language model of 135M weights, to keep a memory, and measures the benefit.

Rules in `vocabulary.py` and `sources.py` separate training data from held-out data.
"""
