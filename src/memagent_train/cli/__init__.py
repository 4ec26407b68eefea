"""The `memagent-train` command: `main` runs it. Exit codes are memagent's (`memagent.cli.exits`)."""

from __future__ import annotations

from collections.abc import Callable

from memagent.cli import launch

__all__ = ["main"]


def main() -> None:
    """Runs the command line and ends the process with a documented exit code."""

    def load() -> Callable[[], object]:
        from memagent_train.cli.app import app

        return app

    launch(load)
