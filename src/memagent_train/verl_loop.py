"""Runs memagent's agents in verl 0.9, whose trainer then trains them: an agent loop for `agent_loop_config_path`."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import (  # pyright: ignore[reportMissingImports]
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
)

from memagent.errors import BadResponse
from memagent.messages import FinishReason, Sampling
from memagent.threads import in_thread
from memagent_engines.transformers.loading import text_counter
from memagent_engines.transformers.sampler import Sampled
from memagent_train.agents import AgentFunction, load_agent
from memagent_train.config.train import load_train
from memagent_train.data.open import Data, open_data
from memagent_train.rewards.open import Rewards, open_rewards
from memagent_train.rollout.model import RolloutModel
from memagent_train.rollout.roll import RolloutRequest, roll
from memagent_train.rollouts import Rollout

STEPS = {"min_global_steps": min, "max_global_steps": max}
"""verl's names for the oldest and the newest version of the weights that drew a rollout."""
NOT_COUNTED = -1
"""verl's number of preemptions if an engine doesn't count them."""


class MemagentLoop(AgentLoopBase):
    """Runs the agent of a `memagent-train grpo` file on verl's servers, one rollout at a time.

    The file's `agent`, `data`, `reward`, `rollout.window` and `algorithm.overlong_mask` count; the rest is verl's.
    A row of verl's data names its sample: `extra_info.index` is the sample's number in the file's data.

    Args:
        config: the TOML file.
        **kwargs: verl's arguments.

    Raises:
        ConfigError: the file, or what it names, can't be loaded.
    """

    def __init__(self, *, config: str, **kwargs: Any) -> None:
        # Without the model's type: verl's own rendering isn't used, and must not refuse a template.
        super().__init__(**{**kwargs, "hf_model_type": None})
        self._task = _open(config, self.tokenizer)

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[Any]:
        """Makes one rollout.

        Args:
            sampling_params: verl's; they replace the agent's, except its `max_tokens`.
            **kwargs: a row of verl's data.

        Returns:
            An `AgentLoopOutput` for each conversation that has sampled tokens to train, all with the rollout's reward,
            the last call's at the end, where verl reads the advantage. Nothing if there is no reward: verl then
            leaves the rollout out of its group.

        Raises:
            IndexError: the data has no sample of that number.
            BadResponse: the engine aborted a call, or returned no log-probabilities.
        """
        limits = self.rollout_config
        window = limits.max_model_len or limits.prompt_length + limits.response_length
        sampler = _VerlSampler(self.server_manager, sampling_params, window, self.tokenizer)
        task, number = self._task, int(kwargs["index"])
        unique = uuid4()
        request = RolloutRequest(
            await in_thread(task.data.sample, number),
            group_id=str(kwargs.get("uid", number)),
            rollout_id=unique.hex,
            seed=unique.int & 0x7FFFFFFF,
        )
        model = RolloutModel(sampler, self.tokenizer, window=task.window)
        (rollout,) = await roll([request], model=model, agent=task.agent, verifier=task.rewards)
        if rollout.reward is None:
            logging.getLogger(__name__).warning(
                "sample %d: a rollout %s and is left out of its group: %s",
                *(number, rollout.status, rollout.error),
            )
        return outputs(rollout, sampler, overlong_mask=task.overlong_mask)


@dataclass(frozen=True)
class _Task:
    """What a file names, loaded and opened."""

    agent: AgentFunction
    data: Data
    rewards: Rewards
    window: int | None
    overlong_mask: bool


_OPENED: dict[str, _Task] = {}
"""Opened tasks by file. verl makes a loop per rollout; data and reward processes are opened once per worker."""


def _open(config: str, tokenizer: Any) -> _Task:
    if config not in _OPENED:
        settings = load_train(Path(config))
        _OPENED[config] = _Task(
            load_agent(settings.agent, store=None),
            open_data(settings.data, counter=text_counter(tokenizer)),
            open_rewards(settings.reward),
            settings.rollout.window,
            settings.algorithm.overlong_mask,
        )
    return _OPENED[config]


class _VerlSampler:
    """verl's servers as an engine. A rollout's calls go to the same server, which has their prefixes cached."""

    def __init__(self, servers: Any, params: dict[str, Any], window: int, tokenizer: Any) -> None:
        self._servers, self._params, self._end = servers, params, tokenizer.eos_token_id
        self._id = uuid4().hex
        self.window = window
        self.seconds = 0.0
        self.preempted = NOT_COUNTED
        self.steps: list[int] = []
        """Versions of the weights, as far as known."""

    def generating(self) -> AbstractContextManager[None]:
        """Does nothing: verl loads the weights."""
        return nullcontext()

    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        started = time.perf_counter()
        reply = await self._servers.generate(
            request_id=self._id,
            prompt_ids=list(prompt_ids),
            sampling_params={**self._params, "max_tokens": max_tokens, "logprobs": True},
        )
        self.seconds += time.perf_counter() - started
        if reply.num_preempted is not None:
            self.preempted = max(self.preempted, 0) + reply.num_preempted
        self.steps += [s for name in STEPS if (s := reply.extra_fields.get(name)) is not None]
        ids, logprobs = tuple(reply.token_ids), tuple(reply.log_probs or ())
        if not ids or len(ids) != len(logprobs) or reply.stop_reason in ("aborted", "abort"):
            raise BadResponse(
                f"verl's server: {len(ids)} ids came with {len(logprobs)} log-probabilities and "
                f"stop_reason={reply.stop_reason!r}; the rollout is left out"
            )
        # vLLM's servers say "completed" in both cases.
        cut_off = len(ids) >= max_tokens and ids[-1] != self._end
        return Sampled(ids, logprobs, FinishReason.LENGTH if cut_off else FinishReason.STOP)


def outputs(rollout: Rollout, sampler: _VerlSampler, *, overlong_mask: bool) -> list[Any]:
    """Converts a rollout to verl's form; see `MemagentLoop.run`."""
    if rollout.reward is None:
        return []
    masked = overlong_mask and rollout.overlong
    common = {
        **{name: of(sampler.steps) for name, of in STEPS.items() if sampler.steps},
        "reward_extra_info": {**rollout.scores, "overlong": float(rollout.overlong)},
        "turn_scores": [],
        "tool_rewards": [],
    }
    return [
        AgentLoopOutput(
            prompt_ids=list(row.prompt_ids),
            response_ids=list(row.response_ids),
            response_mask=[int(weight > 0 and not masked) for weight in row.loss_mask],
            response_logprobs=list(row.logprobs),
            reward_score=rollout.reward,
            num_turns=2 * len(row.spans),
            metrics=AgentLoopMetrics(
                generate_sequences=sampler.seconds,
                tool_calls=max(rollout.seconds - sampler.seconds, 0.0),
                num_preempted=sampler.preempted,
            ),
            extra_fields=dict(common),
        )
        for row in sorted(rollout.rows, key=lambda row: row.final)
        if row.sampled
    ]
