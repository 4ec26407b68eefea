"""Runs an engine's server with its other processes forked: `python -P forked.py MODULE ARGUMENTS...`.

Both engines have new interpreters started for them (`spawn`), for the sake of GPUs, and each imports the engine again:
half of a server's start on a CPU.
"""

import multiprocessing.context
import os
import runpy
import socket
import sys
from contextlib import suppress
from pathlib import Path


def close_port() -> None:
    """Closes what a new interpreter would not have: the server's port, which would stay open after its end."""
    for file in [*Path("/proc/self/fd").iterdir()]:
        with suppress(OSError):  # of files that are no sockets
            end = socket.socket(fileno=os.dup(int(file.name)))
            if end.family in (socket.AF_INET, socket.AF_INET6):
                os.close(int(file.name))
            end.close()


if __name__ == "__main__":
    os.register_at_fork(after_in_child=close_port)
    # Both engines insist on `spawn`, whatever their settings.
    contexts = vars(multiprocessing.context)["_concrete_contexts"]
    contexts["spawn"] = contexts["fork"]
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
