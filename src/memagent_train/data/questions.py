"""HotpotQA's and SQuAD's questions, with paragraphs hidden among others at new places for every sample and round."""

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from memagent.errors import ConfigError
from memagent.tokens import TokenCounter
from memagent_bench.longqa.data import Collection, Question
from memagent_bench.longqa.questions import GENERATE, QuestionTask
from memagent_bench.longqa.sources import FOLDER, hotpotqa_of, squad_of
from memagent_bench.longqa.tasks import hotpotqa, squad
from memagent_bench.options import DataOptions
from memagent_train.data.samples import TrainingSample
from memagent_train.data.settings import HotpotqaSettings, QuestionSettings, SquadSettings
from memagent_train.data.sources import BareQuestion, as_training, digest_of, draw_length
from memagent_train.data.tried_questions import drop_known
from memagent_train.errors import DataError

logger = logging.getLogger("memagent.train.data")

FRAME = 256
"""Tokens of instruction and question, and of possible extra tokens where paragraphs join."""
LONG = 16 * 1024
"""Tokens that are enough for the gold paragraphs of any question: HotpotQA's take at most 2,000."""
KEPT = 8
"""Cached tasks: one for each length of a round or two."""

Make = Callable[[int, DataOptions], QuestionTask]


class PlacedQuestions:
    """The questions of a collection, each among as many paragraphs as fit.

    Every round is a task with another seed, so gold paragraphs are in other places among other paragraphs.

    Args:
        settings: the source's settings.
        make: makes the task of one length.
        collection: the questions.
        options: options of all tasks, except the seed.

    Raises:
        ConfigError: the data is too small for a length, or no question remains.
        DocumentError: a file is unusable.
    """

    def __init__(
        self,
        settings: HotpotqaSettings | SquadSettings,
        make: Make,
        collection: Collection,
        options: DataOptions,
    ) -> None:
        self.name, self.lengths = settings.name or settings.kind, settings.lengths
        self._make, self._collection, self._options = make, collection, options
        self._task = lru_cache(maxsize=KEPT)(self._make_task)
        self.data = self._digest()
        """Digest of all questions and references, including those left out."""
        self._items, self._left_out = self._choose(settings)
        self._first: dict[str, str] = {}
        for length in self.lengths:
            task = self._task(length, 0)
            self.scorer = task.scorer
            self._first[str(length)] = digest_of(self.sample(0, 0, length))

    @property
    def facts(self) -> Mapping[str, Any]:
        """See `Source`."""
        longest = self._task(max(self.lengths), 0)
        task = {name: value for name, value in longest.facts.items() if name != "rounds"}
        return {
            **task,
            **self._left_out,
            "items": len(self),
            "lengths": self.lengths,
            "first": self._first,
            "digest": self.data,
        }

    def __len__(self) -> int:
        """Returns the number of remaining questions."""
        return len(self._items)

    @property
    def digests(self) -> npt.NDArray[np.uint64]:
        """See `QuestionSource`."""
        questions = (self._collection.questions[index] for index in self._items)
        hashes = (hashlib.blake2b(_encode(question), digest_size=8) for question in questions)
        return np.fromiter((int.from_bytes(found.digest()) for found in hashes), np.uint64)

    def read_question(self, item: int) -> BareQuestion:
        """See `QuestionSource`."""
        index = self._items[item]
        question = self._collection.questions[index]
        return BareQuestion(index, question.text, question.answers)

    def sample(self, item: int, round_: int, length: int | None = None) -> TrainingSample:
        """See `Source`. If a question's paragraphs don't fit the drawn length, the next longer one is used."""
        seed, index = self._options.seed, self._items[item]
        wanted = length or draw_length(self.lengths, seed, self.name, item, round_)
        longer = sorted(other for other in self.lengths if other > wanted) if length is None else []
        while True:
            task = self._task(wanted, round_)
            try:
                return as_training(task.sample(index), task.scorer)
            except ConfigError:
                if not longer:
                    raise
                wanted = longer.pop(0)

    def _make_task(self, length: int, round_: int) -> QuestionTask:
        digest = hashlib.sha256(f"{self._options.seed}:{self.name}:{round_}".encode()).digest()
        return self._make(length, replace(self._options, seed=int.from_bytes(digest[:6])))

    def _choose(self, settings: QuestionSettings) -> tuple[list[int], dict[str, int]]:
        """Returns the questions to ask; and the counts of those that fit (`asked`), and of those left out as known."""
        every = range(len(self._collection.questions))
        longest = max(settings.lengths)
        indexes = fit = [index for index in every if self._fits(index, longest)][: settings.count]
        if settings.no_context is not None:
            indexes = drop_known(fit, settings.no_context, settings.known, self.data)
        if not indexes:
            raise DataError(
                f"no question of {self.name!r} remains: of {len(every)}, {len(fit)} have paragraphs that fit "
                f"{longest} tokens, and all of these are known without them"
            )
        return indexes, {"asked": len(fit), "known": len(fit) - len(indexes)}

    def _fits(self, index: int, length: int) -> bool:
        if length >= LONG:
            return True
        question, count = self._collection.questions[index], self._options.counter.count
        gold = [self._collection.paragraphs[place] for place in question.gold]
        paragraphs = sum(count(f"{paragraph.title}\n{paragraph.text}") + 16 for paragraph in gold)
        return paragraphs + 2 * count(question.text) + FRAME + GENERATE <= length

    def _digest(self) -> str:
        running = hashlib.sha256()
        for question in self._collection.questions:
            running.update(_encode(question))
        return running.hexdigest()[:16]


def _encode(question: Question) -> bytes:
    return repr((question.text, question.answers)).encode("utf-8", "surrogatepass")


def open_hotpotqa(settings: HotpotqaSettings, counter: TokenCounter, seed: int) -> PlacedQuestions:
    """Opens HotpotQA's questions. Raises the errors of `PlacedQuestions`."""
    options = _options(settings, counter, seed, hotpotqa=settings.files)
    _warn_of_test_data(settings.name, named=bool(settings.files))
    return PlacedQuestions(settings, hotpotqa, hotpotqa_of(options), options)


def open_squad(settings: SquadSettings, counter: TokenCounter, seed: int) -> PlacedQuestions:
    """Opens SQuAD's answerable questions. Raises the errors of `PlacedQuestions`."""
    options = _options(settings, counter, seed, squad=settings.file)
    _warn_of_test_data(settings.name, named=settings.file is not None)
    return PlacedQuestions(settings, squad, squad_of(options), options)


def _warn_of_test_data(name: str, *, named: bool) -> None:
    if not named:
        logger.warning(
            "%s takes its questions from the folder %s, which the benchmarks use too: a policy trained on them "
            "cannot be measured on them. Name the files of a training set",
            name,
            FOLDER,
        )


def _options(
    settings: QuestionSettings, counter: TokenCounter, seed: int, **files: Any
) -> DataOptions:
    return DataOptions(
        counter=counter,
        seed=seed,
        positions="shuffled",
        allow_repeats=settings.allow_repeats,
        frames=settings.frames,
        paragraphs=settings.paragraphs,
        **files,
    )
