"""How answers are shown: prominently, plainly, as JSON, or alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memagent.cli.exits import NO_ANSWER, Outcome
from memagent.cli.options import Display
from memagent.messages import Usage
from memagent.terminal import Paper, amount, clean, console, duration, plural, say, shorten

if TYPE_CHECKING:
    from memagent.run.result import Result
    from memagent.runstore import RunRecord


TITLE = 200
"""Characters of a question above its answer: rich clips it to the panel, a whole book of it would take long."""


def report(
    results: Sequence[Result],
    record: RunRecord,
    display: Display,
    outcome: Outcome,
    *,
    seconds: float | None = None,
) -> int:
    """Shows the answers of a run, and what they took.

    Args:
        results: one a question.
        record: the run.
        display: how.
        outcome: says how to go on where an answer is missing.
        seconds: how long this session took; None where nothing was read.

    Returns:
        The exit code: 0, or 6 where an answer is missing.
    """
    match display:
        case Display.JSON:
            said = json.dumps(as_json(results, record), ensure_ascii=False)
            outcome.told = True
            print(said)
        case Display.NONE:
            for result in results:
                if result.answer is not None:
                    print(clean(result.answer) if sys.stdout.isatty() else result.answer)
        case Display.PLAIN | Display.FULL:
            if seconds is not None and display is Display.PLAIN:
                print()
            for result in results:
                if result.answer is None:
                    continue
                if len(results) > 1 and display is Display.PLAIN:
                    print(clean(result.question))
                show_answer(result.question, result.answer, display)
            run_id = None if outcome.store is None else record.id
            Paper(colour=display is Display.FULL).line((facts(results, seconds, run_id), "dim"))
    missing = [result for result in results if result.answer is None]
    for result in missing:
        which = f"no answer to {result.question!r}:" if len(results) > 1 else "no answer:"
        say(which, result.detail, style="bold yellow")
    if missing:
        command = outcome.resume_command(record.id)
        if command is not None:
            say("resume with:", command, style="dim")
    return NO_ANSWER if missing else 0


def show_answer(question: str, answer: str, display: Display) -> None:
    """Writes an answer: in a panel on a terminal, else behind `answer:`."""
    if display is not Display.FULL:
        print(f"answer: {clean(answer).strip()}\n")
        return
    from rich import box
    from rich.panel import Panel
    from rich.text import Text

    panel = Panel(
        Text(clean(answer).strip(), style="bold"),
        title=Text(shorten(question, TITLE), overflow="ellipsis"),
        title_align="left",
        border_style="green",
        box=box.ROUNDED,
        padding=(0, 1),
    )
    console(sys.stdout).print(panel)


def facts(results: Sequence[Result], seconds: float | None, run_id: str | None) -> str:
    """One line: the run (where it is kept), what it read, what it took, why it stopped."""
    usage = sum((result.usage for result in results), Usage())
    reasons = dict.fromkeys(result.stop_reason.value.replace("_", " ") for result in results)
    parts = [
        *([] if run_id is None else [f"run {run_id}"]),
        plural(max(result.chunks for result in results), "chunk"),
        *costs(usage, " and ".join(reasons)),
    ]
    if seconds is not None:
        parts.append(duration(seconds))
    return " · ".join(parts)


def costs(usage: Usage, reason: str) -> list[str]:
    """What a run took, with why it ended, as the parts of a line."""
    parts = [
        plural(usage.calls, "call"),
        f"{amount(usage.prompt_tokens)} prompt + {amount(usage.completion_tokens)} completion tokens",
        reason,
    ]
    if usage.retries:
        parts.append("1 retry" if usage.retries == 1 else f"{usage.retries:,} retries")
    return parts


def spent(usage: Usage) -> str:
    """What a run took, in full."""
    said = f"{usage.calls:,} calls, {usage.prompt_tokens:,} prompt and {usage.completion_tokens:,} completion tokens"
    if usage.cached_tokens:
        said += f", {usage.cached_tokens:,} of them cached"
    if usage.retries:
        said += f", {usage.retries:,} sent again ({usage.retry_tokens:,} tokens)"
    if usage.repeated:
        said += f", {usage.repeated:,} repeated after an interruption"
    return said


def as_json(results: Sequence[Result], record: RunRecord) -> dict[str, Any]:
    """One object for one question; for several the run's id and a list of such objects."""
    objects = [_object(result, record) for result in results]
    return objects[0] if len(objects) == 1 else {"run_id": record.id, "results": objects}


def _object(result: Result, record: RunRecord) -> dict[str, Any]:
    return {
        "answer": result.answer,
        "memory": result.memory,
        "stop_reason": result.stop_reason.value,
        "run_id": result.run_id,
        "usage": result.usage.model_dump(),
        "chunks": result.chunks,
        "question": result.question,
        "model": record.binding["model"],
        "document": record.source["name"],
        "detail": result.detail,
    }
