"""Shared by the commands of a course: options, places, and how they end."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from memagent.errors import ConfigError
from memagent_nano.sizes import size_of
from memagent_nano.stages import TRUNK, Place
from memagent_train.cli.going import Going, training
from memagent_train.runs.signals import stop_on_signals

SizeName = Annotated[str, typer.Argument(metavar="SIZE", help="pico or nano.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder of all that is made.")]


@dataclass
class Course(Going):
    """How to resume a command of the course."""

    def resume_command(self, run_id: str | None) -> str | None:
        """Returns the same command line."""
        return shlex.join(["python", "-m", Path(sys.argv[0]).parent.name, *sys.argv[1:]])


@contextmanager
def report_end() -> Generator[None]:
    """Turns any outcome of a command into a message on standard error and an exit code."""
    with training(Course()), stop_on_signals():
        yield


def places_of(size: str, out: Path, seeds: str) -> list[Place]:
    """Returns the places of the seeds' courses, each once.

    Raises:
        ConfigError: the seeds aren't numbers, or there is no such size.
    """
    parts = [part.strip() for part in seeds.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise ConfigError(
            f"--seeds {seeds!r}: give numbers from 0 on with commas between, such as 0,1,2"
        )
    return [place_of(size, out, seed) for seed in dict.fromkeys(map(int, parts))]


def place_of(size: str, out: Path, seed: int) -> Place:
    """Returns the place of one seed's course."""
    # Relative paths in settings are relative to the settings file.
    return Place(out.resolve(), size_of(size), seed)


def title_of(place: Place, stage: str) -> str:
    """Returns the title of a stage, for people."""
    return f"trunk {stage}" if stage in TRUNK else f"seed {place.seed} {stage}"
