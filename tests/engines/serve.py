"""Runs a command beside a real server: python -m tests.engines.serve ENGINE [--window N] [--layers N] -- COMMAND...

The command finds the server in MEMAGENT_MODEL and MEMAGENT_BASE_URL, and the model's tokenizer in the folder
that TINY_MODEL names. The server ends with it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.engines import commands, venvs
from tests.engines.servers import EngineServer, ServerDied

FOR_MEASURING = {
    "vllm": {
        # As servers run in earnest: the engine apart from the process that speaks HTTP.
        "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
        # /reset_prefix_cache, so that each pass begins with an empty cache.
        "VLLM_SERVER_DEV_MODE": "1",
    },
    "sglang": {},
}


def deeper(layers: int) -> tuple[str, ...]:
    """vLLM's flags for random weights of so many layers instead of the tiny model's two."""
    cache = commands.CACHED_TOKENS * commands.BYTES_PER_TOKEN * layers // 2
    return (
        *("--load-format", "dummy", "--hf-overrides", json.dumps({"num_hidden_layers": layers})),
        *("--kv-cache-memory-bytes", str(cache)),
    )


def main() -> int:
    """Starts the server, runs the command, and returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=venvs.ENGINES)
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--layers", type=int, help="vllm only; default: the tiny model's 2")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    flags = commands.REPORTING[given.engine]
    if given.layers is not None:
        flags = (*flags, *deeper(given.layers))
    with tempfile.TemporaryDirectory() as folder:
        server = EngineServer(
            given.engine,
            Path(folder) / "log",
            window=given.window,
            flags=flags,
            variables=FOR_MEASURING[given.engine],
        )
        try:
            with server:
                found = {
                    "MEMAGENT_MODEL": f"{given.engine}:{server.model}",
                    "MEMAGENT_BASE_URL": server.url,
                    "TINY_MODEL": str(venvs.tiny_model()),
                }
                return subprocess.run(given.command, env=os.environ | found, check=False).returncode
        except (ServerDied, venvs.NotMade) as error:
            print(error, file=sys.stderr)
            return 1


if __name__ == "__main__":
    sys.exit(main())
