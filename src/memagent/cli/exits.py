"""Exit codes, and the messages that go with them."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import sys
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import requires
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from memagent import errors
from memagent.cli.options import Display
from memagent.terminal import Paper, say

if TYPE_CHECKING:
    from memagent.memory.extraction import Extraction
    from memagent.runstore import RunRecord, RunStore

EXIT_CODES = (
    "Exit codes: 0 answered; 1 unexpected error, or the output cannot be written; 2 wrong usage or a bad setting; "
    "3 the document cannot be read; 4 the model failed; 5 the run store failed; 6 stopped without an answer (can be "
    "resumed); 7 the demo's hidden fact was not found; 130 interrupted; 143 terminated; 141 broken pipe."
)
UNFORESEEN, NO_ANSWER, WRONG, BROKEN_PIPE = 1, 6, 7, 141
CODES: dict[type[errors.MemagentError], int] = {
    errors.ConfigError: 2,
    errors.DocumentError: 3,
    errors.ModelError: 4,
    errors.StoreError: 5,
    errors.LimitReached: NO_ANSWER,
}
LASTING = (errors.ConfigError, errors.StoreError, errors.ModelNotFound, errors.ContextOverflow)
"""Errors that a resumed run would hit again: its model, window and counter are fixed."""

OUTPUT_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""Errors from writing to standard output; the library translates errors of its own files where they occur."""


class Interrupted(Exception):
    """A signal ended the work; committed steps are kept."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.code = 128 + signal


def code_of(error: Exception) -> int:
    """Returns the exit code for an error."""
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), UNFORESEEN)


@dataclass
class Outcome:
    """What a command knows when it ends, early or not; filled in as it runs."""

    display: Display = Display.PLAIN
    again: Sequence[tuple[str, Any]] = ()
    """Options to repeat when resuming the run, with their values; None or False for those not given."""
    store: RunStore | None = None
    """Where runs are stored, closed at the end; None if they can't be resumed (`demo`)."""
    run_id: str | None = None
    undecoded: bool = False
    """Whether a byte of the document didn't decode."""
    repeats: bool = False
    """Whether the command continues its work when repeated."""
    told: bool = False
    """Whether the JSON value was already printed."""
    rows: Extraction[Any] | None = None
    out: Path | None = None
    """What an extraction found, and the file for its rows; None prints them."""

    @property
    def paper(self) -> Paper:
        """Where to print for people."""
        return Paper(colour=self.display is Display.FULL)

    @property
    def for_people(self) -> bool:
        """Whether standard output is for people, not data."""
        return self.display in (Display.FULL, Display.PLAIN)

    def tell(self, value: Any) -> None:
        """Prints the JSON value on standard output."""
        self.told = True
        print(json.dumps(value, ensure_ascii=False), flush=True)

    def tell_error(self, kind: str, message: str, run_id: str | None) -> None:
        """Prints an error as JSON if JSON was asked for and the result isn't printed yet."""
        if self.display is Display.JSON and not self.told:
            run = self.find(run_id)  # it may have ended before it was stored
            self.tell({"error": {"type": kind, "message": message, "run_id": run and run.id}})

    def find(self, run_id: str | None) -> RunRecord | None:
        """Returns a run; None if it isn't stored, or the store can't be read."""
        with suppress(errors.StoreError):
            return None if self.store is None or run_id is None else self.store.find(run_id)

    def resume_command(self, run_id: str | None) -> str | None:
        """Returns the command that resumes the run; None if it isn't stored, is finished, or needs a Python program."""
        if self.repeats:
            return "the same command"
        record = self.find(run_id)
        if record is None or record.status == "finished" or record.binding["agent"] == "tools":
            return None
        # The store doesn't have the rows' class, and a run keeps its encoding.
        branches = "branch" in record.binding
        if (agent := record.binding["agent"]) == "extract" or (self.undecoded and not branches):
            command = "extract" if agent == "extract" else "ask"
            more = " --encoding NAME, or --errors replace" if self.undecoded else ""
            return f"memagent {command} ... --run-id {record.id}{more}"
        flags = [
            f"--{name}" if value is True else f"--{name} {shlex.quote(str(value))}"
            for name, value in self.again
            if value is not None and value is not False
        ]
        # `branch` takes no encoding; any file with the same text will do.
        note = ", which is the document converted to UTF-8" if self.undecoded else ""
        flags += [f"--document FILE{note}"] if note or not record.source.get("path") else []
        return " ".join(["memagent resume", record.id, *flags])

    def say_resume(self, run_id: str | None, why: str = "") -> None:
        """Prints how to resume the run, if possible, without the limit in `why` that stopped it and would again."""
        limits = [n for n, _ in self.again if f"the limit {n[4:]}=" in why and n != "max-seconds"]
        self.again = [flag for flag in self.again if flag[0] not in limits]
        hints = "".join(f" (no limit of {n[4:]}; --{n} N sets one)" for n in limits)
        if (command := self.resume_command(run_id)) is not None:
            say("resume with:", command + hints, style="dim")


