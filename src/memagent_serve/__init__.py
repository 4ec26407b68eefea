"""The endpoint: an OpenAI-compatible server in front of a model, without the limit of its window.

from memagent import open_model
from memagent_serve import Settings, make_app

app = make_app(open_model("vllm:Qwen/Qwen3-4B"), Settings(keys=("...",)))   # an ASGI application
"""

from __future__ import annotations

from memagent_serve.app import make_app
from memagent_serve.settings import Settings

__all__ = ["Settings", "make_app"]
