"""The `memagent` command: `main` runs it. `memagent.cli.exits` documents the exit codes."""

import codecs
import os
import sys
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path

from memagent.terminal import escape

__all__ = ["launch", "main"]


def main() -> None:
    """Runs the command line and ends the process with a documented exit code."""
    launch("memagent.cli.app")


def launch(module: str) -> None:
    """Runs a module's typer app `app` as `main` does; errors during its import are reported the same way."""
    _open_streams()
    codecs.register_error("escape", escape)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal that can't show a character gets an escape, which JSON has too, not a traceback.
            stream.reconfigure(errors="escape")
    try:
        import_module(module).app()
    except KeyboardInterrupt:
        _leave(130)
    except SystemExit as stop:
        if stop.code in (130, 143):
            _leave(int(stop.code or 0))
        raise


def _open_streams() -> None:
    """Replaces standard streams that were closed when the process started; exits if standard output was."""
    # Files opened later must not get the closed streams' descriptors: stray output would be written to them.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    # None (despite their types) if the stream was closed.
    streams: tuple[object, object] = sys.stdout, sys.stderr
    if streams[1] is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open until the process ends
    if streams[0] is None:
        print("error: standard output is closed", file=sys.stderr)
        raise SystemExit(1)


def _leave(code: int) -> None:
    """Ends the process at once: a thread still waiting for standard input would block a normal exit."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
