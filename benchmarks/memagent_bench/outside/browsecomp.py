"""BrowseComp-Plus: questions whose answers take many searches in a fixed collection of documents.

Reads the decrypted questions (`query_id`, `query`, `answer`, and if present `evidence_docs`) and the corpus
(`docid`, `text`), both as JSON lines or parquet, in one folder. The benchmark's own scorer judges answers with a
language model; `memagent-bench` writes its input files, and itself only compares words.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, Field, field_validator

from memagent.errors import ToolError
from memagent.tasks.scores import equivalent
from memagent.texts import quote
from memagent.threads import in_own_thread
from memagent.tools import Tool, tool
from memagent_bench.games.transcript import call
from memagent_bench.length_tokens import gpt2
from memagent_bench.outside.base import BadData, Solution, TaskEnvironment
from memagent_bench.outside.corpus import Corpus
from memagent_bench.outside.rows import SUFFIXES, find_files, read_rows
from memagent_bench.sessions.record import Reason, SessionRecord

RESULTS, SNIPPET = 5, 512
"""Documents per search, and tokens shown of each: as published."""
CHARS = 12
"""Upper bound of the average characters per token."""
QUERY = 20_000
"""Maximum characters of a query: the longest question has 2,000."""
ANSWER = 20_000
"""Characters of an answer that are judged, from its end."""
EXACT = re.compile(r"^[^\w\n]*Exact Answer[^\w\n]*:\s*(.+?)\s*$", re.IGNORECASE | re.MULTILINE)
ASK = """Answer a question by searching a fixed collection of documents with the tools `search` and `get_document`.

Question: {question}

