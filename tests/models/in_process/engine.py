"""The tiny model in the engine of this environment, in this process."""

import importlib.util
import os
from functools import cache
from typing import Any

from memagent.threads import run_sync
from memagent_engines.in_process import EngineModel
from memagent_engines.sglang import SglangModel, _Sglang
from memagent_engines.vllm import VllmModel, _Vllm

ENGINE = "vllm" if importlib.util.find_spec("vllm") else "sglang"
MODEL: type[EngineModel] = {"vllm": VllmModel, "sglang": SglangModel}[ENGINE]
WINDOW = 2048
# As `tests.engines.commands` starts servers with the tiny model.
EACH: dict[str, dict[str, Any]] = {
    "vllm": {
        "dtype": "float32",
        "enforce_eager": True,
        "distributed_executor_backend": "uni",
        "kv_cache_memory_bytes": 2**28,
        "max_num_batched_tokens": 131072,
    },
    "sglang": {
        "dtype": "float32",
        "device": "cpu",
        "attention_backend": "torch_native",
        "mem_fraction_static": 0.2,
        "max_total_tokens": 2**18,
        "random_seed": 0,
        "sleep_on_idle": True,
    },
}
SETTINGS = EACH[ENGINE]
SIZE = {"vllm": "kv_cache_memory_bytes", "sglang": "max_total_tokens"}[ENGINE]
"""The setting for the size of the cache."""


def open_tiny(**options: Any) -> EngineModel:
    return MODEL(os.environ["MODEL_FOLDER"], **{"window": WINDOW, **SETTINGS, **options})


def unfinished(engine: Any) -> int:
    """How many requests an engine works on."""
    if isinstance(engine, _Sglang):
        return len(engine._replies)
    return engine._engine.get_num_unfinished_requests()


@cache
def keep_running() -> list[object]:
    """Keeps the engine until the process ends; what is returned grows with each reply that it is asked for."""
    kind: Any = {"vllm": _Vllm, "sglang": _Sglang}[ENGINE]
    drawn, draw = list[object](), kind.draw

    async def counted(engine: Any, *args: Any) -> Any:
        drawn.append(None)
        return await draw(engine, *args)

    setattr(kind, draw.__name__, counted)
    run_sync(open_tiny().window())
    return drawn
