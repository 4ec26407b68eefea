"""Checks made before a training begins, or in place of one (dry run): runs the agent up to its first call."""

import asyncio
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from memagent.budget import DEFAULT_WINDOW
from memagent.errors import ConfigError
from memagent.messages import Sampling
from memagent.tasks import Sample
from memagent.tokens import ByteBound
from memagent_engines.transformers.loading import text_counter
from memagent_engines.transformers.sampler import Sampled
from memagent_train.agents import MEMORY, TOOLS, load_agent
from memagent_train.config.train import TrainConfig
from memagent_train.data.open import Data, open_data, open_source
from memagent_train.rollout.model import RolloutModel
from memagent_train.runs.policy import Tokenizer, load_tokenizer
from memagent_train.sessions import Playable, verdict_of

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
"""A sample for the memory agent, whose window must fit any sample."""
MODEL = ("config.json", "adapter_config.json")
"""Files of which a model's folder has one."""
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
"""Pattern of names on the hub; other names can only be folders."""


class _FirstCall(Exception):
    """Raised when the agent makes its first call."""


class _NoEngine:
    """Takes the place of the engine, and ends the rehearsal."""

    def __init__(self, window: int) -> None:
        self.window = window

    def generating(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        raise _FirstCall


def rehearse(config: TrainConfig, tokenizer: Tokenizer, data: Data | None) -> None:
    """Runs memagent's own agents up to their first call, with the policy's tokenizer and window. Blocks.

    Args:
        config: the settings; custom agents aren't checked.
        tokenizer: the policy's tokenizer.
        data: games for the tool agent; the memory agent reads `SHORT`.

    Raises:
        WindowTooSmall: the prompts don't fit, or leave no room for a chunk or a turn.
        ConfigError: a setting of the agent is wrong, the sample is not a game, or its verdict is not a number.
    """
    if config.agent.use not in (MEMORY, TOOLS):
        return
    model = RolloutModel(_NoEngine(config.rollout.window or _window(config)), tokenizer)
    agent = load_agent(config.agent, store=None)
    sample: Sample = SHORT if data is None or config.agent.use == MEMORY else data.sample(0)

    async def play() -> None:
        with suppress(_FirstCall):
            await agent(model, sample)

    asyncio.run(play())
    if isinstance(sample, Playable):
        verdict_of(sample.deal())


def rehearse_offline(config: TrainConfig) -> str:
    """Checks what can be checked without a download: the model's folder, agent, games, and the first prompt. Blocks.

    Returns:
        A text: that the first prompt fits, or why this wasn't checked.

    Raises:
        WindowTooSmall: see `rehearse`.
        ConfigError: see `rehearse`; or the agent, a game, or the model's folder can't be used.
    """
    load_agent(config.agent, store=None)
    for place, source in enumerate(config.data.source):
        if source.kind == "game":
            open_source(config.data, place, counter=ByteBound())
    model = config.model
    folder = Path(model.path)
    if folder.is_dir() and not any((folder / file).is_file() for file in MODEL):
        raise ConfigError(
            f"model.path = {model.path!r} is a folder without a model (it has no config.json): give one as "
            f"transformers writes it, or a name on the hub"
        )
    if config.agent.use not in (MEMORY, TOOLS):
        return "not checked: the agent is your own"
    try:
        tokenizer = load_tokenizer(model, offline=True)
    except ConfigError:
        source = model.tokenizer or model.path
        if Path(source).is_dir() or not HUB_NAME.fullmatch(source):
            raise
        return f"not checked: there is no folder {source!r}, and no tokenizer of that name was downloaded before"
    tools = config.agent.use == TOOLS
    rehearse(
        config,
        tokenizer,
        open_data(config.data, counter=text_counter(tokenizer)) if tools else None,
    )
    return "fits the window"


def _window(config: TrainConfig) -> int:
    try:
        model_config: Any = AutoConfig.from_pretrained(
            config.model.path,
            local_files_only=True,
            trust_remote_code=config.model.trust_remote_code,
        )
    except (OSError, ValueError):
        return DEFAULT_WINDOW
    return getattr(model_config.get_text_config(), "max_position_embeddings", DEFAULT_WINDOW)