When you know the answer, reply with three lines:
Explanation: why, with the ids of the documents that show it in square brackets
Exact Answer: the answer alone
Confidence: how sure you are, from 0% to 100%"""


class Evidence(BaseModel):
    """A document that the answer needs."""

    docid: str = Field(coerce_numbers_to_str=True)


class Question(BaseModel):
    """A row of the questions."""

    query_id: str = Field(coerce_numbers_to_str=True)
    query: str
    answer: str
    evidence_docs: tuple[Evidence, ...] = ()

    @field_validator("evidence_docs", mode="before")
    @classmethod
    def _from_ids(cls, value: Any) -> Any:
        if not isinstance(value, list):
            return value or ()
        rows = cast("list[Any]", value)
        return [row if isinstance(row, dict) else {"docid": row} for row in rows]


@dataclass(frozen=True)
class BrowseCompPlus:
    """The suite."""

    name: str = "browsecomp-plus"
    licence: str = ""
    runs_code: bool = False

    def files(self, data: Path) -> list[Path]:
        """See `Suite.files`."""
        questions, documents = _sort(data)
        return questions + documents

    def tasks(self, data: Path) -> Iterator[BrowseTask]:
        """See `Suite.tasks`."""
        questions, documents = _sort(data)
        corpus = Corpus(documents, data if data.is_dir() else data.parent)
        for path in questions:
            for row in read_rows(path):
                question = row.read(Question)
                if " " not in question.query.strip():
                    raise BadData(
                        f"{row.where}: the query {quote(question.query)} is still encrypted: run the benchmark's "
                        f"decrypt_dataset.py, and give its output"
                    )
                yield BrowseTask(question, corpus)


@dataclass(frozen=True)
class BrowseTask:
    """A question."""

    question: Question
    corpus: Corpus

    @property
    def id(self) -> str:
        """Id of the question."""
        return self.question.query_id

    def open(self) -> BrowseEnvironment:
        """See `Task.open`."""
        return BrowseEnvironment(self.question, self.corpus)


class BrowseEnvironment(TaskEnvironment):
    """A question in progress."""

    def __init__(self, question: Question, corpus: Corpus) -> None:
        super().__init__(ASK.format(question=question.query), tuple(self._offers()))
        self._question, self._corpus = question, corpus
        self._calls: Counter[str] = Counter()
        self._retrieved: dict[str, None] = {}

    def _offers(self) -> Iterator[Tool]:
        async def search(query: str) -> list[dict[str, Any]]:
            """Finds the 5 documents that match a query best, with the beginning of each.

            Args:
                query: words to look for.
            """
            return await in_own_thread(partial(self._search, query))

        async def get_document(docid: str) -> dict[str, str]:
            """Shows a whole document.

            Args:
                docid: its id, as `search` gives it.
            """
            return await in_own_thread(partial(self._read, docid))

        # The first search builds the index.
        for function in (search, get_document):
            yield tool(function, read_only=True, timeout=7200)

    def _search(self, query: str) -> list[dict[str, Any]]:
        self._count("search")
        if len(query) > QUERY:
            raise ToolError(f"the query has {len(query):,} characters; {QUERY:,} is the most")
        hits = self._corpus.search(query, RESULTS)
        self._retrieved.update(dict.fromkeys(hit.docid for hit in hits))
        return [
            {"docid": hit.docid, "score": round(hit.score, 3), "snippet": snippet(hit.text)}
            for hit in hits
        ]

    def _read(self, docid: str) -> dict[str, str]:
        self._count("get_document")
        text = self._corpus.document(docid)
        if text is None:
            raise ToolError(
                f"there is no document {quote(docid)}; ids are in the results of search"
            )
        return {"docid": docid, "text": text}

    def _count(self, name: str) -> None:
        self.take_step()
        self._calls[name] += 1

    def _judge(self, answer: str) -> float:
        """Returns 1 if the words are the reference's. A judge accepts other wordings too, so this is a lower bound."""
        answer = answer[-ANSWER:]
        exact = EXACT.findall(answer)
        return equivalent(exact[-1].strip("*_ ") if exact else answer, [self._question.answer])

    def solve(self) -> Solution:
        """Searches for the question, and reads the documents that the data call evidence."""
        question = self._question
        reading = (
            call("get_document", docid=document.docid) for document in question.evidence_docs
        )
        return Solution(
            (call("search", query=question.query), *reading),
            f"Explanation: as the data say\nExact Answer: {question.answer}\nConfidence: 100%",
        )

    def export(self, folder: Path, record: SessionRecord) -> None:
        """Writes one file per question, in the form of the benchmark's `evaluate_run.py`, in a folder per system."""
        answered = record.reason is Reason.ANSWERED
        output = [{"type": "output_text", "output": record.answer}] if answered else []
        run = {
            "query_id": self._question.query_id,
            "tool_call_counts": dict(self._calls),
            "status": "completed" if answered else record.reason.value,
            "retrieved_docids": list(self._retrieved),
            "result": output,
        }
        place = folder / "scorer" / _plain(f"{record.arm.label} seed={record.seed}")
        place.mkdir(parents=True, exist_ok=True)
        text = json.dumps(run, ensure_ascii=False, indent=1)
        (place / f"{_plain(self._question.query_id)}.json").write_text(text, "utf-8")


def snippet(text: str) -> str:
    """Returns the beginning of a document: 512 of GPT-2's tokens."""
    tokens = gpt2().encode(text[: SNIPPET * CHARS], disallowed_special=())
    return gpt2().decode(tokens[:SNIPPET], errors="ignore")


def _sort(data: Path) -> tuple[list[Path], list[Path]]:
    """Separates the files with questions from those with documents, by their first rows."""
    questions, documents = list[Path](), list[Path]()
    for path in find_files(data, SUFFIXES, "questions and documents of BrowseComp-Plus"):
        for row in islice(read_rows(path), 1):
            if "query_id" in row.fields:
                questions.append(path)
            elif "docid" in row.fields:
                documents.append(path)
    if not questions or not documents:
        lacks = "questions (query_id, query, answer)" if not questions else "a corpus (docid, text)"
        raise BadData(
            f"{str(data)!r} lacks {lacks}: put both into one folder, as JSON lines or parquet"
        )
    return questions, documents


def _plain(name: str) -> str:
    return re.sub(r"[^\w.=-]+", "-", name).lstrip(".") or "-"
