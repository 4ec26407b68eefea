"""Runs llama.cpp's server until it is ended: python llama_server.py FOLDER WINDOW PORT KEY.

In the venv of the engine `llamacpp`, whose wheel holds the server as a library. FOLDER has one GGUF file.
"""

import signal
import sys
from pathlib import Path
from typing import Any


def main(folder: str, window: str, port: str, key: str) -> None:
    """Starts it, and waits for a signal."""
    import xllamacpp  # pyright: ignore[reportMissingImports]

    params: Any = xllamacpp.CommonParams()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    (weights,) = Path(folder).glob("*.gguf")
    params.model.path, params.model_alias = str(weights), {"smol"}
    params.n_parallel, params.n_ctx = 2, 2 * int(window)  # each of two slots gets half
    params.port, params.api_keys = int(port), [key]
    params.cpuparams.n_threads = 1
    server: Any = xllamacpp.Server(params)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    print(server.listening_address, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
