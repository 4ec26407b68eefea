"""One line of `sessions.jsonl`: how a session went, and what it cost."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from pydantic import Field

from memagent.messages import Leaf, Usage
from memagent_bench.record import ScoredStatus
from memagent_bench.records import lines_of
from memagent_bench.sessions.arms import Arm
from memagent_bench.sessions.wire.loop_figures import LoopFigures
from memagent_bench.systems.base import Status

SESSIONS = "sessions.jsonl"


class Reason(StrEnum):
    """Why a session ended."""

    ANSWERED = "answered"
    """There is an answer, right or wrong."""
    OUT_OF_STEPS = "out_of_steps"
    OUT_OF_SUMMARIES = "out_of_summaries"
    NO_PROGRESS = "no_progress"
    UNUSABLE_REPLY = "unusable_reply"
    OVERFLOW = "overflow"
    """A prompt exceeded the model's window, or the working context couldn't hold the prompt and one turn."""
    BROKEN_PAIR = "broken_pair"
    """The server refused a call without its result, or a result without its call."""
    TASK_LOST = "task_lost"
    """A prompt no longer said what to do."""
    ERROR = "error"
    """The model or the program failed: not the system's fault."""
    BROKEN = "broken"
    """The task could not be started: its data are damaged."""

    @property
    def status(self) -> Status:
        """Status of its record: only failed sessions are tried again."""
        if self is Reason.ANSWERED:
            return Status.ANSWERED
        return Status.FAILED if self in (Reason.ERROR, Reason.BROKEN) else Status.STOPPED


class Origin(Leaf):
    """What produced a record; the same for all records of a run of the command."""

    player: str
    """`expert`: the model is paid and the game's expert plays; `model`: the model plays."""
    suite: str | None = None
    """Suite of the tasks; None for games."""
    model: str
    server: str | None
    """Engine, version and address without secrets; None without a server."""
    counter: str
    """Counter of the prompts, if the model's server doesn't count."""
    window: int | None
    """The model's window; None if unlimited."""
    protocol: str
    prompts: str
    """Name and hash of the wording, `session:0123456789abcdef`."""
    commit: str | None
    dirty: bool | None
    packages: dict[str, str]
    python: str
    machine: str


class SessionRecord(Leaf):
    """One game played in one way."""

    game: str
    """The game, or the id of a third-party suite's task."""
    difficulty: int = Field(gt=0)
    """Approximate steps that the expert needs; for a third-party task, the maximum steps allowed."""
    seed: int
    """Seed of the deal: the same seed is the same game for every system."""
    arm: Arm
    score: float | None = Field(ge=0, le=1)
    """1 for the right answer, 0 for a wrong one, None if there is none: unscored is neither zero nor dropped."""
    status: ScoredStatus
    reason: Reason
    detail: str = ""
    """Why there is no answer."""
    answer: str | None
    steps: int = Field(ge=0)
    """Tool calls that the game received."""
    summaries: int = Field(ge=0)
    usage: Usage
    """Usage of all calls, including those for summaries."""
    largest_prompt: int = Field(ge=0)
    """Tokens of the largest prompt."""
    wired: LoopFigures | None = None
    """Data of a loop at a server; None for other systems."""
    seconds: float = Field(ge=0, allow_inf_nan=False)
    started: str
    """UTC, ISO 8601."""
    origin: Origin

    @property
    def key(self) -> tuple[str, int, int, Arm]:
        """Identity of a record in a folder."""
        return (self.game, self.difficulty, self.seed, self.arm)


def read_sessions(folder: Path) -> list[SessionRecord]:
    """Reads the records of a folder, the last one of each key; empty if there is no file yet.

    Raises:
        StoreError: the file cannot be read.
        StoreCorrupt: a line isn't a record.
    """
    path = folder / SESSIONS
    if not path.exists():
        return []
    return list({record.key: record for record in lines_of(path, SessionRecord)}.values())
