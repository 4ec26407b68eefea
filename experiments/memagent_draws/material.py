"""The folder of the experiment: settings, a model with random weights, and the expert's play."""

from __future__ import annotations

import asyncio
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w
from transformers import AutoTokenizer

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
"""Probability that a summary forgets. A value must survive one to three summaries, each equally often: the expert is
right in 0.76 of the games."""
UNTRAINED = 10**6
"""Added to the seed of the expert's games, so that training has none of them."""
WINDOW = 256
"""Positions of the model."""
WIDE = 1024
"""Positions that hold a whole game."""
WHOLE = (f"agent.tools.working_context={WIDE}", "agent.tools.max_summaries=0")
"""Settings for sessions without summaries in such a window."""


class Start(NamedTuple):
    """What arms start from: a model, and an expert that it imitates."""

    games: int = GAMES
    """Games that the expert plays."""
    window: int = WINDOW
    """Tokens of prompt plus reply."""
    play: tuple[str, ...] = ()
    """Settings that differ from grpo.toml, also for the expert."""
    imitate: tuple[str, ...] = ()
    """Settings that differ from sft.toml."""
    model: Path | None = None
    """Folder of a language model; None for a small one with random weights."""
    layers: int = 2
    width: int = 64
    """Width of the small model: 100,000 weights."""


def lay_out(folder: Path, start: Start, *, seed: int) -> list[Rollout]:
    """Writes the settings, the wording, a model, and the rollouts of an expert.

    Args:
        folder: must lack the settings of the imitation, which are written last, so an interrupted layout is redone.
        start: the start to write.
        seed: seed of the random weights, the expert's games, and what it forgets.

    Returns:
        The expert's rollouts.

    Raises:
        ConfigError: the folder has these settings.
    """
    if (folder / SFT).exists():
        raise ConfigError(f"--out {str(folder)!r} has a {SFT} already: give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name in (PROMPTS, GRPO):
        (folder / name).write_text(_read(name), encoding="utf-8")
    dropping = tomllib.loads((folder / GRPO).read_text(encoding="utf-8"))
    dropping["agent"] = {"use": "memagent_draws.drop:play"}
    (folder / DROP).write_text(tomli_w.dumps(dropping), encoding="utf-8")
    if start.model is None:
        tokenizer: Any = draws_tokenizer()
        tokenizer.save_pretrained(folder / START)
        small = tiny_model(
            tokenizer, seed=seed, window=start.window, layers=start.layers, width=start.width
        )
        small.save_pretrained(folder / START)
    else:
        (folder / START).unlink(missing_ok=True)
        (folder / START).symlink_to(start.model, target_is_directory=True)
    rollouts = record(folder, TRACES, start, seed=seed)
    (folder / SFT).write_text(_read(SFT), encoding="utf-8")
    return rollouts


def _read(name: str) -> str:
    return resources.files("memagent_draws").joinpath(name).read_text(encoding="utf-8")


def record(folder: Path, name: str, start: Start, *, seed: int) -> list[Rollout]:
    """Writes the rollouts of an expert into a file, and returns them; see `lay_out` for the arguments."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder / START)
    rollouts = _play(folder, start, tokenizer, seed)
    write_rollouts(folder / name, 0, rollouts, advantages={}, decode=tokenizer.decode)
    return rollouts


def _play(folder: Path, start: Start, tokenizer: Any, seed: int) -> list[Rollout]:
    """Returns the expert's rollouts, made with the training's own agent and reward."""
    config = load_train(folder / GRPO, [f"data.seed={UNTRAINED + seed}", *start.play])
    expert = Expert(tokenizer, window=start.window, forgets=FORGETS, seed=seed)
    data = open_data(config.data, counter=load_counter(folder / START))
    requests = [
        RolloutRequest(data.sample(index), f"game-{index}", f"expert-{index}", index)
        for index in range(start.games)
    ]
    playing = roll(
        requests,
        model=RolloutModel(expert, tokenizer),
        agent=load_agent(config.agent, store=None),
        verifier=open_rewards(config.reward),
    )
    return asyncio.run(playing)
