"""RULER's questions: SQuAD (qa_1) and HotpotQA (qa_2) among paragraphs of the same data, repeated if needed."""

from __future__ import annotations

from memagent_bench.longqa.questions import Manner, QuestionTask
from memagent_bench.longqa.sources import hotpotqa_of, squad_of
from memagent_bench.options import DataOptions


def qa_1(length: int, options: DataOptions) -> QuestionTask:
    """Asks SQuAD 2.0's answerable questions; other paragraphs of the same article come first.

    Raises:
        ConfigError: the data weren't found, or the wording is unusable.
        DocumentError: the file is unusable.
    """
    return QuestionTask("qa_1", length, options, squad_of(options), _manner(titled=False))


def qa_2(length: int, options: DataOptions) -> QuestionTask:
    """Asks HotpotQA's questions; the other paragraphs that the data give with a question come first.

    Raises:
        ConfigError: the data weren't found, or the wording is unusable.
        DocumentError: a file is unusable.
    """
    return QuestionTask("qa_2", length, options, hotpotqa_of(options), _manner(titled=True))


def _manner(*, titled: bool) -> Manner:
    return Manner(
        scorer="string_match_part",
        titled=titled,
        clean=False,
        fresh=False,
        further=False,
        repeats=True,
    )
