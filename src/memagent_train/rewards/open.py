"""Verifies rollouts: gives each its reward, or the reason why it has none."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from memagent.errors import ConfigError, MemagentError
from memagent.messages import Completion
from memagent.models.base import ChatModel
from memagent.prompts.reply import UnusableReply, find_answer, visible
from memagent.tasks import SCORERS, Sample
from memagent.texts import repair_surrogates
from memagent.threads import in_thread
from memagent_train.agents import is_async
from memagent_train.rewards.functions import AwaitedReward, describe, load_reward
from memagent_train.rewards.gates import gate_rewards
from memagent_train.rewards.judge import JudgeReward
from memagent_train.rewards.pool import PooledReward
from memagent_train.rewards.scored import ScoreReward, check_scorer, score_answer
from memagent_train.rewards.settings import AnswerForm, RewardSettings
from memagent_train.rewards.verdict import REWARD, Reward, Verdict, read_verdict
from memagent_train.rollouts import Rollout, Status

TASK = "task"
"""Name of the default reward: the agent's own if its outcome has one, else the task's score."""


class Rewards:
    """Verifies rollouts with one reward. Safe to use from several tasks and event loops.

    Args:
        reward: gives the verdicts.
        settings: the other reward settings.
    """

    def __init__(self, reward: Reward, settings: RewardSettings) -> None:
        self._reward, self._settings = reward, settings

    async def verify(self, rollout: Rollout) -> Rollout:
        """Returns the rollout with its reward, or with the reason why it has none. Doesn't raise.

        A rollout without an answer is judged too: not finding one is the policy's fault, and most rewards give 0.
        """
        try:
            verdict = await self._verdict(rollout)
        except MemagentError as error:
            verdict = Verdict(None, error=str(error))
        except (
            Exception,
            asyncio.CancelledError,
        ) as error:  # one rollout's error must not end the others
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            verdict = Verdict(None, error=f"the reward failed: {describe(error)}")
        unscored = verdict.reward is None
        scores = {**rollout.scores, **verdict.scores}
        return replace(
            rollout,
            status=Status.UNSCORED if unscored else Status.SCORED,
            reward=verdict.reward,
            # A lone surrogate in a user's texts can't be logged.
            scores={repair_surrogates(name): score for name, score in scores.items()},
            step_rewards=gate_rewards(rollout)
            if self._settings.gate_reward and not unscored
            else rollout.step_rewards,
            error=repair_surrogates(verdict.error),
        )

    async def aclose(self) -> None:
        """Ends processes and closes connections; calling it again does nothing."""
        await self._reward.aclose()

    async def _verdict(self, rollout: Rollout) -> Verdict:
        answer = answer_in(rollout.answer, self._settings.answer_form)
        if self._settings.use.strip() == TASK and rollout.reward is not None:
            verdict = read_verdict({REWARD: rollout.reward})  # an agent's reward may be NaN
        else:
            verdict = await self._reward.judge(answer, rollout.sample)
        if not self._settings.beside:
            return verdict
        beside = await in_thread(_scores, self._settings.beside, answer or "", rollout.sample)
        return replace(verdict, scores={**beside, **verdict.scores})


def answer_in(reply: str | None, form: AnswerForm) -> str | None:
    r"""Finds the answer in a reply: all of it (`given`), or the content of its last `\boxed{...}` or last sentence.

    None if there is no reply, or it doesn't have the form.
    """
    if reply is None or form == "given":
        return reply
    try:
        return find_answer(visible(Completion(text=reply)), form)
    except UnusableReply:
        return None


def _scores(names: Sequence[str], answer: str, sample: Sample) -> dict[str, float]:
    """Returns scores by name, except those that the references don't allow: a logged score must not cost the reward."""
    scores: dict[str, float] = {}
    for name in names:
        with suppress(ConfigError):
            scores[name] = score_answer(name, answer, sample).reward or 0.0
    return scores


def open_rewards(settings: RewardSettings, *, judge: ChatModel | None = None) -> Rewards:
    """Opens the reward that the settings name. Blocks: a user's function is imported, and its processes start.

    Args:
        settings: the section `[reward]`.
        judge: replaces the judge model in the settings; it isn't closed.

    Returns:
        The verifier; `aclose` it after use.

    Raises:
        ConfigError: there is no such reward, or it can't be imported, here or in another process.
    """
    for name in settings.beside:
        check_scorer(name)
    return Rewards(_reward(settings, judge), settings)


def _reward(settings: RewardSettings, judge: ChatModel | None) -> Reward:
    use = settings.use.strip()
    if use == "judge":
        return JudgeReward(settings.judge, cap=settings.max_answer_words, model=judge)
    if ":" not in use:
        if use != TASK and use != "values" and use not in SCORERS:
            raise ConfigError(
                f"there is no reward {use!r} (known: task, values, judge, {', '.join(SCORERS)}, or your own "
                f"function as 'module:function')"
            )
        return ScoreReward(use, settings.max_answer_words)
    function = load_reward(use)
    if is_async(function):
        return AwaitedReward(function, settings.time_limit)
    return PooledReward(use, workers=settings.workers, limit=settings.time_limit)
