"""Servers of which nothing is known, and the OpenAI API itself."""

from __future__ import annotations

from memagent.models.dialects.base import Dialect

PLAIN = Dialect("plain")
"""llama-server, Ollama, TGI, gateways: the fields that all of them know."""
OPENAI = Dialect("openai", limit="max_completion_tokens")
"""The OpenAI API, which refuses `max_tokens` for its newer models."""
