"""`memagent map`: asks one question about many documents."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from memagent.cli.exits import NO_ANSWER, Outcome, report_errors
from memagent.cli.options import RUN, argument, option
from memagent.cli.session import drive
from memagent.cli.setup import Ask, check_out, chosen_store
from memagent.documents.files import list_files
from memagent.errors import ConfigError, DocumentNotFound
from memagent.replacing import replacing
from memagent.terminal import say, shorten
from memagent.texts import expand, plural, repair_surrogates
from memagent.threads import in_thread

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent

NOT_MAPPED = ("questions", "json", "encoding", "errors")
"""Options of `ask` that apply only to a single document."""


@dataclass(frozen=True, kw_only=True)
class Map(Ask):
    """The options of `map`: those of `ask`, and the output file."""

    doc: Annotated[
        str, argument("DOCS", "A file, a folder, or a pattern in quotes ('docs/**/*.md').")
    ]
    question: Annotated[str, argument("QUESTION", "What to find out about each.")] = field()
    out: Annotated[
        Path | None,
        option(
            "File to append a JSON line per document to. Documents with an answer there are skipped if they didn't "
            "change. Default: standard output.",
            "FILE",
            panel=RUN,
        ),
    ] = None
    concurrency: Annotated[
        int, option("Documents read at once.", "N", panel=RUN, low=1, default=True)
    ] = 8
    run_id: Annotated[str, option("How runs' names begin.", "ID", panel=RUN, default=True)] = "map"


def map_documents(given: Map) -> None:
    """Ask one question about each of many documents, several at once.

    Started again with the same [b]--out[/], it continues where it stopped and tries failed documents again.
    """
    with report_errors(given.outcome()) as outcome:
        given.list_questions()
        special = given.out is not None and given.out.exists() and not given.out.is_file()
        if given.out is not None and not special:
            given = replace(given, out=given.out.resolve())  # a lock beside a link would be another
        paths = find(given.doc, given.out)
        from memagent.memory.corpus import name_run
        from memagent.runstore.lock import hold_folder

        with ExitStack() as stack:
            pending_paths, rows = paths, None
            outcome.store = store = chosen_store(given.store, durable=given.durable)
            agent = given.agent(store)
            outcome.repeats = True
            if outcome.for_people:  # on standard error, since rows may go to standard output
                at_once = min(given.concurrency, len(paths))
                pace = f", {at_once:,} at a time" * (at_once > 1)
                say("reading", plural(len(paths), "document") + pace, style="dim")
            if given.out is not None:
                out = given.out if given.out.parent.exists() else None
                check_out(out, store=store.path)
                if not special:  # a pipe or device can't be read back or replaced
                    stack.enter_context(hold_folder(given.out.parent, given.out.name))
                    runs = {
                        name_run(agent, Path(path), given.question, given.run_id): path
                        for path in paths
                    }
                    complete_runs = clear(given.out, runs)
                    pending_paths = [path for run, path in runs.items() if run not in complete_runs]
                rows = stack.enter_context(given.out.open("a", encoding="utf-8"))
            if len(pending_paths) < len(paths) and outcome.for_people:
                note = f"{len(paths) - len(pending_paths):,} of {len(paths):,} have an answer"
                outcome.paper.line((note, "dim"))
            missing = drive(_map(agent, given, pending_paths, rows, outcome))
    if missing:
        raise typer.Exit(NO_ANSWER)


async def _map(
    agent: MemoryAgent, args: Map, paths: list[str], rows: IO[str] | None, outcome: Outcome
) -> int:
    """Reads the documents, writes their rows, and returns how many have no answer."""
    missing = count = 0
    async with agent:
        async for reading in agent.amap(
            map(Path, paths), args.question, concurrency=args.concurrency, run_id=args.run_id
        ):
            row = reading.to_dict()
            count, missing = count + 1, missing + (row["answer"] is None)
            name = repair_surrogates(reading.name)  # a path need not be UTF-8
            line = json.dumps(row, ensure_ascii=name != reading.name)
            if rows is None:
                print(line, flush=True)
                continue
            await in_thread(print, line, file=rows, flush=True)
            if outcome.for_people:
                texts = filter(None, (row["answer"], row.get("error") or row["detail"]))
                place = f"{count:,} of {len(paths):,} {name}: "
                outcome.paper.line((place, "dim"), "; ".join(map(shorten, texts)))
    if missing:
        place = f'see "error" or "detail" in {args.out or "the rows"}'
        say(f"{plural(missing, 'document')} without an answer; {place}", style="yellow")
    return missing


def find(pattern: str, out: Path | None) -> list[str]:
    """Lists the files of a folder (at any depth) or a pattern, sorted; without the output file.

    Raises:
        DocumentNotFound: there are none.
    """
    _, paths = list_files(expand(pattern))
    files = [str(path) for path in paths if path.resolve() != out]
    if not files:
        raise DocumentNotFound(f"{pattern!r} matches no file: give a folder or a pattern in quotes")
    return files


def clear(out: Path, runs: Collection[str]) -> set[str]:
    """Drops a torn last row, and rows without an answer or of changed documents; returns the runs of the rest.

    Raises:
        ConfigError: a line is not a row of `memagent map`.
    """
    if not out.exists():
        return set()
    rows: dict[str, str] = {}
    stems = {run.rpartition("-")[0] for run in runs}  # without the digest of the document
    # A row that was interrupted may end in half a character, and other files need not be UTF-8.
    lines = out.read_text(encoding="utf-8", errors="surrogateescape").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row: dict[str, Any] = json.loads(line)
            answer, run = row["answer"], str(row["run_id"])
            is_foreign = stems.isdisjoint((run, run.rpartition("-")[0]))
            if is_foreign or (answer is not None and run in runs):
                rows[run] = line
        except (ValueError, KeyError, TypeError) as error:
            is_torn = number == len(lines) and line.startswith('{"document": ')
            if is_torn and isinstance(error, ValueError):
                continue
            raise ConfigError(
                f"line {number} of {str(out)!r} is not a row of memagent map: name another file with --out"
            ) from error
    if lines != [*rows.values(), ""]:
        text = "".join(f"{line}\n" for line in rows.values())
        with replacing(out) as new:
            new.write_text(text, encoding="utf-8", errors="surrogateescape")
    return set(rows)
