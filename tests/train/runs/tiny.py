"""A training that takes seconds: a model of two layers, a task of five chunks, and a reward that a random model gets
some of."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import tomli_w
from transformers import Trainer

from memagent.tasks import Sample
from memagent_train.smoke.model import tiny_model
from memagent_train.smoke.tokenizer import word_tokenizer

PROMPTS = resources.files("memagent_train.smoke") / "prompts.toml"
OWN = """
from transformers import Qwen3Config, Qwen3ForCausalLM


class OwnConfig(Qwen3Config):
    model_type = "own"


class OwnForCausalLM(Qwen3ForCausalLM):
    config_class = OwnConfig
"""


async def reward(answer: str | None, sample: Sample) -> dict[str, float]:
    """The share of long words: it varies from rollout to rollout, and hardly ever within a group of none."""
    words = (answer or "").split()
    kill_at("reward")
    return {
        "reward": sum(len(word) > 3 for word in words) / max(1, len(words)),
        "words": len(words),
    }


async def broken(answer: str | None, sample: Sample) -> float:
    """Never gives a reward."""
    raise ValueError("boom")


def kill_at(place: str) -> None:
    """Ends this process as kill -9 does, where the environment says so: KILL=place:number of the visit."""
    wanted, _, number = os.environ.get("KILL", "").partition(":")
    if wanted == place:
        visits[place] = visits.get(place, 0) + 1
        if visits[place] == int(number):
            os.kill(os.getpid(), signal.SIGKILL)


visits: dict[str, int] = {}


def _save(whole: Callable[..., None], trainer: Any, folder: str) -> None:
    """A checkpoint's last part but one: here a process may be killed, or its files may become as large as they can."""
    kill_at("checkpoint")
    visits["save"] = visits.get("save", 0) + 1
    if os.environ.get("FULL") == str(visits["save"]):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
    whole(trainer, folder)


if {"KILL", "FULL"} & set(os.environ):
    whole = Trainer._save_optimizer_and_scheduler
    setattr(Trainer, whole.__name__, lambda trainer, folder: _save(whole, trainer, folder))


def write_model(folder: Path, *, seed: int = 0) -> Path:
    """Writes the model, and returns its folder."""
    tokenizer = word_tokenizer()
    tiny_model(tokenizer, seed=seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def give_own_code(folder: Path) -> Path:
    """Turns the model in a folder into one whose code comes with it, and returns the folder."""
    (folder / "own.py").write_text(OWN)
    kinds = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnForCausalLM"}
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"model_type": "own", "architectures": ["OwnForCausalLM"], "auto_map": kinds}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def write_run(folder: Path, **sections: dict[str, Any]) -> Path:
    """Writes model and settings, and returns the settings' file.

    Args:
        sections: in the place of the defaults' keys; None leaves one out.
    """
    write_model(folder / "model")
    tables: dict[str, dict[str, Any]] = {
        "model": {"path": "model"},
        "data": {
            "source": [{"kind": "task", "use": "memagent_train.smoke.task:Relay", "count": 20}]
        },
        "agent": {
            "prompts": str(PROMPTS),
            "window": 128,
            "chunk_tokens": 40,
            "memory_tokens": 6,
        },
        "rollout": {"window": 128},
        "reward": {"use": "tests.train.runs.tiny:reward"},
        "algorithm": {"dynamic_sampling": False, "beta": 0.0},
        "batch": {"groups": 2, "group_size": 2, "micro_batches": 2, "updates": 2},
        "optimizer": {"steps": 3, "learning_rate": 0.001, "warmup_steps": 0},
        "checkpoints": {"every": 1},
        "logging": {},
        "resources": {"device": "cpu"},
    }
    for name, keys in sections.items():
        both = tables.get(name, {}) | keys
        tables[name] = {key: value for key, value in both.items() if value is not None}
    file = folder / "train.toml"
    file.write_text(tomli_w.dumps(tables), encoding="utf-8")
    return file
