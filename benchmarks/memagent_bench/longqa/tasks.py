"""The long QA tasks by name: HotpotQA in the style of RULER-HQA, and SQuAD."""

from __future__ import annotations

from dataclasses import dataclass

from memagent.tasks import Sample, Task
from memagent.tokens import TokenCounter
from memagent_bench.longqa.questions import Manner, QuestionTask
from memagent_bench.longqa.sources import hotpotqa_of, squad_of
from memagent_bench.options import DataOptions, MakeTask

NOTHING = "(There is no document.)"


def hotpotqa(length: int, options: DataOptions) -> QuestionTask:
    """Asks HotpotQA's questions among its paragraphs, then further ones; gold places are drawn for each sample.

    Raises:
        ConfigError: the data weren't found, or are too few for the length.
        DocumentError: a file is unusable.
    """
    return QuestionTask("hotpotqa", length, options, hotpotqa_of(options), _manner(options))


def squad(length: int, options: DataOptions) -> QuestionTask:
    """Asks SQuAD's answerable questions likewise. No other paragraph is from the gold one's article.

    Raises:
        ConfigError: the data weren't found, or are too few for the length.
        DocumentError: the file is unusable.
    """
    return QuestionTask("squad", length, options, squad_of(options), _manner(options))


def _manner(options: DataOptions) -> Manner:
    return Manner(
        scorer="sub_exact_match",
        titled=True,
        clean=True,
        fresh=True,
        further=True,
        repeats=options.allow_repeats,
    )


@dataclass(frozen=True)
class WithoutContext:
    """The control: the same questions with nothing to read. A model's score here is prior knowledge.

    It is a task of its own, named `NAME_no_context`; its samples do not depend on the length, so one length is
    enough.
    """

    task: Task
    counter: TokenCounter
    """Counter of the task's lengths."""

    @property
    def name(self) -> str:
        """See `Task`."""
        return f"{self.task.name}_no_context"

    @property
    def scorer(self) -> str:
        """See `Task`."""
        return self.task.scorer

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        return {**self.task.facts, "context": "none"}

    def sample(self, index: int) -> Sample:
        """See `Task`."""
        sample = self.task.sample(index)
        changed = {"task": self.name, "context": NOTHING, "evidence": ()}
        control = sample.model_copy(update=changed)
        tokens = self.counter.count(control.prompt) + sample.generate
        return control.model_copy(update={"tokens": tokens})


def hotpotqa_no_context(length: int, options: DataOptions) -> WithoutContext:
    """Asks HotpotQA's questions with nothing to read. Raises what `hotpotqa` raises."""
    return WithoutContext(hotpotqa(length, options), options.counter)


def squad_no_context(length: int, options: DataOptions) -> WithoutContext:
    """Asks SQuAD's questions with nothing to read. Raises what `squad` raises."""
    return WithoutContext(squad(length, options), options.counter)


TASKS: dict[str, MakeTask] = {
    "hotpotqa": hotpotqa,
    "squad": squad,
    "hotpotqa_no_context": hotpotqa_no_context,
    "squad_no_context": squad_no_context,
}
