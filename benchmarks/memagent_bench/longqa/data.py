"""Questions and paragraphs from files: HotpotQA (distractor setting, MemAgent's), SQuAD 2.0, titled paragraphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from html import unescape
from pathlib import Path

from memagent.errors import DocumentError
from memagent_bench.longqa.forms import (
    HOTPOT_FORM,
    SQUAD_FORM,
    HotpotEntry,
    any_form,
    articles,
    content,
    hotpot,
    label_file,
)


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Text without white space at its ends."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question. Paragraphs are indexes into the collection that it belongs to."""

    text: str
    answers: tuple[str, ...]
    """Distinct forms of one answer."""
    gold: tuple[int, ...]
    """Paragraphs that an answer needs; empty if the data don't say."""
    given: tuple[int, ...]
    """Paragraphs that the data set gives with the question, in its order, including the gold ones."""
    near: tuple[int, ...]
    """Paragraphs used before all others: the given ones, and SQuAD's of the same article."""

    @property
    def needed(self) -> tuple[int, ...]:
        """Paragraphs without which a sample may have no answer."""
        return self.gold or self.given


@dataclass(frozen=True, eq=False)
class Collection:
    """The content of one data set. Equal only to itself, so that results computed from it can be cached."""

    name: str
    """File names with the beginning of their SHA-256, for records."""
    paragraphs: Sequence[Paragraph]
    """Distinct paragraphs, in the order of the files."""
    questions: Sequence[Question]
    left_out: int = 0
    """Number of questions whose gold paragraphs are in none of the files."""


@dataclass
class Pool:
    """Distinct paragraphs: differences in white space are ignored."""

    paragraphs: list[Paragraph] = field(default_factory=list[Paragraph])
    _known: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])

    def add(self, title: str, text: str) -> int:
        """Adds a paragraph if it is new; returns its index."""
        key = (clean_title(title), " ".join(text.split()))
        if key not in self._known:
            self._known[key] = len(self.paragraphs)
            self.paragraphs.append(Paragraph(key[0], text.strip()))
        return self._known[key]


def clean_title(title: str) -> str:
    """Returns a title as people write it: some of HotpotQA's have `&amp;` for `&`."""
    return " ".join(unescape(title).split())


@lru_cache(maxsize=2)
def hotpotqa(paths: tuple[Path, ...]) -> Collection:
    """Returns HotpotQA's questions, in order, without those whose gold paragraphs are in none of the files.

    Raises:
        DocumentError: a file cannot be read or has another form, or no file has a question.
    """
    pool = Pool()
    names: list[str] = []
    entries: dict[str, tuple[HotpotEntry, tuple[int, ...]]] = {}
    for path in paths:
        raw = content(path)
        names.append(label_file(path, raw))
        for entry in hotpot(path, raw):
            near = tuple(pool.add(t, "".join(s)) for t, s in entry.context if "".join(s).strip())
            entries.setdefault(entry.id or entry.question, (entry, near))
    by_title = {paragraph.title: i for i, paragraph in enumerate(pool.paragraphs)}
    questions: list[Question] = []
    for entry, near in entries.values():
        indexes = by_title | {pool.paragraphs[i].title: i for i in near}
        gold = [indexes.get(clean_title(title)) for title in entry.gold]
        gold_indexes = tuple(i for i in gold if i is not None)
        basis = gold_indexes or (near if entry.whole else ())
        if basis and len(gold_indexes) == len(gold) and entry.answer.strip():
            context = tuple(dict.fromkeys((*near, *gold_indexes)))
            answers = (entry.answer.strip(),)
            questions.append(Question(entry.question.strip(), answers, gold_indexes, context, near))
    left_out = len(entries) - len(questions)
    return _collection(names, pool, questions, left_out, paths, HOTPOT_FORM)


@lru_cache(maxsize=2)
def squad(path: Path) -> Collection:
    """Returns SQuAD's answerable questions, in order.

    Raises:
        DocumentError: the file cannot be read, has another form, or has no such question.
    """
    raw = content(path)
    pool = Pool()
    questions: list[Question] = []
    for article in articles(path, raw):
        parts = [part for part in article.paragraphs if part.context.strip()]
        near = tuple(pool.add(article.name, part.context) for part in parts)
        for gold, part in zip(near, parts, strict=True):
            for qa in part.qas:
                forms = tuple(dict.fromkeys(a.text.strip() for a in qa.answers if a.text.strip()))
                if forms and not qa.is_impossible:
                    text = qa.question.strip()
                    questions.append(Question(text, forms, (gold,), (gold,), near))
    return _collection([label_file(path, raw)], pool, questions, 0, (path,), SQUAD_FORM)


@lru_cache(maxsize=2)
def paragraphs(paths: tuple[Path, ...]) -> Collection:
    """Returns paragraphs without questions, from files of any of the three forms.

    Raises:
        DocumentError: a file cannot be read, has none of these forms, or has no paragraph.
    """
    pool = Pool()
    names: list[str] = []
    for path in paths:
        raw = content(path)
        names.append(label_file(path, raw))
        entries = [(title, text) for title, text in any_form(path, raw) if text.strip()]
        if not entries:
            raise DocumentError(f"{str(path)!r} has no paragraphs: give files with some")
        for title, text in entries:
            pool.add(title, text)
    return Collection(", ".join(names), pool.paragraphs, ())


def _collection(
    names: list[str],
    pool: Pool,
    questions: list[Question],
    left_out: int,
    paths: Sequence[Path],
    form: str,
) -> Collection:
    if not questions:
        files = ", ".join(repr(str(path)) for path in paths)
        raise DocumentError(
            f"no question in {files} has an answer and its gold paragraphs; expected {form}"
        )
    return Collection(", ".join(names), pool.paragraphs, questions, left_out)
