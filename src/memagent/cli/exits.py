"""What the command ends with, and what it says then.

| code | meaning                                                                       |
|------|-------------------------------------------------------------------------------|
| 0    | answered, or done                                                             |
| 1    | an error that memagent did not foresee                                        |
| 2    | wrong usage, or a bad setting (`ConfigError`)                                 |
| 3    | the document cannot be read (`DocumentError`)                                 |
| 4    | the model cannot be reached or fails (`ModelError`)                           |
| 5    | the run store cannot do what was asked (`StoreError`)                         |
| 6    | stopped without an answer, by a limit or an unusable reply; it can be resumed |
| 7    | `demo`: the answer is wrong                                                   |
| 130  | interrupted (Ctrl-C); 143: terminated. The run can be resumed                 |
| 141  | nobody reads the output any more (`| head`)                                   |
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from memagent.errors import (
    ConfigError,
    DocumentError,
    LimitReached,
    MemagentError,
    ModelError,
    StoreError,
)
from memagent.terminal import say

if TYPE_CHECKING:
    from memagent.runstore import RunStore

UNFORESEEN, NO_ANSWER, WRONG, BROKEN_PIPE = 1, 6, 7, 141
CODES: dict[type[MemagentError], int] = {
    ConfigError: 2,
    DocumentError: 3,
    ModelError: 4,
    StoreError: 5,
    LimitReached: NO_ANSWER,
}


class Interrupted(Exception):
    """A signal ended the work; what was committed stays."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.code = 128 + signal


def code_of(error: Exception) -> int:
    """The exit code for an error."""
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), UNFORESEEN)


@dataclass
class Outcome:
    """What is known when a command ends early: set as it becomes known."""

    json: bool
    """The display is `json`, so an error is an object on standard output as well."""
    store_flag: Path | None = None
    """As `--store` was given."""
    store: RunStore | None = None
    """Where runs are, closed in the end; None where they cannot be resumed (`demo`)."""
    run_id: str | None = None
    told: bool = False
    """Standard output has its one JSON value."""

    def tell(self, error: dict[str, str | None]) -> None:
        """Says an error as JSON where that is asked for, unless the result is out already."""
        if self.json and not self.told:
            self.told = True
            print(json.dumps({"error": error}, ensure_ascii=False), flush=True)

    def resume_command(self, run_id: str | None) -> str | None:
        """How to go on with the run; None where it is not in the store, has its answers, or goes on in Python only."""
        if self.store is None or run_id is None:
            return None
        try:
            record = self.store.find(run_id)
        except StoreError:
            return None
        if record is None or record.status == "finished" or record.binding["agent"] != "memory":
            return None
        command = f"memagent resume {run_id}"
        if self.store_flag is not None:
            command += f" --store {shlex.quote(str(self.store_flag))}"
        return command if record.source.get("path") else command + " --document FILE"


@contextmanager
def reported(outcome: Outcome) -> Generator[None]:
    """Turns whatever ends a command into words on standard error and an exit code."""
    try:
        yield
        sys.stdout.flush()
    except MemagentError as error:
        run_id = error.run_id
        _report(error, str(error), run_id, outcome)
        # While another process is at the run there is nothing to resume.
        command = None if type(error).__name__ == "RunBusy" else outcome.resume_command(run_id)
        if command is not None:
            say("resume with:", command, style="dim")
        raise typer.Exit(code_of(error)) from error
    except (Interrupted, KeyboardInterrupt) as stop:  # the latter outside of the event loop
        command = outcome.resume_command(outcome.run_id)
        outcome.tell({"type": "Interrupted", "message": "interrupted", "run_id": outcome.run_id})
        say(
            "interrupted.",
            f"You can go on with: {command}" if command else "",
            style="yellow",
        )
        raise typer.Exit(stop.code if isinstance(stop, Interrupted) else 130) from stop
    except BrokenPipeError as error:
        # Python flushes standard output once more when it ends: give it somewhere to write to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from error
    except typer.Exit:
        raise
    except OSError as error:  # files of ours are translated where they are used: this is the output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        say("error:", f"the output cannot be written: {error.strerror}", style="bold red")
        command = outcome.resume_command(outcome.run_id)
        if command is not None:
            say("resume with:", command, style="dim")
        raise typer.Exit(UNFORESEEN) from error
    except Exception as error:  # the last place where anything can be said
        message = f"this should not have happened: {type(error).__name__}: {error}"
        _report(error, message, outcome.run_id, outcome)
        if not _debugging():
            say("MEMAGENT_DEBUG=1 shows where it happened; please report it.", style="dim")
        raise typer.Exit(UNFORESEEN) from error
    finally:
        if outcome.store is not None:
            outcome.store.close()


def _debugging() -> bool:
    return os.environ.get("MEMAGENT_DEBUG", "0") not in ("", "0")


def _report(error: Exception, message: str, run_id: str | None, outcome: Outcome) -> None:
    if _debugging():
        traceback.print_exception(error)
    outcome.tell({"type": type(error).__name__, "message": message, "run_id": run_id})
    say("error:", message, style="bold red")
