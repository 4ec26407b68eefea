"""`memagent show`: what a run did, memory by memory, or step by step."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.exits import Outcome, reported
from memagent.cli.history import History
from memagent.cli.options import Display
from memagent.cli.results import spent
from memagent.cli.runs import status_of
from memagent.cli.setup import chosen_display, existing_store
from memagent.cli.tool_session import is_tool_session, show_session, show_step
from memagent.errors import ConfigError
from memagent.terminal import Paper, moment

if TYPE_CHECKING:
    from memagent.runstore import RunRecord, RunStore
    from memagent.trajectory import Conversation


def show(
    run_id: Annotated[str, typer.Argument(metavar="ID", help="As memagent runs lists it.")],
    question: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="One question of several, from 0.", show_default=False
        ),
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="The whole conversation about this chunk, from 0.",
            show_default=False,
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Of a tool session: this step with its whole texts, from 0.",
            show_default=False,
        ),
    ] = None,
    store: opt.Store = None,
    display: opt.DisplayOption = None,
) -> None:
    """Show what a run did: how its memory changed from chunk to chunk, and what it answered.

    Of a tool session: its calls and their results, and what left the context.
    """
    shown = chosen_display(display)
    outcome = Outcome(json=shown is Display.JSON)
    with reported(outcome):
        outcome.store = opened = existing_store(store)
        record = opened.get(run_id)
        asked = range(len(record.binding["questions"]))
        if question is not None and question not in asked:
            raise ConfigError(
                f"--question {question}: run {run_id!r} has {len(asked)}, numbered from 0"
            )
        chosen = asked if question is None else [question]
        is_session = is_tool_session(record)
        if is_session and chunk is not None:
            raise ConfigError(
                f"--chunk {chunk}: run {run_id!r} is a tool session, which has steps: --step N"
            )
        if not is_session and step is not None:
            raise ConfigError(
                f"--step {step}: run {run_id!r} reads a document, which has chunks: --chunk N"
            )
        if step is not None:
            show_step(opened, record, step, shown)
        elif is_session:
            show_session(opened, record, status_of(opened, record), shown, outcome)
        elif chunk is not None:
            _show_chunk(opened, record, chosen, chunk, shown)
        elif shown is Display.JSON:
            outcome.told = True
            _write_json(opened, record, chosen)
        elif shown is Display.NONE:
            states = opened.state(run_id, len(asked))
            for number in chosen:
                print(states[number].answer or "")
        else:
            paper = Paper(colour=shown is Display.FULL)
            paper.table(_header(opened, record))
            for number in chosen:
                History(
                    paper, record.binding["questions"][number], number, many=len(asked) > 1
                ).write(opened.events(run_id))


def _header(store: RunStore, record: RunRecord) -> list[tuple[str, str]]:
    binding = record.binding
    budget = binding["budget"]
    states = store.state(record.id, len(binding["questions"]))
    read = max(state.next_chunk for state in states)
    questions: list[str] = binding["questions"]
    asked = [("question", questions[0])]
    if len(questions) > 1:
        asked = [(f"question {number}", text) for number, text in enumerate(questions)]
    return [
        ("run", f"{record.id}, {status_of(store, record)}"),
        ("when", f"{moment(record.created)} to {moment(record.updated)}"),
        ("document", record.source["name"]),
        *asked,
        ("model", f"{binding['model']}, prompt set {binding['prompts'].partition(':')[0]}"),
        (
            "budget",
            f"window {budget['window']:,}: chunk {budget['chunk']:,}, memory {budget['memory']:,}",
        ),
        ("counted by", binding["counter"]),
        ("read", f"{read:,} chunks"),
        ("usage", spent(store.usage(record.id))),
    ]


def _write_json(store: RunStore, record: RunRecord, chosen: Iterable[int]) -> None:
    """One object, its events written as they are read: a run may have millions."""
    states = store.state(record.id, len(record.binding["questions"]))
    run = {
        "run_id": record.id,
        "kind": "document",
        "status": status_of(store, record),
        "created": record.created,
        "updated": record.updated,
        "document": record.source["name"],
        "questions": record.binding["questions"],
        "binding": record.binding,
        "usage": store.usage(record.id).model_dump(),
        "answers": {number: states[number].answer for number in chosen},
        "memories": {number: states[number].memory for number in chosen},
    }
    print(json.dumps(run, ensure_ascii=False)[:-1] + ', "events": [', end="")
    comma = ""
    for event in store.events(record.id):
        if getattr(event, "question", None) in (None, *chosen):
            print(comma + event.model_dump_json(), end="")
            comma = ", "
    print("]}")


def _show_chunk(
    store: RunStore, record: RunRecord, chosen: Iterable[int], chunk: int, display: Display
) -> None:
    found = {
        number: conversation
        for number in chosen
        if (conversation := _conversation(store, record, number, chunk)) is not None
    }
    if not found:
        raise ConfigError(f"--chunk {chunk}: run {record.id!r} has no finished step for that chunk")
    if display is Display.JSON:
        steps = [
            {"question": number, **conversation.model_dump(mode="json")}
            for number, conversation in found.items()
        ]
        print(json.dumps({"run_id": record.id, "chunk": chunk, "steps": steps}, ensure_ascii=False))
        return
    paper = Paper(colour=display is Display.FULL)
    for number, conversation in found.items():
        if len(found) > 1:
            paper.line((f"question {number}: {record.binding['questions'][number]}", "bold cyan"))
        for message in conversation.messages:
            paper.line((f"--- {message.role}", "bold"))
            paper.line(message.content)
            paper.line("")


def _conversation(
    store: RunStore, record: RunRecord, question: int, chunk: int
) -> Conversation | None:
    # A question's chunks are committed in order from 0, so the chunk's number is its place.
    try:
        found = store.conversations(record.id, question)[chunk]
    except IndexError:
        return None
    return found if found.chunk == chunk else None
