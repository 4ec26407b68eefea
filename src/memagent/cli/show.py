"""`memagent show`, and the report that other commands end with."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from memagent.cli import options as opt
from memagent.cli.exits import NO_ANSWER, Outcome, report_errors
from memagent.cli.fact import show_fact
from memagent.cli.history import SO_FAR, History, Steps, turns_of
from memagent.cli.options import Display, chosen_display
from memagent.cli.progress import Tally
from memagent.cli.runs import is_session, questions_of, status_of
from memagent.cli.session import drive
from memagent.cli.setup import existing_store, open_again
from memagent.errors import ConfigError, DocumentRequired
from memagent.events import CUT_OFF
from memagent.messages import Usage
from memagent.quotes import align
from memagent.terminal import amount, clean, console, duration, moment, say, shorten
from memagent.texts import plural

if TYPE_CHECKING:
    from memagent.runstore import RunRecord, RunStore
    from memagent.trajectory import Conversation

TITLE = 200
"""Characters of a question shown above its answer: rich clips it to the panel anyway, slowly if it is a book."""


def show(
    run_id: opt.RunArgument,
    question: Annotated[int | None, opt.option("Only question N, from 0.", "N", low=0)] = None,
    chunk: Annotated[int | None, opt.option("All said about chunk N, from 0.", "N", low=0)] = None,
    step: Annotated[int | None, opt.option("All of a session's step N.", "N", low=0)] = None,
    fact: Annotated[
        str | None, opt.option("When a text entered and left the memory.", "TEXT")
    ] = None,
    quotes: Annotated[bool, opt.option("Where the document says it.", "", "--quotes")] = False,
    document: opt.DocumentAgain = None,
    html: Annotated[Path | None, opt.option("Write the run as one web page.", "FILE")] = None,
    live: Annotated[bool, opt.option("Serve that page while it runs.", "", "--live")] = False,
    beside: Annotated[str | None, opt.option("Another run, beside it on the page.", "ID")] = None,
    store: opt.Store = None,
    display: opt.DisplayOption = None,
    json: opt.Json = False,
) -> None:
    """Show what a run did: how its memory changed from chunk to chunk, and what it answered.

    A tool session shows its calls, their results, and what left the context.
    """
    with report_errors(Outcome(chosen_display(display, json=json))) as outcome:
        outcome.store = run_store = existing_store(store)
        record = run_store.get(run_id)
        numbers = range(len(record.binding["questions"]))
        if question is not None and question not in numbers:
            raise ConfigError(
                f"--question {question}: run {run_id!r} has {plural(len(numbers), 'question')}, numbered from 0"
            )
        if chunk is not None and is_session(record):
            mismatch = "is a tool session, which has steps: --step N"
            raise ConfigError(f"--chunk {chunk}: run {run_id!r} {mismatch}")
        if fact is not None and (is_session(record) or not fact.strip()):
            raise ConfigError(f"--fact {fact!r}: needs a text, and a run that reads a document")
        if step is not None and not is_session(record):
            mismatch = "reads a document, which has chunks: --chunk N"
            raise ConfigError(f"--step {step}: run {run_id!r} {mismatch}")
        if (quotes and is_session(record)) or (document is not None and not quotes):
            raise ConfigError("--quotes needs a run of a document, --document needs --quotes")
        selection = numbers if question is None else [question]
        page = live or html is not None or beside is not None
        options = {"--chunk": chunk, "--step": step, "--fact": fact, "a page": page or None}
        # On a page, its reader chooses the question.
        options |= {"--quotes": quotes or None, "--question": question if page else None}
        if len(views := [name for name, value in options.items() if value is not None]) > 1:
            raise ConfigError(f"{' and '.join(views)} can't be shown together: give one of them")
        if page:
            from memagent_viewer.command import show_page

            show_page(run_store, run_id, beside, html, outcome, live=live)
        elif fact is not None:
            show_fact(run_store, record, list(selection), fact, outcome)
        elif quotes:
            _show_quotes(run_store, record, selection, document, outcome)
        elif step is not None:
            _show_step(run_store, record, step, outcome)
        elif chunk is not None:
            _show_chunk(run_store, record, selection, chunk, outcome)
        else:
            _show_run(run_store, record, selection, outcome)


def _show_run(store: RunStore, record: RunRecord, numbers: Sequence[int], outcome: Outcome) -> None:
    tally, paper = Tally.of(store, record), outcome.paper
    if outcome.display is Display.JSON:
        outcome.told = True
        _write_json(store, record, tally, numbers)
        return
    if outcome.display is Display.NONE:
        for number in numbers:
            print(tally.notebooks[number].answer or "")
        return
    paper.table(list_facts(store, record, tally))
    if is_session(record):
        paper.line("")
        Steps(paper, turns_of(store.events(record.id))).write(store.events(record.id))
        return
    for number in numbers:
        paper.line("")
        if len(tally.notebooks) > 1:
            paper.line((f"question {number}: {tally.notebooks[number].question}", "bold cyan"))
        History(paper, number).write(store.events(record.id))


def list_facts(store: RunStore, record: RunRecord, tally: Tally) -> list[tuple[str, str]]:
    """Lists the facts about a run that precede its history, as names and values."""
    binding, settings, budget = record.binding, record.settings, record.binding["budget"]
    questions = questions_of(record)
    model = f"{binding['model']}, prompt set {binding['prompts'].partition(':')[0]}"
    if is_session(record):
        inputs = [("task", questions[0]), ("tools", ", ".join(binding["tools"]["names"]))]
        model += f", {binding['protocol']} calls"
        limits = f"{plural(settings['max_steps'], 'step')}, {plural(settings['max_summaries'], 'summary')}"
        allowance = f"working context {budget['window']:,}, at most {limits}"
        progress = ("made", f"{plural(tally.steps, 'step')}, {plural(tally.summaries, 'summary')}")
    else:
        names = [f"question {n}" for n in range(len(questions))] if questions[1:] else ["question"]
        inputs = [("document", record.source["name"]), *zip(names, questions, strict=True)]
        allowance = "window {window:,}: chunk {chunk:,}, memory {memory:,}".format(**budget)
        progress = ("read", plural(tally.made, "chunk"))
        if (branch := binding.get("branch")) is not None:
            inputs.append(("branched", "before chunk {before} of run {run}".format(**branch)))
    return [
        ("run", f"{record.id}, {status_of(store, record)}"),
        ("when", f"{moment(record.created)} to {moment(record.updated)}"),
        *inputs,
        ("model", model),
        ("budget", allowance),
        ("counted by", binding["counter"]),
        progress,
        ("usage", " · ".join(list_costs(store.usage(record.id)))),
    ]


def _write_json(store: RunStore, record: RunRecord, tally: Tally, numbers: Sequence[int]) -> None:
    """Prints one object, streaming its events: a run may have millions."""
    head = {
        "run_id": record.id,
        "status": status_of(store, record),
        "created": record.created,
        "updated": record.updated,
        "binding": record.binding,
        "results": [result(store, record, tally, number) for number in numbers],
    }
    print(dumps(head, ensure_ascii=False)[:-1] + ', "events": [', end="")
    comma = ""
    for event in store.events(record.id):
        if getattr(event, "question", None) in (None, *numbers):
            print(comma + event.model_dump_json(), end="")
            comma = ", "
    print("]}")


def _show_step(store: RunStore, record: RunRecord, step: int, outcome: Outcome) -> None:
    """Shows one step in full, and the compaction before it; raises a ConfigError if there is no such step."""
    events = [event for event in store.events(record.id) if getattr(event, "step", None) == step]
    if not events:
        count = plural(Tally.of(store, record).steps, "step")
        raise ConfigError(f"--step {step}: run {record.id!r} has made {count}, numbered from 0")
    if outcome.display is Display.JSON:
        bodies = [event.model_dump(mode="json") for event in events]
        outcome.tell({"run_id": record.id, "step": step, "events": bodies})
        return
    Steps(outcome.paper, turns_of(store.events(record.id)), whole=True).write(events)


def _show_chunk(
    store: RunStore, record: RunRecord, numbers: Iterable[int], chunk: int, outcome: Outcome
) -> None:
    """Shows the conversations about one chunk; raises a ConfigError if no question has a finished call about it."""
    # Chunk N is at N or later: an extraction may have several replies about a chunk, and chunks may be read again.
    matches: list[tuple[int, Conversation]] = []
    for number in numbers:
        conversations = store.conversations(record.id, number)
        talks = (conversations[place] for place in range(chunk, len(conversations)))
        matches += [(number, talk) for talk in talks if talk.chunk == chunk]
    if not matches:
        books = Tally.of(store, record).notebooks
        count = plural(max(books[number].read for number in numbers), "chunk")
        raise ConfigError(f"--chunk {chunk}: run {record.id!r} has read {count}, numbered from 0")
    if outcome.display is Display.JSON:
        steps = [{"question": n} | talk.model_dump(mode="json") for n, talk in matches]
        outcome.tell({"run_id": record.id, "chunk": chunk, "steps": steps})
        return
    paper = outcome.paper
    for number, conversation in matches:
        if matches[0][0] != matches[-1][0]:
            paper.line((f"question {number}: {record.binding['questions'][number]}", "bold cyan"))
        for message in conversation.messages:
            paper.line((f"--- {message.role}", "bold"))
            paper.line(message.content)
            paper.line("")


def _show_quotes(
    store: RunStore, record: RunRecord, numbers: Sequence[int], file: str | None, outcome: Outcome
) -> None:
    """Shows, for each sentence of the answers and memories, the document's sentence with most of its words."""
    if (document := open_again(record, file)) is None:
        raise DocumentRequired(f"run {record.id!r} read no file by its path; give --document FILE")
    books, latest = Tally.of(store, record).notebooks, store.latest(record.id, "chunk")
    mark = latest and latest[1]["mark"]
    matches = {
        number: drive(align(document, (books[number].answer or "", books[number].memory), mark))
        for number in numbers
    }
    if outcome.display is Display.JSON:
        rows = [{"question": n} | asdict(quote) for n in matches for quote in matches[n]]
        outcome.tell({"run_id": record.id, "quotes": rows})
        return
    for number, quotes in matches.items():
        if len(matches) > 1:
            outcome.paper.line((f"question {number}: {books[number].question}", "bold cyan"))
        for quote in quotes:
            place = quote.place or f"characters {quote.start:,} to {quote.end:,}"
            prefix = f"{quote.score:.2f} {place if quote.text else 'not found'}: "
            outcome.paper.line((prefix, "dim"), quote.text or quote.sentence)


