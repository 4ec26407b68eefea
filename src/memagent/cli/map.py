"""`memagent map`: asks one question about many documents."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from memagent.cli.exits import NO_ANSWER, Outcome, report_errors
from memagent.cli.options import RUN, Display, argument, option
from memagent.cli.session import drive
from memagent.cli.setup import Ask, chosen_display, chosen_store
from memagent.documents.files import list_files
from memagent.errors import ConfigError, DocumentNotFound
from memagent.terminal import shorten
from memagent.texts import plural
from memagent.threads import in_thread

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent

NOT_MAPPED = ("questions", "json", "encoding", "errors")
"""Options of `ask` that apply only to a single document."""
WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class Map(Ask):
    """The options of `map`: those of `ask`, and the output file."""

    doc: Annotated[
        str,
        argument("DOCS", "A folder, or a pattern in quotes: 'docs/*.txt'; [b]**[/] is any depth."),
    ]
    out: Annotated[
        Path | None,
        option(
            "File to append a JSON line per document to. Documents with an answer there are skipped. "
            "Default: standard output.",
            "FILE",
            panel=RUN,
        ),
    ] = None
    concurrency: Annotated[
        int, option("Documents read at once.", "N", panel=RUN, low=1, default=True)
    ] = 8


def map_documents(given: Map) -> None:
    """Ask one question about each of many documents, several at once.

    Started again with the same [b]--out[/], it continues where it stopped and tries failed documents again.
    """
    outcome = Outcome(chosen_display(given.display), given.again())
    with report_errors(outcome):
        (question,) = given.list_questions()
        paths = find(given.doc)
        from memagent.runstore.lock import hold_file

        with ExitStack() as held:
            done, rows = set[str](), None
            if given.out is not None:
                held.enter_context(hold_file(given.out))
                done = clear(given.out)
                rows = held.enter_context(given.out.open("a", encoding="utf-8"))
            outcome.store = store = chosen_store(given.store, durable=given.durable)
            left = [path for path in paths if path not in done]
            if len(left) < len(paths):
                known = f"{len(paths) - len(left):,} of {len(paths):,} have an answer"
                outcome.paper.line((known, "dim"))
            agent = replace(given, run_id=None).agent(store)
            missing = drive(_map(agent, given, left, question, rows, outcome))
    if missing:
        raise typer.Exit(NO_ANSWER)


async def _map(
    agent: MemoryAgent,
    given: Map,
    paths: list[str],
    question: str,
    rows: IO[str] | None,
    outcome: Outcome,
) -> int:
    """Number of documents without an answer."""
    missing = count = 0
    async with agent:
        prefix = given.run_id or "map"
        async for found in agent.amap(
            map(Path, paths), question, concurrency=given.concurrency, run_id=prefix
        ):
            row = found.to_dict()
            count, missing = count + 1, missing + (row["answer"] is None)
            line = json.dumps(row, ensure_ascii=False)
            if rows is None:
                print(line, flush=True)
                continue
            await in_thread(print, line, file=rows, flush=True)
            if outcome.display is not Display.NONE:
                said = row["answer"] or row.get("error") or row["detail"]
                where = f"{count:,} of {len(paths):,} {found.name}: "
                outcome.paper.line((where, "dim"), shorten(said, WIDTH))
    if missing:
        left = f"{plural(missing, 'document')} without an answer: run it again"
        outcome.paper.line((left, "yellow"))
    return missing


def find(pattern: str) -> list[str]:
    """The files of a folder (at any depth) or a pattern, sorted.

    Raises:
        DocumentNotFound: there are none.
    """
    _, found = list_files(Path(pattern).expanduser())
    files = list(map(str, found))
    if not files:
        raise DocumentNotFound(
            f"{pattern!r} matches no file: give a folder, or a pattern in quotes"
        )
    return files


def clear(out: Path) -> set[str]:
    """Removes rows without an answer, and an incomplete last row, from a file; returns the documents of the rest.

    Raises:
        ConfigError: a line is not a row of `memagent map`.
    """
    if not out.exists():
        return set()
    kept: dict[str, str] = {}
    lines = out.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        if not line or number == len(lines):  # the last one has no newline: it was interrupted
            continue
        try:
            row: dict[str, Any] = json.loads(line)
            if row["answer"] is not None:
                kept[row["document"]] = line
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"line {number} of {str(out)!r} is not a row of memagent map: name another file with --out"
            ) from error
    fresh = out.with_name(out.name + ".new")
    fresh.write_text("".join(f"{line}\n" for line in kept.values()), encoding="utf-8")
    fresh.replace(out)
    return set(kept)
