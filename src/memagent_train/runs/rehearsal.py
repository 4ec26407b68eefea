"""An agent up to its first call, without weights: whether its prompts fit the window."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from transformers import AutoConfig

from memagent.budget import DEFAULT_WINDOW
from memagent.errors import ConfigError
from memagent.messages import Sampling
from memagent.tasks import Sample
from memagent_engines.transformers.loading import text_counter
from memagent_engines.transformers.sampler import Sampled
from memagent_train.agents import MEMORY, TOOLS, load_agent
from memagent_train.config.train import TrainConfig
from memagent_train.data.open import open_data
from memagent_train.rollout.model import RolloutModel
from memagent_train.runs.policy import load_tokenizer

SHORT = Sample(
    task="rehearsal",
    index=0,
    length=1,
    tokens=1,
    context="A short text.",
    question="What?",
    outputs=("a",),
    generate=1,
)
"""What the memory agent reads: its window must fit any sample."""


class _Reached(Exception):
    """The agent made its first call."""


class _NoEngine:
    """Stands for the engine, and ends the rehearsal."""

    def __init__(self, window: int) -> None:
        self.window = window

    def generating(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        raise _Reached


def rehearse(config: TrainConfig) -> bool:
    """Runs memagent's own agents up to their first call, with the policy's tokenizer and window. Blocks.

    Nothing is downloaded: without the tokenizer's files, and for other agents, nothing is checked.

    Returns:
        Whether it was checked.

    Raises:
        WindowTooSmall: the prompts don't fit, or leave no room for a chunk or a turn.
        ConfigError: a setting of the agent or the data is wrong.
    """
    if config.agent.use not in (MEMORY, TOOLS):
        return False
    try:
        tokenizer = load_tokenizer(config.model, offline=True)
    except ConfigError:
        return False
    model = RolloutModel(_NoEngine(config.rollout.window or _window(config)), tokenizer)
    agent = load_agent(config.agent, store=None)
    sample: Sample = SHORT
    if config.agent.use == TOOLS:
        sample = open_data(config.data, counter=text_counter(tokenizer)).sample(0)

    async def play() -> None:
        with suppress(_Reached):
            await agent(model, sample)

    asyncio.run(play())
    return True


def _window(config: TrainConfig) -> int:
    try:
        found: Any = AutoConfig.from_pretrained(
            config.model.path,
            local_files_only=True,
            trust_remote_code=config.model.trust_remote_code,
        )
    except (OSError, ValueError):
        return DEFAULT_WINDOW
    return getattr(found.get_text_config(), "max_position_embeddings", DEFAULT_WINDOW)
