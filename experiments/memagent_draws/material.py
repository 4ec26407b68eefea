"""The folder of the experiment: settings, a model with random weights, and what an expert did."""

from __future__ import annotations

import asyncio
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w

from memagent.errors import ConfigError
from memagent.tokens import load_counter
from memagent_draws.expert import Expert
from memagent_draws.tokenizer import draws_tokenizer
from memagent_train.agents import load_agent
from memagent_train.config.train import load_train
from memagent_train.data.open import open_data
from memagent_train.rewards.open import open_rewards
from memagent_train.rollout.model import RolloutModel
from memagent_train.rollout.roll import RolloutRequest, roll
from memagent_train.rollouts import Rollout
from memagent_train.runs.rollout_log import write_rollouts
from memagent_train.smoke.model import tiny_model

START, TRACES = "start", "expert.parquet"
PROMPTS, SFT, GRPO = "prompts.toml", "sft.toml", "grpo.toml"
DROP = "drop.toml"
"""grpo.toml with an agent that drops what doesn't fit."""
GAMES = 2000
"""Games that the expert plays: about 8,000 conversations."""
FORGETS = 0.13
"""A value has to survive one to three summaries, each equally often: the expert is right in 0.76 of the games."""
UNTRAINED = 10**6
"""Added to the seed of the expert's games: training has none of them."""
WINDOW = 256
"""Positions of the model."""
WIDE = 1024
"""Positions that hold a whole game."""
WHOLE = (f"agent.tools.working_context={WIDE}", "agent.tools.max_summaries=0")
"""Settings of sessions without summaries in such a window."""


def lay_out(
    folder: Path,
    *,
    seed: int,
    games: int = GAMES,
    window: int = WINDOW,
    settings: Sequence[str] = (),
) -> list[Rollout]:
    """Writes the settings, the wording, a model with random weights, and the rollouts of an expert.

    Args:
        folder: new or empty.
        seed: seed of the weights, and of what the expert plays and forgets.
        games: number of games that it plays.
        window: positions of the model.
        settings: what differs from grpo.toml when the expert plays.

    Returns:
        The expert's rollouts.

    Raises:
        ConfigError: the folder is not empty.
    """
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"--out {str(folder)!r} is not empty: give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name in (PROMPTS, SFT, GRPO):
        text = resources.files("memagent_draws").joinpath(name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
    dropping = tomllib.loads((folder / GRPO).read_text(encoding="utf-8"))
    dropping["agent"] = {"use": "memagent_draws.drop:play"}
    (folder / DROP).write_text(tomli_w.dumps(dropping), encoding="utf-8")
    tokenizer: Any = draws_tokenizer()
    tokenizer.save_pretrained(folder / START)
    tiny_model(tokenizer, seed=seed, window=window).save_pretrained(folder / START)
    return record(folder, TRACES, seed=seed, games=games, window=window, settings=settings)


def record(
    folder: Path, name: str, *, seed: int, games: int, window: int, settings: Sequence[str] = ()
) -> list[Rollout]:
    """Writes the rollouts of an expert into a file, and returns them; see `lay_out` for the arguments."""
    rollouts = _play(folder, seed, games, window, settings)
    tokenizer: Any = draws_tokenizer()
    write_rollouts(folder / name, 0, rollouts, advantages={}, decode=tokenizer.decode)
    return rollouts


def _play(
    folder: Path, seed: int, games: int, window: int, settings: Sequence[str]
) -> list[Rollout]:
    """The expert's rollouts, by the training's own agent and reward."""
    config = load_train(folder / GRPO, [f"data.seed={UNTRAINED + seed}", *settings])
    tokenizer = draws_tokenizer()
    expert = Expert(tokenizer, window=window, forgets=FORGETS, seed=seed)
    data = open_data(config.data, counter=load_counter(folder / START))
    asked = [
        RolloutRequest(data.sample(index), f"game-{index}", f"expert-{index}", index)
        for index in range(games)
    ]
    playing = roll(
        asked,
        model=RolloutModel(expert, tokenizer),
        agent=load_agent(config.agent, store=None),
        verifier=open_rewards(config.reward),
    )
    return asyncio.run(playing)