@contextmanager
def report_errors(outcome: Outcome) -> Generator[Outcome]:
    """Turns whatever ends a command into a message on standard error and an exit code."""
    try:
        yield outcome
        sys.stdout.flush()
    except errors.MemagentError as error:
        _report(error, str(error), error.run_id, outcome)
        if isinstance(error, errors.StoreFull) or not isinstance(error, LASTING):
            outcome.undecoded = isinstance(error, errors.DecodingError)
            if isinstance(error, errors.RequestTimeout):  # the same one would end the run again
                again = outcome.again
                outcome.again = [(n, v and "SECONDS" if n == "timeout" else v) for n, v in again]
            outcome.say_resume(error.run_id)
        raise typer.Exit(code_of(error)) from error
    # Ctrl-C raises KeyboardInterrupt outside the event loop; at a prompt, it and Ctrl-D raise Abort.
    except (Interrupted, KeyboardInterrupt, typer.Abort) as stop:
        command = outcome.resume_command(outcome.run_id)
        outcome.tell_error("Interrupted", "interrupted", outcome.run_id)
        say("interrupted.", f"Resume with: {command}" if command else "", style="yellow")
        raise typer.Exit(stop.code if isinstance(stop, Interrupted) else 130) from stop
    except BrokenPipeError as error:
        _drop_output()
        raise typer.Exit(BROKEN_PIPE) from error
    except typer.Exit:
        raise
    except Exception as error:  # the last chance to report anything
        if isinstance(error, OSError) and error.errno in OUTPUT_ERRORS:
            _drop_output()
            say("error:", f"the output cannot be written: {error.strerror}", style="bold red")
            outcome.say_resume(outcome.run_id)
            raise typer.Exit(UNFORESEEN) from error
        if isinstance(error, ModuleNotFoundError) and (extra := _extra_with(error.name or "")):
            from memagent.texts import name_extra  # help needs no pydantic

            _report(error, name_extra("this command", extra), outcome.run_id, outcome)
            raise typer.Exit(CODES[errors.ConfigError]) from error
        message = (
            f"unexpected {type(error).__name__}: {error}. This is a bug, please report it; MEMAGENT_DEBUG=1 "
            "shows the traceback."
        )
        _report(error, message, outcome.run_id, outcome)
        raise typer.Exit(UNFORESEEN) from error
    finally:
        if outcome.store is not None:
            outcome.store.close()


def _extra_with(module: str) -> str | None:
    """Returns the first extra that installs a package with the name of a module."""
    form = re.compile(rf"{re.escape(module)}\b.*extra == \W([\w-]+)")
    matches = (form.match(line) for line in requires("memagent") or ())
    return next((match[1] for match in matches if match), None)


def _drop_output() -> None:
    # Python flushes standard output once more at exit: give it somewhere to write to.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: Exception, message: str, run_id: str | None, outcome: Outcome) -> None:
    if os.environ.get("MEMAGENT_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    outcome.tell_error(type(error).__name__, message, run_id)
    say("error:", message, style="bold red")
