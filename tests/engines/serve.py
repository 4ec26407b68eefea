"""Runs a command beside a real server: python -m tests.engines.serve ENGINE [OPTIONS] -- COMMAND...

The command finds the server in MEMAGENT_MODEL and MEMAGENT_BASE_URL, and the model's tokenizer in the folder
that MODEL_FOLDER names. The server ends with it.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.engines import commands, venvs
from tests.engines.servers import EngineServer, ServerDied

from memagent.models.dialects import DIALECTS
from memagent_engines.smol import smol_folder

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
    parser.add_argument(
        "--smol", choices=("bfloat16", "float32"), help="serve `smol`, not the tiny model"
    )
    parser.add_argument(
        "--speculate",
        action="store_true",
        help="start a second server with n-gram speculation; MEMAGENT_BASE_URL then names both",
    )
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    flags = commands.REPORTING[given.engine]
    try:
        if given.layers is not None:
            flags = (*flags, *deeper(given.layers))
        if given.smol:
            flags = (*flags, *commands.smol(given.engine, given.smol))
        started = [flags]
        if given.speculate:
            speculation = DIALECTS[given.engine].speculation
            assert speculation
            started.append((*flags, *shlex.split(speculation.flags)))
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            servers = [
                stack.enter_context(
                    EngineServer(
                        given.engine,
                        folder / f"log{number}",
                        window=given.window,
                        flags=flags,
                        variables=FOR_MEASURING[given.engine],
                    )
                )
                for number, flags in enumerate(started)
            ]
            found = {
                "MEMAGENT_MODEL": f"{given.engine}:{commands.MODEL}",
                "MEMAGENT_BASE_URL": ",".join(server.url for server in servers),
                "MODEL_FOLDER": str(smol_folder() if given.smol else venvs.tiny_model()),
            }
            return subprocess.run(given.command, env=os.environ | found, check=False).returncode
    except (ServerDied, venvs.NotMade) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
