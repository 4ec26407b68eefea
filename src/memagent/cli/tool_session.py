"""Runs that are tool sessions: what `show`, `runs` and `resume` say of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from memagent.cli.exits import Outcome
from memagent.cli.options import Display
from memagent.cli.results import costs, show_answer, spent
from memagent.cli.steps import Outline, Steps
from memagent.errors import ConfigError
from memagent.terminal import Paper, moment, plural

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from memagent.events import Event
    from memagent.runstore import RunRecord, RunStore


def is_tool_session(record: RunRecord) -> bool:
    """Whether a run is a tool session; else it reads a document."""
    return record.binding["agent"] == "tools"


def steps_made(store: RunStore, run_id: str) -> int:
    """How many steps a session has made."""
    from memagent.runstore.effects import ANSWER

    effects = store.effects(run_id)
    ended = effects.find(ANSWER)
    return effects.count("act") if ended is None else ended["steps"]


def show_session(
    store: RunStore, record: RunRecord, status: str, display: Display, outcome: Outcome
) -> None:
    """Shows a session step by step.

    Args:
        store: where it is.
        record: the run.
        status: as `memagent runs` lists it.
        display: how.
        outcome: is told when the JSON is out.
    """
    match display:
        case Display.JSON:
            outcome.told = True
            _write_json(store, record, status)
        case Display.NONE:
            print(_answer(store, record.id) or "")
        case Display.PLAIN | Display.FULL:
            outline = Outline.of(store.events(record.id))
            paper = Paper(colour=display is Display.FULL)
            paper.table(_header(store, record, status, outline))
            paper.line("")
            Steps(paper, outline).write(store.events(record.id))


def show_step(store: RunStore, record: RunRecord, step: int, display: Display) -> None:
    """Shows one step with its whole texts, and the compaction before it.

    Raises:
        ConfigError: the session has no such step.
    """
    events = list(_of_step(store, record.id, step))
    if not events:
        made = steps_made(store, record.id)
        raise ConfigError(
            f"--step {step}: run {record.id!r} has made {plural(made, 'step')}, numbered from 0"
        )
    if display is Display.JSON:
        said = [event.model_dump(mode="json") for event in events]
        print(json.dumps({"run_id": record.id, "step": step, "events": said}, ensure_ascii=False))
        return
    outline = Outline.of(store.events(record.id))
    Steps(Paper(colour=display is Display.FULL), outline, whole=True).write(events)


def report_session(store: RunStore, record: RunRecord, display: Display, outcome: Outcome) -> None:
    """Shows the answer of a finished session, and what it took."""
    answer, usage, made = (
        _answer(store, record.id),
        store.usage(record.id),
        steps_made(store, record.id),
    )
    outline = Outline.of(store.events(record.id))
    match display:
        case Display.JSON:
            said: dict[str, Any] = {
                "answer": answer,
                "stop_reason": "answered",
                "run_id": record.id,
                "usage": usage.model_dump(),
                "steps": made,
                "summaries": outline.summaries,
                "task": record.binding["questions"][0],
                "model": record.binding["model"],
                "tools": record.binding["tools"]["names"],
            }
            outcome.told = True
            print(json.dumps(said, ensure_ascii=False))
        case Display.NONE:
            print(answer)
        case Display.PLAIN | Display.FULL:
            show_answer(record.binding["questions"][0], answer or "", display)
            parts = [
                f"run {record.id}",
                plural(made, "step"),
                _summaries(outline.summaries),
                *costs(usage, "answered"),
            ]
            Paper(colour=display is Display.FULL).line((" · ".join(parts), "dim"))


def cannot_resume(record: RunRecord, store: Path | None) -> ConfigError:
    """Says how a session goes on that the command cannot run.

    Args:
        record: the run.
        store: as `--store` was given.
    """
    where = "" if store is None else f", store={str(store)!r}"
    return ConfigError(
        f"run {record.id!r} is a tool session, and its tools are in the program that made it: resume it from Python, "
        f"with ToolAgent(model, tools{where}).resume({record.id!r}) and the settings that it was made with"
    )


def _answer(store: RunStore, run_id: str) -> str | None:
    from memagent.runstore.effects import ANSWER

    ended = store.effects(run_id).find(ANSWER)
    return None if ended is None else ended["answer"]


def _header(
    store: RunStore, record: RunRecord, status: str, outline: Outline
) -> list[tuple[str, str]]:
    binding, settings = record.binding, record.settings
    context = f"working context {binding['budget']['window']:,}"
    most = f"{settings['max_steps']:,} steps, {_summaries(settings['max_summaries'])}"
    made = f"{plural(steps_made(store, record.id), 'step')}, {_summaries(outline.summaries)}"
    return [
        ("run", f"{record.id}, {status}"),
        ("when", f"{moment(record.created)} to {moment(record.updated)}"),
        ("task", binding["questions"][0]),
        ("tools", ", ".join(binding["tools"]["names"])),
        (
            "model",
            f"{binding['model']}, prompt set {binding['prompts'].partition(':')[0]}, {binding['protocol']} calls",
        ),
        ("budget", f"{context}, at most {most}"),
        ("counted by", binding["counter"]),
        ("made", made),
        ("usage", spent(store.usage(record.id))),
    ]


def _write_json(store: RunStore, record: RunRecord, status: str) -> None:
    """One object, its events written as they are read: a session may have many."""
    run = {
        "run_id": record.id,
        "kind": "tools",
        "status": status,
        "created": record.created,
        "updated": record.updated,
        "task": record.binding["questions"][0],
        "tools": record.binding["tools"]["names"],
        "binding": record.binding,
        "usage": store.usage(record.id).model_dump(),
        "steps": steps_made(store, record.id),
        "answer": _answer(store, record.id),
    }
    print(json.dumps(run, ensure_ascii=False)[:-1] + ', "events": [', end="")
    comma = ""
    for event in store.events(record.id):
        print(comma + event.model_dump_json(), end="")
        comma = ", "
    print("]}")


def _of_step(store: RunStore, run_id: str, step: int) -> Iterator[Event]:
    return (event for event in store.events(run_id) if getattr(event, "step", None) == step)


def _summaries(number: int) -> str:
    return "1 summary" if number == 1 else f"{number:,} summaries"
