"""The engine that settings name, and how a server gets the trainer's weights."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from peft import get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from memagent_engines.transformers.padded import PaddedSampler
from memagent_train.config.sections import LoraSettings
from memagent_train.rollout.continuous import ContinuousSampler
from memagent_train.rollout.served import ServedSampler
from memagent_train.rollout.settings import RolloutSettings
from memagent_train.runs.engine import Served, open_sampler
from memagent_train.runs.policy import adapter_settings
from memagent_train.smoke.model import tiny_model
from memagent_train.smoke.tokenizer import word_tokenizer

IDS = torch.arange(12)[None]
TOKENIZER = word_tokenizer()


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"engine": "padded"}, PaddedSampler),
        ({"engine": "continuous"}, ContinuousSampler),
        ({"engine": "vllm", "base_url": "http://x/v1"}, ServedSampler),
        ({"engine": "sglang", "base_url": "http://x"}, ServedSampler),
        ({"engine": "vllm", "base_url": ("http://x", "http://y")}, ServedSampler),
    ],
)
def test_an_engine_by_name(settings: dict[str, str], kind: type) -> None:
    read = RolloutSettings(**settings, window=64)  # pyright: ignore[reportArgumentType]
    sampler = open_sampler(read, tiny_model(TOKENIZER, seed=0), TOKENIZER)
    assert isinstance(sampler, kind)
    assert sampler.window == 64


def test_without_a_gpu_auto_is_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    sampler = open_sampler(RolloutSettings(), tiny_model(TOKENIZER, seed=0), TOKENIZER)
    assert isinstance(sampler, PaddedSampler)


class Server:
    """Stands for a server: is told where the weights are."""

    def __init__(self) -> None:
        self.folders: list[Path] = []

    async def load(self, folder: Path) -> None:
        self.folders.append(folder)


def sent(model: torch.nn.Module, folder: Path, times: int = 1) -> PreTrainedModel:
    """What a server has after the weights were sent."""
    trainer = SimpleNamespace(accelerator=Accelerator(cpu=True), model=model, model_wrapped=model)
    server, loop = Server(), asyncio.new_event_loop()
    try:
        for _ in range(times):
            Served(server, folder).send(trainer, loop)  # pyright: ignore[reportArgumentType]
    finally:
        loop.close()
    assert server.folders == [folder] * times
    return AutoModelForCausalLM.from_pretrained(folder)


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


def test_a_server_gets_the_weights(tmp_path: Path) -> None:
    model = tiny_model(TOKENIZER, seed=3)
    assert torch.equal(logits(sent(model, tmp_path / "served", times=2)), logits(model))


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft's
def test_a_server_gets_an_adapter_merged_and_the_policy_keeps_it_apart(tmp_path: Path) -> None:
    policy = get_peft_model(tiny_model(TOKENIZER, seed=3), adapter_settings(LoraSettings(rank=4)))  # pyright: ignore[reportArgumentType]
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    served = sent(policy, tmp_path / "served")
    assert torch.allclose(logits(served), logits(policy), atol=1e-4)
    assert not torch.allclose(logits(served), logits(tiny_model(TOKENIZER, seed=3)), atol=1e-2)
    assert same(policy, before)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_sending_leaves_frozen_weights_of_half_precision_as_they_were(tmp_path: Path) -> None:
    base = tiny_model(TOKENIZER, seed=3).to(torch.bfloat16)  # pyright: ignore[reportArgumentType]
    policy = get_peft_model(base, adapter_settings(LoraSettings(rank=4)))  # pyright: ignore[reportArgumentType]
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.01)
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    sent(policy, tmp_path / "served", times=2)
    assert same(policy, before)


def same(policy: torch.nn.Module, before: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(weight, before[name]) for name, weight in policy.state_dict().items())
