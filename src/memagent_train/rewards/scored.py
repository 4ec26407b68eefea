"""Scores as rewards: the benchmarks' scores by name, and Eq. 7 with a cap."""

from collections.abc import Sequence

from memagent.errors import ConfigError
from memagent.tasks import SCORERS, Sample
from memagent.texts import nearest
from memagent.threads import in_thread
from memagent_train.data.samples import TrainingSample
from memagent_train.rewards.verdict import Verdict

VALUES_WORDS = 64
"""Default cap of `values`: three times the words of a sentence with RULER's longest list, ten common words."""


def check_scorer(name: str) -> None:
    """Rejects unknown score names.

    Raises:
        ConfigError: it isn't a score; the message lists them.
    """
    if name not in SCORERS and name != "values":
        close = nearest(name, [*SCORERS, "values"])
        meant = f"; did you mean {close!r}?" if close else ""
        raise ConfigError(
            f"there is no score {name!r}{meant} (known: values, {', '.join(SCORERS)})"
        )


def check_references(name: str, references: Sequence[str]) -> None:
    """Rejects references that a score can't use.

    Raises:
        ConfigError: they are invalid for it; the message names one.
    """
    SCORERS["set_recall" if name == "values" else name]("", references)


def score_answer(name: str, answer: str, sample: Sample, cap: int | None = None) -> Verdict:
    """Returns an answer's score as its reward.

    `values` is Eq. 7 of MemAgent (arXiv 2507.02259), the share of the required values that the answer lists. Recall
    alone rewards listing everything in the document, so an answer with too many words gets 0, and
    the share of listed values that are required is logged as `precision`. The answer isn't cut at the cap: that would
    reward the beginning of a long list.

    Args:
        name: the score's name.
        answer: a text, without its form.
        sample: has the references.
        cap: maximum words of the answer; None for no cap, or `VALUES_WORDS` for `values`.

    Raises:
        ConfigError: there is no such score, or the references are invalid for it.
    """
    check_scorer(name)
    words = len(answer.split())
    cap = VALUES_WORDS if cap is None and name == "values" else cap
    scores = {"answer_words": float(words)}
    if name == "values":
        reward = scores["recall"] = SCORERS["set_recall"](answer, sample.outputs)
        scores["precision"] = SCORERS["set_precision"](answer, sample.outputs)
    else:
        reward = SCORERS[name](answer, sample.outputs)
    if cap is not None:
        scores["over_cap"] = float(words > cap)
        reward = 0.0 if words > cap else reward
    return Verdict(reward, scores)


class ScoreReward:
    """A score by name, or each sample's task score.

    Args:
        name: `task`, `values`, or a name in `memagent.tasks.SCORERS`.
        cap: maximum words of an answer; longer ones get 0.

    Raises:
        ConfigError: there is no such score.
    """

    def __init__(self, name: str, cap: int | None) -> None:
        if name != "task":
            check_scorer(name)
        self._name, self._cap = name, cap

    async def judge(self, answer: str | None, sample: Sample) -> Verdict:
        """See `Reward`. A missing answer gets 0."""
        name = _of_task(sample) if self._name == "task" else self._name
        # In a thread: most answers take microseconds, but an answer may be arbitrarily long.
        return await in_thread(score_answer, name, answer or "", sample, self._cap)

    async def aclose(self) -> None:
        """Does nothing: there are no resources."""


def _of_task(sample: Sample) -> str:
    if isinstance(sample, TrainingSample) and sample.scorer:
        return sample.scorer
    raise ConfigError(
        f"sample {sample.index} of {sample.task!r} does not name its score: name one in the reward's `use`"
    )
