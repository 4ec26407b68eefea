"""Finds the sentences that answer the questions of SQuAD and HotpotQA."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from memagent.tasks import Sample
from memagent_bench.haystacks import sentences
from memagent_bench.longqa.data import clean_title, hotpotqa, squad
from memagent_bench.longqa.forms import content, hotpot
from memagent_bench.longqa.questions import Manner, QuestionTask
from memagent_bench.options import DataOptions
from memagent_smol.story import Note

MANNER = Manner(
    scorer="sub_exact_match", titled=True, clean=True, fresh=True, further=False, repeats=False
)


class SquadQuestions:
    """SQuAD's questions at one length; the note is the sentence that contains the answer.

    Args:
        file: SQuAD's form.
        length: tokens of a document.
        options: data options.
        near: other documents are from the same article while there are any, then from others.
    """

    def __init__(self, file: Path, length: int, options: DataOptions, *, near: bool) -> None:
        manner = replace(MANNER, clean=not near)
        self.task = QuestionTask("squad", length, options, squad(file), manner)

    def notes(self, sample: Sample) -> tuple[Note, ...]:
        """Returns one note, or none if no sentence contains the whole first form of the answer."""
        answer = re.compile(rf"(?<!\w){re.escape(sample.outputs[0])}(?!\w)")
        for title, text in _paragraphs(sample):
            for sentence in sentences(text):
                if answer.search(sentence):
                    return (Note(sentence, title=title),)
        return ()


class HotpotQuestions:
    """HotpotQA's questions at one length; the notes are the supporting sentences.

    Args:
        file: HotpotQA's form, with `supporting_facts`.
        length: tokens of a document.
        options: data options.
    """

    def __init__(self, file: Path, length: int, options: DataOptions) -> None:
        self.task = QuestionTask("hotpotqa", length, options, hotpotqa((file,)), MANNER)
        self._supporting = _supporting(file)

    def notes(self, sample: Sample) -> tuple[Note, ...]:
        """Returns the notes of all gold paragraphs; none if the file names a sentence that it lacks."""
        supporting = next(
            facts
            for question, facts in self._supporting.items()
            if sample.question.startswith(question)
        )
        return tuple(
            Note(sentence, title=title)
            for title, text in _paragraphs(sample)
            for sentence in supporting.get(title, ())
            if sentence in text
        )


def _paragraphs(sample: Sample) -> list[tuple[str, str]]:
    """Returns titles and texts of the gold paragraphs, in document order."""
    paragraphs: list[tuple[str, str]] = []
    for place in sample.evidence:
        title, _, text = sample.context[place.start : place.end].partition("\n")
        paragraphs.append((title, text))
    return paragraphs


def _supporting(file: Path) -> dict[str, dict[str, list[str]]]:
    """Returns question -> title -> sentences."""
    questions: dict[str, dict[str, list[str]]] = {}
    for entry in hotpot(file, content(file)):
        texts = dict(entry.context)
        facts = questions.setdefault(entry.question.strip(), {})
        for title, number in entry.supporting_facts:
            if number < len(texts.get(title, ())):
                facts.setdefault(clean_title(title), []).append(texts[title][number].strip())
    return questions
