"""The `memagent` command: `main` runs it. What its exit codes mean is in `memagent.cli.exits`."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper

from memagent.cli.streams import open_streams

__all__ = ["launch", "main"]

SIGNAL_CODES = (130, 143)


def main() -> None:
    """Runs the command line and ends the process with a documented exit code."""
    launch("memagent.cli.app")


def launch(module: str) -> None:
    """Runs the typer app `app` of a module as `main` does; what goes wrong in its import too ends in order."""
    open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that cannot show a character gets its escape, not a traceback.
            stream.reconfigure(errors="backslashreplace")
    try:
        import_module(module).app()
    except KeyboardInterrupt:
        _leave(130)
    except SystemExit as stop:
        if stop.code in SIGNAL_CODES:
            _leave(int(stop.code or 0))
        raise


def _leave(code: int) -> None:
    """Ends the process at once: a thread that still waits for standard input would hold a normal exit up."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
