"""Runs an engine's server with its other processes forked: `python -P forked.py MODULE ARGUMENTS...`.

Both engines have new interpreters started for them (`spawn`), for the sake of GPUs, and each imports the engine again:
half of a server's start on a CPU.
"""

import multiprocessing.context
import runpy
import sys

if __name__ == "__main__":
    # Both engines insist on `spawn`, whatever their settings.
    contexts = vars(multiprocessing.context)["_concrete_contexts"]
    contexts["spawn"] = contexts["fork"]
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