def report(
    store: RunStore, record: RunRecord, tally: Tally, outcome: Outcome, seconds: float | None = None
) -> int:
    """Shows a run's answers and rows, their cost (`seconds` in this session), and how to resume it if one is missing.

    Returns the exit code: 0, or 6 if an answer is missing or partial.
    """
    has_many = len(tally.notebooks) > 1
    answers = [(book, book.answer) for book in tally.notebooks if book.answer is not None]
    lines = outcome.rows.lines() if outcome.rows and not outcome.out else ()
    if outcome.display is Display.JSON:
        rows = outcome.rows.to_dict() if outcome.rows else {}
        outcome.tell(rows | as_json(store, record, tally))
    elif outcome.display is Display.NONE:
        for text in lines or (answer for _, answer in answers):
            print(clean(text) if sys.stdout.isatty() else text)
        if any(book.truncated for book in tally.notebooks):
            say(CUT_OFF, style="yellow")
    else:
        if seconds is not None and outcome.display is Display.PLAIN:
            print()
        for book, answer in answers:
            answer_text = clean(answer).strip() + SO_FAR * book.partial
            if outcome.display is Display.FULL:
                from rich.panel import Panel
                from rich.text import Text

                title = Text(shorten(book.question, TITLE), overflow="ellipsis")
                text = Text(answer_text, style="bold")
                panel = Panel(text, title=title, title_align="left", border_style="green")
                console(sys.stdout).print(panel)
            else:
                print(f"{clean(book.question)}\n" if has_many else "", end="")
                print(f"answer: {answer_text}\n")
            if book.truncated:
                outcome.paper.line((CUT_OFF, "yellow"))
        facts = [] if outcome.store is None else [f"run {record.id}"]
        facts += costs(store.usage(record.id), tally)
        facts += [] if seconds is None else [duration(seconds)]
        outcome.paper.line((" · ".join(facts), "dim"))
        for line in lines:
            print(line)
    missing = [book for book in tally.notebooks if book.answer is None or book.partial]
    for book in missing:
        to = f" to {book.question!r}" if has_many else ""
        heading = f"the answer{to} may be incomplete:" if book.partial else f"no answer{to}:"
        say(heading, book.detail, style="bold yellow")
    if missing:
        outcome.say_resume(record.id, " ".join(book.detail for book in missing))
    return NO_ANSWER if missing else 0


