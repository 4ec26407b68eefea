"""The `memagent-train` command: `main` runs it. Exit codes are memagent's (`memagent.cli.exits`)."""

from memagent.cli import launch

__all__ = ["main"]


def main() -> None:
    """Runs the command line and ends the process with a documented exit code."""
    launch("memagent_train.cli.app")
