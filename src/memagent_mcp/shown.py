"""Results of tools: bounded in size, with what is needed to read on."""

import json
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel

from memagent.cli.runs import questions_of
from memagent.memory.extraction import ROW, Extraction, stored_rows
from memagent.quotes import Quote
from memagent.run.result import Result, StopReason
from memagent.runstore import RunRecord, RunStore
from memagent.texts import repair_surrogates

PAGE = 8000
"""Maximum characters that `read_more` returns: about 2,000 tokens."""
ANSWER = 4000
"""Maximum characters of an answer."""
QUOTES, QUOTE = 8, 500
"""Maximum number of quotes, and characters of each."""
ASKED = 200
"""Maximum characters of a question in a list of runs."""
ROWS = 50
"""Maximum runs that `list_runs` returns."""

Part = Literal["answer", "memory", "document", "rows"]


class Evidence(BaseModel):
    """A sentence of the document that shares the words of the answer."""

    text: str
    place: str
    """Place such as `p. 12`; empty if the format has no places."""
    start: int
    """First character in the document: `read_more(part="document", start=...)` shows the text from there."""
    end: int


class Answer(BaseModel):
    """What a reading found."""

    answer: str | None
    """None if there is none yet: see `detail`."""
    detail: str
    """Why the answer is missing or incomplete, and how to read what isn't shown; else empty."""
    run_id: str
    chunks_read: int
    calls: int
    prompt_tokens: int
    completion_tokens: int
    quotes: list[Evidence]


class Rows(BaseModel):
    """What an extraction found."""

    rows: list[dict[str, Any]]
    """The first rows (`row`) with their places."""
    total: int
    invalid: int
    """Number of rows that didn't follow the schema: the total may lack them."""
    finished: bool
    detail: str
    run_id: str
    chunks_read: int
    calls: int


class Page(BaseModel):
    """Part of a text."""

    text: str
    start: int
    end: int
    """Where to continue; equal to `total` at the end. For rows, `start`, `end` and `total` are numbers of rows."""
    total: int


class Run(BaseModel):
    """A line of `list_runs`."""

    run_id: str
    status: str
    document: str
    question: str
    created: float
    """Creation time, in seconds since the epoch."""


def show_answer(result: Result, quotes: Iterable[Quote]) -> Answer:
    """Limits a result in size; its detail says how to read what is cut off."""
    detail, answer = _detail(result), result.answer
    if answer is not None and len(answer) > ANSWER:
        rest = f"The answer has {len(answer)} characters: read_more(run_id, 'answer', {ANSWER}) continues it."
        detail, answer = f"{detail}. {rest}" if detail else rest, answer[:ANSWER]
    usage = result.usage
    return Answer(
        answer=answer,
        detail=detail,
        run_id=result.run_id,
        chunks_read=result.chunks,
        calls=usage.calls,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        quotes=list_evidence(quotes),
    )


def show_rows(result: Extraction[Any], store: RunStore) -> Rows:
    """Limits an extraction in size. Blocks."""
    detail, page = _detail(result), read_rows(store, result.run_id, 0)
    if result.answer is not None and page.end < page.total:
        detail = f"read_more(run_id, 'rows', {page.end}) continues the rows."
    return Rows(
        # Not splitlines, which also splits at characters that JSON leaves in texts.
        rows=[json.loads(line) for line in page.text.split("\n") if line],
        total=page.total,
        invalid=len(result.invalid),
        finished=result.answer is not None,
        detail=detail,
        run_id=result.run_id,
        chunks_read=result.chunks,
        calls=result.usage.calls,
    )


def _detail(result: Result) -> str:
    """Says why there is no answer and how to continue; not for a limit, which the same call would reach again."""
    if result.answer is not None or result.stop_reason == StopReason.LIMIT:
        return result.detail
    hint = f"To continue, make the same call with run_id={result.run_id!r}."
    return f"{result.detail} {hint}".strip()


def read_rows(store: RunStore, run_id: str, start: int) -> Page:
    """Returns a page of an extraction's rows, one JSON line each; at least one. Blocks."""
    rows = stored_rows(store, run_id, ROW, dict[str, Any])
    total, lines, size = len(rows), list[str](), 0
    begin = min(max(0, start), total)
    for number in range(begin, total):
        body = rows[number]
        line = json.dumps(body | {"row": json.loads(body["row"])}, ensure_ascii=False)
        if lines and size + len(line) > PAGE:
            break
        lines.append(line)
        size += len(line) + 1
    return Page(text="\n".join(lines), start=begin, end=begin + len(lines), total=total)


def list_evidence(quotes: Iterable[Quote]) -> list[Evidence]:
    """Returns the first quotes that were found, each place once, beginning with those of the answer."""
    quotes_by_start = {quote.start: quote for quote in quotes if quote.text}
    return [
        Evidence(text=quote.text[:QUOTE], place=quote.place, start=quote.start, end=quote.end)
        for quote in list(quotes_by_start.values())[:QUOTES]
    ]


def cut_page(text: str, start: int) -> Page:
    """Returns a page of a text."""
    begin = min(max(0, start), len(text))
    end = min(len(text), begin + PAGE)
    return Page(text=text[begin:end], start=begin, end=end, total=len(text))


def read_document(store: RunStore, run_id: str, start: int) -> Page:
    """Returns a page of what a run has read of its document."""
    begin, parts, total = max(0, start), list[str](), 0
    for event in store.events(run_id, kind="chunk_read"):
        assert event.type == "chunk_read"
        total = event.end
        if event.end <= begin or event.start >= begin + PAGE:
            continue
        body = store.effect(run_id, f"chunk-{event.chunk}")
        text = body["text"] if body else ""
        if len(text) != event.end - event.start:  # something in it was neutralised
            text = text.replace("\u2060", "")
        parts.append(text[max(0, begin - event.start) : begin + PAGE - event.start])
    begin = min(begin, total)
    text = "".join(parts)
    return Page(text=text, start=begin, end=min(total, begin + PAGE), total=total)


def show_run(record: RunRecord, status: str) -> Run:
    """Returns a line about a run."""
    return Run(
        run_id=record.id,
        status=status,
        document=repair_surrogates(record.source["path"]),
        question=repair_surrogates("; ".join(questions_of(record))[:ASKED]),
        created=record.created,
    )