def costs(usage: Usage, tally: Tally) -> list[str]:
    """Returns a run's output, its cost, and why it ended, as parts of a line."""
    output = [plural(tally.made, "chunk")]
    if tally.steps:
        output = [plural(tally.steps, "step"), plural(tally.summaries, "summary")]
    reasons = dict.fromkeys(book.reason.replace("_", " ") for book in tally.notebooks)
    return [*output, *list_costs(usage), " and ".join(reasons)]


def list_costs(usage: Usage) -> list[str]:
    """Returns the cost of calls, as parts of a line."""
    prompts, completions = amount(usage.prompt_tokens), amount(usage.completion_tokens)
    parts = [plural(usage.calls, "call"), f"{prompts} prompt + {completions} completion tokens"]
    if usage.retries:
        waste = f" ({amount(usage.retry_tokens)} tokens)" if usage.retry_tokens else ""
        parts.append(plural(usage.retries, "retry") + waste)
    if usage.discarded:
        parts.append(f"{usage.discarded:,} sent ahead in vain")
    if usage.repeated:
        parts.append(f"{usage.repeated:,} repeated after an interruption")
    return parts


def as_json(store: RunStore, record: RunRecord, tally: Tally) -> dict[str, Any]:
    """Returns one object for one question; for several, the run's id and a list of such objects."""
    objects = [result(store, record, tally, number) for number in range(len(tally.notebooks))]
    return objects[0] if len(objects) == 1 else {"run_id": record.id, "results": objects}


def result(store: RunStore, record: RunRecord, tally: Tally, number: int) -> dict[str, Any]:
    """Returns the result of one question, as JSON."""
    book = tally.notebooks[number]
    facts: dict[str, Any] = {
        "answer": book.answer,
        "stop_reason": book.reason,
        "detail": book.detail,
        "truncated": book.truncated,
        "partial": book.partial,
        "run_id": record.id,
        "model": record.binding["model"],
        "usage": store.usage(record.id, number).model_dump(),
    }
    if is_session(record):
        return facts | {
            "task": book.question,
            "tools": record.binding["tools"]["names"],
            "steps": tally.steps,
            "summaries": tally.summaries,
        }
    return facts | {
        "question": questions_of(record)[number],
        "document": record.source["name"],
        "memory": book.memory,
        "chunks": book.read,
    }
