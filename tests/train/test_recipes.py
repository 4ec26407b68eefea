"""Every recipe loads, is planned, and says how much memory it takes; what launches it is read by accelerate."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from tests.engines.tiny_model import TOKENIZER, chat_settings
from transformers import Qwen2Config

from memagent.session.context.layout import LIMIT_SHARE
from memagent_train.agents import TOOLS
from memagent_train.config.sft import load_sft
from memagent_train.config.toml import read_toml
from memagent_train.config.train import load_train
from memagent_train.runs.rehearsal import rehearse_offline
from memagent_train.runs.step_cost import step_cost

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
TRAININGS = sorted(path for path in RECIPES.glob("*.toml") if "traces" not in read_toml(path))
SUPO = "supo-32b.toml"
WARM_STARTS = sorted(set(RECIPES.glob("*.toml")) - set(TRAININGS))
LAUNCHERS = sorted((RECIPES / "accelerate").glob("*.yaml"))
PUBLISHED = [path for path in TRAININGS if path.name.startswith("memagent-")]


def name(path: Path) -> str:
    return path.name


def test_there_are_recipes_of_each_kind() -> None:
    assert len(PUBLISHED) == 4
    assert WARM_STARTS
    assert {path.stem for path in LAUNCHERS} == {"ddp", "fsdp", "zero2", "zero3"}


@pytest.mark.parametrize("recipe", TRAININGS, ids=name)
def test_a_training_is_planned_with_its_memory(recipe: Path) -> None:
    config = load_train(recipe)
    lines = dict(step_cost(config).lines())
    assert re.fullmatch(r"\d+\.\d GiB", lines["memory: peak"])
    assert lines[f"fits {config.resources.device_gib:g} GiB"] == "yes, by this estimate"
    if config.agent.use != TOOLS:  # how long a session is isn't known before it is played
        assert "unknown" not in " ".join(lines.values())
    assert "Not run at this size" in recipe.read_text(encoding="utf-8")


@pytest.mark.parametrize("recipe", PUBLISHED, ids=name)
def test_the_published_settings_are_those_of_the_paper(recipe: Path) -> None:
    config = load_train(recipe)
    batch, optimizer, algorithm = config.batch, config.optimizer, config.algorithm
    questions = batch.groups * config.resources.processes
    assert questions == (256 if "14b" in recipe.name else 128)
    assert (batch.group_size, batch.updates, batch.iterations) == (16, 16, 1)
    assert (optimizer.learning_rate, optimizer.warmup_steps) == (1e-6, 20)
    assert (optimizer.weight_decay, optimizer.max_grad_norm) == (0.01, 1.0)
    assert (algorithm.beta, algorithm.epsilon_low, algorithm.epsilon_high) == (0.001, 0.2, 0.2)
    agent = config.agent
    assert (agent.window, agent.chunk_tokens, agent.memory_tokens) == (8192, 5000, 1024)
    assert (config.rollout.temperature, config.rollout.top_p) == (1.0, 1.0)


def test_supo_is_the_published_setting_and_reaches_its_first_call(tmp_path: Path) -> None:
    shutil.copy(TOKENIZER / "tokenizer.json", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(chat_settings()))
    shapes: dict[str, Any] = {"vocab_size": 2000, "hidden_size": 64, "num_attention_heads": 4}
    Qwen2Config(**shapes, max_position_embeddings=8192).save_pretrained(tmp_path)
    config = load_train(RECIPES / SUPO, [f"model.path={tmp_path}"])
    tools, algorithm = config.agent.tools, config.algorithm
    assert tools is not None
    assert (tools.working_context, tools.max_summaries, tools.max_steps) == (4096, 7, 100)
    assert (algorithm.scale, algorithm.token_mean, algorithm.overlong_mask) == (
        "std",
        "batch",
        True,
    )
    assert (algorithm.beta, algorithm.epsilon_low, algorithm.epsilon_high) == (0.0, 0.2, 0.28)
    assert (config.batch.group_size, config.optimizer.learning_rate) == (8, 1e-6)
    assert rehearse_offline(config) == "fits the window"
    for said in ((RECIPES / name).read_text(encoding="utf-8") for name in ("README.md", SUPO)):
        assert f"{LIMIT_SHARE} W" in said


@pytest.mark.parametrize("recipe", WARM_STARTS, ids=name)
def test_a_warm_start_loads(recipe: Path) -> None:
    config = load_sft(recipe)
    assert config.batch.rows % config.batch.micro_batches == 0
    assert "Not run at this size" in recipe.read_text(encoding="utf-8")


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=name)
def test_accelerate_reads_what_launches(launcher: Path) -> None:
    read = load_config_from_file(str(launcher))
    assert isinstance(read, ClusterConfig)
    assert read.num_processes == 8
    assert str(read.distributed_type.value) in ("MULTI_GPU", "FSDP", "DEEPSPEED")


def test_the_readme_names_every_recipe() -> None:
    text = (RECIPES / "README.md").read_text(encoding="utf-8")
    assert {f"`{path.name}`" for path in (*TRAININGS, *WARM_STARTS)} <= set(
        re.findall(r"`[^`\n]+`", text)
    )
