"""Evaluates a policy on held-out samples: means by length, with 95% intervals."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from memagent.tasks.statistics import Estimate, estimate
from memagent_train.data.open import Data
from memagent_train.figures import RolloutFacts
from memagent_train.rollout.roll import RolloutRequest
from memagent_train.runs.ids import evaluation_id, seed_of


@dataclass(frozen=True)
class RewardEstimate(Estimate):
    """A mean reward, and what happened to the samples."""

    overlong: float
    """Share of samples that a limit ended."""
    error: str
    """Why the first sample without a reward has none."""


def measure(rollouts: Sequence[RolloutFacts]) -> RewardEstimate:
    """Computes the mean reward of one or more rollouts."""
    mean = summary([(rollout.task, rollout.reward) for rollout in rollouts])
    overlong = fmean(rollout.overlong for rollout in rollouts)
    error = next((rollout.error for rollout in rollouts if rollout.error), "no reason was given")
    return RewardEstimate(**vars(mean), overlong=overlong, error=error)


def by_length(held_out: Data, lengths: Sequence[int]) -> dict[int, Data]:
    """Returns the same samples at several lengths.

    Args:
        held_out: the held-out data.
        lengths: in tokens; 0 for samples at their natural length.

    Raises:
        ConfigError: they aren't available at a length.
    """
    return {length: held_out.at(length) if length else held_out for length in lengths}


def questions(
    data: Data, places: Sequence[int], *, length: int, step: int, seed: int
) -> list[RolloutRequest]:
    """Makes requests for one rollout of each sample. Blocks: makes the samples.

    Args:
        data: data of one length.
        places: indexes of the samples.
        length: length of the samples, for names.
        step: training steps so far, for names.
        seed: seed, combined with sample and length; the same at every step, so that steps are
            comparable.
    """
    requests: list[RolloutRequest] = []
    for place in places:
        sample, name = data.sample(place), evaluation_id(step, length, place)
        drawn = seed_of(seed, f"evaluation:{length}:{sample.index}")
        requests.append(RolloutRequest(sample, name, name, drawn))
    return requests


def summary(scores: Sequence[tuple[str, float | None]]) -> Estimate:
    """Computes the mean reward with its interval, all tasks weighted equally.

    It is estimated by `memagent.tasks.statistics.estimate`; a missing reward counts as 0. Rewards are assumed to lie
    between the smallest and the largest of 0, 1 and those seen, since a custom reward's range isn't known.

    Args:
        scores: task and reward of each sample, at least one.

    Raises:
        ConfigError: there is no sample.
    """
    strata: defaultdict[str, list[float | None]] = defaultdict(list)
    for task, score in scores:
        strata[task].append(score)
    rewards = [score for _, score in scores if score is not None]
    least, most = min(0.0, 1.0, *rewards), max(0.0, 1.0, *rewards)
    if (least, most) == (0.0, 1.0):
        return estimate(strata.values())
    width = most - least
    scaled = (
        [((score or 0.0) - least) / width for score in stratum] for stratum in strata.values()
    )
    scaled_estimate = estimate(scaled)
    return replace(
        scaled_estimate,
        mean=least + width * scaled_estimate.mean,
        low=least + width * scaled_estimate.low,
        high=least + width * scaled_estimate.high,
        unscored=len(scores) - len(rewards),
        scored_mean=sum(rewards) / len(rewards),
    )


def as_figures(one: RewardEstimate) -> dict[str, Any]:
    """Converts to plain data for `metrics.jsonl`; if nothing was scored, with the reason instead of a mean."""
    ends = {"mean": one.mean, "low": one.low, "high": one.high}
    counts = {"n": one.n, "unscored": one.unscored, "overlong": one.overlong}
    if one.scored_mean is not None:
        return ends | counts
    return dict.fromkeys(ends) | counts | {"error": one.error}
