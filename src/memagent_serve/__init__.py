"""The endpoint: an OpenAI-compatible server in front of a model that lifts the limit of its window.

from memagent import open_model
from memagent_serve import Settings, make_app

app = make_app(open_model("vllm:Qwen/Qwen3-4B"), Settings(keys=("...",)))   # an ASGI application
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memagent_serve.app import make_app
    from memagent_serve.settings import Settings

__all__ = ["Settings", "make_app"]
_HOME = {"make_app": "memagent_serve.app", "Settings": "memagent_serve.settings"}


def __getattr__(name: str) -> Any:
    # Loaded on first use: the command line imports this package even if the extra isn't installed.
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'memagent_serve' has no attribute {name!r}")
