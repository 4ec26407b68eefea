"""Describes a training's progress: the reward, the time left."""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from memagent.terminal import duration
from memagent.texts import show_length
from memagent_train.rollouts import TOOLS_FAILED

SHOWN = ("loss", "kl", "grad_norm")
"""Figures on a step's line after the reward, if available."""
SHARES = {
    "rollouts/failed": "failed",
    "rollouts/unscored": "unscored",
    "rollouts/overlong": "overlong",
    TOOLS_FAILED: "of tool calls failed by a bug",
}
"""Figures shown as shares if they aren't 0, and what each is a share of."""
SIGNAL = "groups/without_signal"
"""Figure that is 1 in a step without a gradient: in each group, all rewards were equal."""


class Board:
    """Keeps the counts of a session.

    Args:
        steps: total number of steps.
        done: steps of earlier sessions.
        clock: seconds, monotonic.
    """

    def __init__(
        self, steps: int, done: int = 0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.steps, self.done = steps, done
        self.expected = self.rolled = 0
        """Rollouts of the current step: the total, and how many are finished."""
        self.figures: dict[str, Any] = {}
        """Figures of the last step."""
        self.said = ""
        """Description of the last evaluation."""
        self._first = done
        self._clock = clock
        self._begun = clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the session started."""
        return self._clock() - self._begun

    @property
    def fraction(self) -> float:
        """Share of all steps that is done, from 0 to 1."""
        return self.done / self.steps if self.steps else 1.0

    @property
    def left(self) -> float | None:
        """Seconds left until the last step is done, at this session's pace; None if unknown."""
        through = self.done - self._first
        return None if through < 1 else self.elapsed / through * (self.steps - self.done)

    def facts(self) -> list[str]:
        """Returns the counts as parts of one line."""
        facts = [f"step {self.done:,} of {self.steps:,}", duration(self.elapsed)]
        if self.expected:
            facts.append(f"rollouts {self.rolled:,}/{self.expected:,}")
        return facts


def line_of(figures: Mapping[str, Any]) -> str:
    """Describes a step's figures on one line, the reward first."""
    parts: list[str] = []
    if "reward" in figures:
        reward = figures["reward"]
        parts.append("reward   -  " if reward is None else f"reward {reward:.3f}")
    if figures.get(SIGNAL) == 1:
        parts.append("no group had a signal")
    parts += [share_of(figures[key], name) for key, name in SHARES.items() if figures.get(key)]
    parts += [
        f"{name} {figures[name]:.3g}"
        for name in SHOWN
        if isinstance(figures.get(name), (int, float))
    ]
    return "  ".join(parts)


def share_of(share: float, of: str) -> str:
    """Formats a share, such as `12.5% overlong`."""
    return f"{100 * share:.3g}% {of}"


def length_name(length: int) -> str:
    """Formats a length, such as `8K`; 0 means samples at their natural length."""
    return show_length(length) if length else "natural"


def describe_mean(one: Mapping[str, Any], *, n: str = "") -> str:
    """Describes a mean with its 95% interval, and what happened to the other samples.

    Args:
        one: figures from `as_figures`.
        n: text to put after the interval.
    """
    if one["mean"] is None:
        return f"{one['unscored']} of {one['n']} without a reward: {one['error']!r:.200}"
    text = f"{one['mean']:.3f} [{one['low']:.3f}, {one['high']:.3f}]{n}"
    text += f", {one['unscored']} without a reward" if one["unscored"] else ""
    overlong = one.get("overlong")  # evaluations of earlier versions have none
    return f"{text}, {share_of(overlong, 'overlong')}" if overlong else text


def describe_means(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Describes means by length, on one line."""
    cells = (f"{length_name(int(length))} {describe_mean(mean)}" for length, mean in found.items())
    return "  ".join(cells)


class SilentWatcher:
    """Receives a training's progress and keeps count."""

    screen: AbstractContextManager[Any] = nullcontext()
    """Entered while the work lasts; takes over and releases the terminal, if there is one."""

    def __init__(self, board: Board) -> None:
        self.board = board

    def begin_rolling(self, expected: int) -> None:
        """Notes that this number of rollouts begin."""
        self.board.expected, self.board.rolled = expected, 0

    def note_rollout(self) -> None:
        """Notes that one rollout has ended."""
        self.board.rolled += 1

    def note_step(self, step: int, figures: Mapping[str, Any]) -> None:
        """Notes that a step is done."""
        self.board.done, self.board.figures = step, dict(figures)
        self.board.expected = 0

    def note_evaluation(self, step: int, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Notes that held-out samples were answered."""
        self.board.said = f"evaluated after step {step:,}:  {describe_means(found)}"
        self.board.expected = 0


class PlainWatcher(SilentWatcher):
    """Writes a line for each step and evaluation, without control codes."""

    def note_step(self, step: int, figures: Mapping[str, Any]) -> None:
        """Counts the step and writes a line."""
        super().note_step(step, figures)
        seconds = self.board.left
        ahead = "" if not seconds else f"  {duration(seconds)} left"
        width = len(str(self.board.steps))
        self._say(f"{step:>{width}}/{self.board.steps}  {line_of(figures)}{ahead}")

    def note_evaluation(self, step: int, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Counts the evaluation and writes a line."""
        super().note_evaluation(step, found)
        self._say(self.board.said)

    def _say(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()  # someone may be watching a pipe or a log
