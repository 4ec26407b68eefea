"""Evaluates during training."""

from collections.abc import Mapping
from typing import Any

from accelerate.utils import gather_object

from memagent.messages import Sampling
from memagent_train.config.sections import EvaluationSettings
from memagent_train.data.open import Data
from memagent_train.figures import RolloutFacts, facts_of, raise_if_nothing_scored
from memagent_train.runs import metrics
from memagent_train.runs.evaluation import as_figures, measure, questions
from memagent_train.runs.folder import RunFolder
from memagent_train.runs.processes import Process
from memagent_train.runs.progress import SilentWatcher
from memagent_train.runs.rolling import Rolling


class HeldOut:
    """Evaluates on held-out samples when the settings say so, at most once per step.

    Args:
        data: held-out data by length.
        settings: when to evaluate, and how to sample.
        steps: steps of the whole training.
        seed: seed of the sampling.
        folder: the run's folder: evaluations of earlier sessions aren't repeated.
        process: this process, which answers its part of the samples.
    """

    def __init__(
        self,
        data: Mapping[int, Data],
        settings: EvaluationSettings,
        *,
        steps: int,
        seed: int,
        folder: RunFolder,
        process: Process,
    ) -> None:
        self.data = data
        self._settings, self._steps, self._seed = settings, steps, seed
        self._folder, self._process = folder, process
        self._done = metrics.list_evaluated(folder.metrics)

    def is_due(self, step: int) -> bool:
        """Returns whether to evaluate after this step."""
        settings = self._settings
        if not self.data or step in self._done:
            return False
        between = settings.every > 0 and step > 0 and step % settings.every == 0
        return between or step == self._steps or (step == 0 and settings.at_start)

    def evaluate(
        self, step: int, rolling: Rolling, *, kept: bool, watch: SilentWatcher
    ) -> dict[str, dict[str, Any]]:
        """Answers all samples, and records the means. All processes call this at the same time.

        Args:
            step: number of steps trained.
            rolling: answers the samples, with the current weights.
            kept: whether the memory agent's runs stay in the store.
            watch: receives the progress.

        Returns:
            Figures by length, of the samples of all processes.

        Raises:
            RolloutsFailed: no rollout finished.
            RewardFailed: none has a reward.
        """
        settings, process = self._settings, self._process
        policy = rolling.policy(Sampling(temperature=settings.temperature, top_p=settings.top_p))
        ended: dict[int, list[RolloutFacts]] = {}
        for length, data in self.data.items():
            places = range(process.index, len(data), process.count)
            watch.begin_rolling(len(places))
            requests = questions(data, places, length=length, step=step, seed=self._seed)
            answered = rolling.roll(
                requests, policy, kept=kept, on_done=lambda _: watch.note_rollout()
            )
            ended[length] = gather_object([facts_of(rollout) for rollout in answered])
        raise_if_nothing_scored(
            [rollout for group in ended.values() for rollout in group], "evaluation"
        )
        means = {str(length): as_figures(measure(group)) for length, group in ended.items()}
        self._done.add(step)
        if process.first:
            metrics.append(self._folder.metrics, step, {metrics.EVALUATION: means})
            watch.note_evaluation(step, means)
        return means
