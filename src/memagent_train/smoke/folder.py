"""The folder of a smoke training, as a user might prepare it."""

import asyncio
import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from memagent import MemoryAgent, Result
from memagent.errors import ConfigError
from memagent.models.scripted import ScriptedModel
from memagent.tasks import Sample
from memagent.tokens import load_counter
from memagent_train.config.train import load_train
from memagent_train.smoke.expert import Expert
from memagent_train.smoke.model import tiny_model
from memagent_train.smoke.task import Relay
from memagent_train.smoke.tokenizer import word_tokenizer

START, TRACES = "start", "expert.jsonl"
PROMPTS, SFT, GRPO = "prompts.toml", "sft.toml", "grpo.toml"
DOCUMENTS = 800
"""Documents for the expert: 4,800 conversations."""
FORGETS = 0.2
"""An expert that forgets this often is right for a third (0.8^5) of documents with five chunks. From far less, GRPO
can't improve; from far more, there is little left to improve."""
UNTRAINED = 10**6
"""Offset of the expert's seed. Training uses seed 0, so it sees none of the expert's documents."""


def lay_out(folder: Path, *, seed: int, documents: int = DOCUMENTS) -> None:
    """Writes the settings, the prompts, a model with random weights, and an expert's traces.

    Args:
        folder: a new or empty folder.
        seed: seed of the weights, and of what the expert reads and forgets.
        documents: number of documents for the expert.

    Raises:
        ConfigError: the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--out {str(folder)!r} is not empty: give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for name in (PROMPTS, SFT, GRPO):
        text = resources.files("memagent_train.smoke").joinpath(name).read_text(encoding="utf-8")
        (folder / name).write_text(text, encoding="utf-8")
    tokenizer = word_tokenizer()
    tokenizer.save_pretrained(folder / START)
    tiny_model(tokenizer, seed=seed).save_pretrained(folder / START)
    task = Relay(seed=UNTRAINED + seed)
    agent = reader(folder, Expert(forgets=FORGETS, seed=seed))
    with agent, (folder / TRACES).open("w", encoding="utf-8") as opened:
        for result in asyncio.run(read(agent, map(task.sample, range(documents)))):
            for conversation in result.trajectory.conversations:
                messages = [message.model_dump() for message in conversation.messages]
                opened.write(json.dumps({"messages": messages}) + "\n")


def reader(folder: Path, expert: Expert) -> MemoryAgent:
    """Returns the agent of the training's settings, with an expert as the policy. Close it after use."""
    settings = load_train(folder / GRPO).agent
    return MemoryAgent(
        ScriptedModel(expert, window=settings.window, counter=load_counter(folder / START)),
        prompts=settings.prompts,
        window=settings.window,
        memory_tokens=settings.memory_tokens,
        cuts=settings.cuts,
        store=None,
    )


async def read(agent: MemoryAgent, samples: Iterable[Sample]) -> list[Result]:
    """Reads all documents and answers their questions."""
    return await asyncio.gather(
        *(agent.aask(sample.context, sample.question) for sample in samples)
    )
