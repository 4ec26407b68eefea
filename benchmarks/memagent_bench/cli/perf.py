"""`memagent-bench perf`: memagent beside other ways to read the same document."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli.exits import NO_ANSWER, Outcome, report_errors
from memagent.cli.options import Display, option
from memagent_bench.lengths import parse_lengths

COMMAND = "memagent-bench perf"


@dataclass(frozen=True, kw_only=True)
class Perf:
    """The options of `perf`."""

    tokenizer: Annotated[Path, option("The model's tokenizer.json.", "FILE")]
    base_url: Annotated[
        str | None,
        option("Server of a real model. Default: one that answers at once.", "URL"),
    ] = None
    model: Annotated[str, option("Name of the served model.", "NAME", default=True)] = "instant"
    lengths: Annotated[str, option("Lengths of the documents, in tokens.", "L,L", default=True)] = (
        "8k,64k,512k,4m"
    )
    readers: Annotated[
        str | None, option("Readers by name, such as memagent,floor. Default: all.", "N,N")
    ] = None
    rounds: Annotated[int, option("Readings by each.", "N", low=1, default=True)] = 3
    window: Annotated[int, option("Tokens of prompt and reply.", "N", low=1, default=True)] = 8192
    chunk: Annotated[int, option("Tokens of a chunk.", "N", low=1, default=True)] = 5000
    reply: Annotated[int, option("Maximum tokens of a reply.", "N", low=1, default=True)] = 1024
    prompts: Annotated[str, option("memagent's prompt set.", "NAME", default=True)] = "plain"
    write: Annotated[
        Path | None,
        option(f"Page with a mark <!-- measured: {COMMAND} --> to put the tables in.", "PAGE"),
    ] = None


def perf(given: Perf) -> None:
    """Measure memagent beside LangChain, LlamaIndex and a plain script: time, tokens, memory.

    All read the same documents, in processes of their own, in turns. Needs the extra `peers`. Exits with 6 if memagent
    misses a target.
    """
    with report_errors(Outcome(Display.PLAIN)):
        from memagent_bench.perf import compare
        from memagent_bench.perf.measure import Row, show, split_page, table

        chosen = {} if given.readers is None else {"readers": tuple(given.readers.split(","))}
        setting = compare.Setting(
            lengths=parse_lengths(given.lengths),
            rounds=given.rounds,
            tokenizer=given.tokenizer,
            base_url=given.base_url,
            model=given.model,
            window=given.window,
            chunk=given.chunk,
            reply=given.reply,
            prompts=given.prompts,
            **chosen,
        )
        mark = COMMAND if given.base_url is None else f"{COMMAND} --base-url"
        if given.write is not None:
            split_page(given.write, mark)  # before the measurement, not after it
        where = compare.where(setting)  # while the server can be asked for its version
        readings: compare.Found = {}
        rows: list[Row] = []
        page = None  # a comparison that ended early is printed only
        try:
            for length, passes in compare.measure(setting):
                readings[length] = passes
            page = given.write
        finally:
            if readings:
                rows = compare.rows(readings)
                parts = (
                    where,
                    compare.tables(readings, answers=given.base_url is not None),
                    table(rows) if rows else "",
                    compare.note(readings),
                )
                show("\n\n".join(filter(None, parts)) + "\n", mark, page)
    if any(row.good is False for row in rows):
        raise typer.Exit(NO_ANSWER)
