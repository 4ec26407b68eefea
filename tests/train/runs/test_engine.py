"""The engine that settings name, and how a server gets the trainer's weights."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from peft import PeftModel, get_peft_model
from safetensors import safe_open
from tests.train.runs.sampling_server import sampling_server
from tests.train.runs.tiny import write_model, write_run
from transformers import AutoModelForCausalLM, PreTrainedModel

from memagent_engines.transformers.padded import PaddedSampler
from memagent_train.config.sections import LoraSettings
from memagent_train.config.train import load_train
from memagent_train.errors import EngineMismatch
from memagent_train.rollout.continuous import ContinuousSampler
from memagent_train.rollout.in_process import EngineSampler
from memagent_train.rollout.served import ServedSampler
from memagent_train.rollout.server import SentWeights
from memagent_train.rollout.settings import RolloutSettings, Weights
from memagent_train.runs.engine import WeightTransfer, open_sampler
from memagent_train.runs.grpo import train
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


@pytest.mark.parametrize(("weights", "dtype"), [(None, "float32"), ("bfloat16", "bfloat16")])
def test_an_engine_beside_the_trainer_computes_with_what_it_is_sent(
    weights: Weights | None, dtype: str
) -> None:
    read = RolloutSettings(engine="vllm-engine", weights=weights)
    sampler = open_sampler(read, tiny_model(TOKENIZER, seed=0), TOKENIZER)
    assert isinstance(sampler, EngineSampler)
    assert sampler._settings["dtype"] == dtype


class Server:
    """Stands for a server: is told where the weights are."""

    def __init__(self) -> None:
        self.folders: list[Path] = []

    async def load(self, folder: Path) -> None:
        self.folders.append(folder)


def send(
    model: torch.nn.Module, folder: Path, weights: Weights | None = None, times: int = 1
) -> list[Path]:
    """Sends the weights, and returns where the server was told to look."""
    trainer = SimpleNamespace(accelerator=Accelerator(cpu=True), model=model, model_wrapped=model)
    server, loop = Server(), asyncio.new_event_loop()
    try:
        for _ in range(times):
            WeightTransfer(server, folder, weights).send(trainer, loop)  # pyright: ignore[reportArgumentType]
    finally:
        loop.close()
    return server.folders


def sent(
    model: torch.nn.Module, folder: Path, weights: Weights | None = None, times: int = 1
) -> PreTrainedModel:
    """What a server has after whole weights were sent."""
    assert send(model, folder, weights, times) == [folder] * times
    return AutoModelForCausalLM.from_pretrained(folder)


def adapted(seed: int = 3) -> PeftModel:
    """A model with an adapter that has been trained."""
    policy = get_peft_model(
        tiny_model(TOKENIZER, seed=seed), adapter_settings(LoraSettings(rank=4))
    )
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    return policy  # pyright: ignore[reportReturnType]


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model.eval()(IDS).logits


def test_a_server_gets_the_weights(tmp_path: Path) -> None:
    model = tiny_model(TOKENIZER, seed=3)
    assert torch.equal(logits(sent(model, tmp_path / "served", times=2)), logits(model))


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft's
def test_a_server_gets_an_adapter_merged_and_the_policy_keeps_it_apart(tmp_path: Path) -> None:
    policy = adapted()
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    served = sent(policy, tmp_path / "served")
    assert torch.allclose(logits(served), logits(policy), atol=1e-4)
    assert not torch.allclose(logits(served), logits(tiny_model(TOKENIZER, seed=3)), atol=1e-2)
    assert same(policy, before)


def test_a_server_gets_weights_in_bfloat16(tmp_path: Path) -> None:
    model = tiny_model(TOKENIZER, seed=3)
    served = sent(model, tmp_path / "served", "bfloat16")
    with safe_open(tmp_path / "served" / "model.safetensors", "pt") as file:
        names = set(file.keys())
        assert {file.get_tensor(name).dtype for name in names} == {torch.bfloat16}
    assert "lm_head.weight" not in names  # it is tied
    assert same(served, rounded(model))
    assert model.dtype == torch.float32


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_a_server_gets_an_adapter_alone_each_time_by_another_name(tmp_path: Path) -> None:
    policy = adapted()
    first, second = send(policy, tmp_path / "served", "adapter", times=2)
    assert first.parent == second.parent == tmp_path / "served"
    assert list(first.parent.iterdir()) == [second]
    assert SentWeights.find(second) == (second, second.name, False)
    served = PeftModel.from_pretrained(tiny_model(TOKENIZER, seed=3), str(second))
    assert torch.equal(logits(served), logits(policy))
    with safe_open(second / "adapter_model.safetensors", "pt") as file:
        names = list(file.keys())
    assert names
    assert all("lora_" in name for name in names)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ([], 1e-4),
        (["rollout.weights=bfloat16"], 0.02),
        (["optimizer.precision=bf16"], 0.02),
        (["lora.rank=4", "algorithm.beta=0.01"], 1e-4),
        (["lora.rank=4", "rollout.weights=model"], 1e-4),
    ],
    ids=str,
)
def test_a_step_is_drawn_with_the_log_probabilities_of_the_trainer(
    tmp_path: Path, settings: list[str], limit: float
) -> None:
    file = write_run(tmp_path / "run", optimizer={"steps": 2, "learning_rate": 0.003})
    with sampling_server(tmp_path / "run" / "model") as (server, url):
        more = ["rollout.engine=vllm", f"rollout.base_url={url}", *settings]
        train(load_train(file, more), tmp_path / "out")
        found = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
        gaps = [row["logprob_gap/mean"] for row in map(json.loads, found) if "reward" in row]
        assert len(gaps) == 2
        assert max(gaps) < limit, gaps
        alone = "lora.rank=4" in settings and "rollout.weights=model" not in settings
        assert (server.adapter is not None) == alone
        half = {"rollout.weights=bfloat16", "optimizer.precision=bf16"} & set(settings)
        assert same(server.model, rounded(server.model)) == bool(half)
        # Ended, but repeated: an evaluation may be left to do.
        before = {name: one.clone() for name, one in server.model.state_dict().items()}
        name = server.adapter
        train(load_train(file, more), tmp_path / "out")
        assert same(server.model, before)
        assert not alone or server.adapter not in (None, name)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_an_adapter_on_another_base_is_noticed(tmp_path: Path) -> None:
    file = write_run(tmp_path / "run")
    with sampling_server(write_model(tmp_path / "other", seed=1)) as (_, url):
        more = ["rollout.engine=vllm", f"rollout.base_url={url}", "lora.rank=4"]
        with pytest.raises(EngineMismatch, match="on another base"):
            train(load_train(file, more), tmp_path / "out")


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


def rounded(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: one.to(torch.bfloat16).float() for name, one in model.state_dict().items()}


def same(policy: torch.nn.Module, before: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(weight, before[name]) for name, weight in policy.state_dict().items())
