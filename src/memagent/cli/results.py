"""What came of a run: its answers for people, as JSON, or alone, and what they cost."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from memagent.cli.exits import NO_ANSWER, Outcome
from memagent.cli.options import Display
from memagent.cli.progress import Notebook, Tally
from memagent.messages import Usage
from memagent.terminal import amount, clean, console, duration, panel, plural, say, shorten

if TYPE_CHECKING:
    from memagent.runstore import RunRecord, RunStore

TITLE = 200
"""Characters of a question above its answer: rich clips it to the panel, a whole book of it would take long."""
CUT_OFF = "the reply was cut off by its token limit"


def is_session(record: RunRecord) -> bool:
    """Whether a run is a tool session; else it reads a document."""
    return record.binding["agent"] == "tools"


def report(
    store: RunStore,
    record: RunRecord,
    tally: Tally,
    outcome: Outcome,
    *,
    seconds: float | None = None,
) -> int:
    """Shows the answers of a run, what they took, and how to resume it if one is missing.

    Args:
        store: where the run is.
        record: the run.
        tally: of all its events.
        outcome: says how to show it.
        seconds: how long this session took; None if nothing was read.

    Returns:
        The exit code: 0, or 6 if an answer is missing.
    """
    books, many = tally.notebooks, len(tally.notebooks) > 1
    if outcome.display is Display.JSON:
        outcome.tell(as_json(store, record, tally))
    elif outcome.display is Display.NONE:
        for book in books:
            if book.answer is not None:
                print(clean(book.answer) if sys.stdout.isatty() else book.answer)
    else:
        if seconds is not None and outcome.display is Display.PLAIN:
            print()
        for book in books:
            _answer(book, outcome, many=many)
        facts = [] if outcome.store is None else [f"run {record.id}"]
        facts += costs(store.usage(record.id), tally)
        facts += [] if seconds is None else [duration(seconds)]
        outcome.paper.line((" · ".join(facts), "dim"))
    missing = [book for book in books if book.answer is None]
    for book in missing:
        which = f"no answer to {book.question!r}:" if many else "no answer:"
        say(which, book.detail, style="bold yellow")
    if missing:
        outcome.say_resume(record.id, at_limit=any(book.reason == "limit" for book in missing))
    return NO_ANSWER if missing else 0


def _answer(book: Notebook, outcome: Outcome, *, many: bool) -> None:
    """Writes an answer: in a panel on a terminal, else behind `answer:`."""
    if book.answer is None:
        return
    answer = clean(book.answer).strip()
    if outcome.display is Display.FULL:
        from rich.text import Text

        title = Text(shorten(book.question, TITLE), overflow="ellipsis")
        console(sys.stdout).print(panel(Text(answer, style="bold"), title, style="green"))
    else:
        print(f"{clean(book.question)}\n" if many else "", f"answer: {answer}\n", sep="")
    if book.truncated:
        outcome.paper.line((CUT_OFF, "yellow"))


def costs(usage: Usage, tally: Tally) -> list[str]:
    """What a run made, what that took, and why it ended, as the parts of a line."""
    reasons = dict.fromkeys(book.reason.replace("_", " ") for book in tally.notebooks)
    made = [plural(tally.made, "chunk")]
    if tally.steps:
        made = [plural(tally.steps, "step"), plural(tally.summaries, "summary")]
    return [*made, *spent(usage), " and ".join(reasons)]


def spent(usage: Usage) -> list[str]:
    """What calls took, as the parts of a line."""
    parts = [
        plural(usage.calls, "call"),
        f"{amount(usage.prompt_tokens)} prompt + {amount(usage.completion_tokens)} completion tokens",
    ]
    if usage.retries:
        lost = f" ({amount(usage.retry_tokens)} tokens)" if usage.retry_tokens else ""
        parts.append(plural(usage.retries, "retry") + lost)
    if usage.repeated:
        parts.append(f"{usage.repeated:,} repeated after an interruption")
    return parts


def as_json(store: RunStore, record: RunRecord, tally: Tally) -> dict[str, Any]:
    """One object for one question; for several the run's id and a list of such objects."""
    objects = [result(store, record, tally, number) for number in range(len(tally.notebooks))]
    return objects[0] if len(objects) == 1 else {"run_id": record.id, "results": objects}


def result(store: RunStore, record: RunRecord, tally: Tally, number: int) -> dict[str, Any]:
    """What came of one question, as JSON."""
    book = tally.notebooks[number]
    said: dict[str, Any] = {
        "answer": book.answer,
        "stop_reason": book.reason,
        "detail": book.detail,
        "truncated": book.truncated,
        "run_id": record.id,
        "model": record.binding["model"],
        "usage": store.usage(record.id, number).model_dump(),
    }
    if is_session(record):
        return said | {
            "task": book.question,
            "tools": record.binding["tools"]["names"],
            "steps": tally.steps,
            "summaries": tally.summaries,
        }
    return said | {
        "question": book.question,
        "document": record.source["name"],
        "memory": book.memory,
        "chunks": book.read,
    }
