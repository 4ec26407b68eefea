"""Shared by the training commands: how they end, and how to resume them."""

import os
import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from memagent.cli.exits import Interrupted, Outcome, report_errors
from memagent.cli.options import Display, chosen_display


@dataclass
class Going(Outcome):
    """What a command knows when training ends early."""

    begun: bool = False
    """Whether there is something to resume."""

    def resume_command(self, run_id: str | None) -> str | None:
        """Returns the same command line: repeated, it resumes from the newest complete checkpoint."""
        return shlex.join(["memagent-train", *sys.argv[1:]]) if self.begun else None


def display_of(display: Display | None) -> Display:
    """Returns the requested display; only the first of several processes shows anything."""
    return chosen_display(display) if os.environ.get("RANK", "0") == "0" else Display.NONE


@contextmanager
def training(going: Going) -> Generator[None]:
    """Turns whatever ends a training into a message on standard error and an exit code."""
    with report_errors(going):
        try:
            yield
        except KeyboardInterrupt as stop:
            number = getattr(
                stop, "number", None
            )  # that of runs.signals.Signalled, which isn't imported here
            if number is None:
                raise
            raise Interrupted(number) from stop
