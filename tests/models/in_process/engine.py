"""The tiny model in an engine of this process."""

import os
from functools import cache
from typing import Any

from memagent.threads import run_sync
from memagent_engines.vllm import VllmModel, _Vllm

WINDOW = 2048
# As `tests.engines.commands` starts servers with the tiny model.
SETTINGS: dict[str, Any] = {
    "dtype": "float32",
    "enforce_eager": True,
    "distributed_executor_backend": "uni",
    "kv_cache_memory_bytes": 2**28,
    "max_num_batched_tokens": 131072,
}


def open_tiny(**options: Any) -> VllmModel:
    return VllmModel(os.environ["MODEL_FOLDER"], window=WINDOW, **SETTINGS, **options)


@cache
def keep_running() -> list[object]:
    """Keeps the engine until the process ends; what is returned grows with each reply that it is asked for."""
    drawn, draw = list[object](), _Vllm.draw

    async def counted(engine: _Vllm, *args: Any) -> Any:
        drawn.append(None)
        return await draw(engine, *args)

    setattr(_Vllm, draw.__name__, counted)
    run_sync(open_tiny().window())
    return drawn
