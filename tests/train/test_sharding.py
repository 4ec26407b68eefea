"""Policy, gradient and the reference of the KL term, whole or divided among processes: a training is the same."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin
from peft import PeftModel
from safetensors.torch import load_file
from tests.train.handmade import distance, groups, log_probabilities, policy, trainer, words
from tests.train.launch import run_two
from tests.train.reference import Reference
from tests.train.runs.sampling_server import sampling_server
from tests.train.sharded_processes import BETA, STEPS

from memagent_train.algorithm import AlgorithmSettings, BatchSettings
from memagent_train.rollouts import Row
from memagent_train.sharding import shard_gradients

FSDP2 = {  # what `accelerate launch` makes of recipes/accelerate/fsdp.yaml
    "ACCELERATE_USE_CPU": "true",
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "true",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}


def test_sharded_weights_and_reference_train_as_whole_ones(tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "sharded"
    policy().save_pretrained(model)
    out.mkdir()
    words().save_pretrained(model)
    drawing = {"prompt": [5, 6, 7], "max_tokens": 40, "temperature": 1.0, "top_p": 1.0, "seed": 3}
    with sampling_server(model) as (server, url):
        run_two(Path(__file__).with_name("sharded_processes.py"), model, out, url, **FSDP2)
        (drawn,) = server.draw(drawing)["choices"]
    found = json.loads((out / "found.json").read_text())
    most = found["whole"] * 0.55  # 0.5, and what does not divide evenly
    assert found["held"] <= most
    assert len(found["gradients_held"]) == 3  # between four micro-batches, of several passes each
    assert all(0 < held <= most for held in found["gradients_held"])

    rollouts = [one for seed in (5, 6) for one in groups(policy(), seed=seed, noise=0.1)]
    live = policy()
    Reference(beta=BETA).loss(live, rollouts, reference=policy()).backward()
    wanted = {n: p.grad for n, p in live.named_parameters() if p.grad is not None}
    assert distance(torch.load(out / "gradient.pt"), wanted) < 1e-5
    live = policy()
    whole = trainer(
        tmp_path / "whole",
        lambda indices, size: rollouts,
        algorithm=AlgorithmSettings(beta=BETA, dynamic_sampling=False),
        batch=BatchSettings(groups=6, group_size=4, micro_batches=8),
        model=live,
        steps=STEPS,
        learning_rate=1e-2,
    )
    whole.train()
    kl = [line["kl"] for line in whole.state.log_history if "kl" in line]
    assert found["kl"] == pytest.approx(kl, rel=1e-3, abs=1e-6)
    assert kl[-1] > 1e-4
    weights = torch.load(out / "weights.pt")
    for name, value in live.state_dict().items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-4)
    received = load_file(out / "served/model.safetensors")
    assert received.keys() == weights.keys()
    assert all(torch.equal(received[name], weights[name]) for name in weights)
    assert server.history == ["load", 1]
    reply = Row((5, 6, 7), tuple(drawn["token_ids"]), (), ())
    said = torch.tensor(drawn["logprobs"]["token_logprobs"])
    torch.testing.assert_close(said, log_probabilities(live, reply), rtol=0, atol=1e-3)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_sharded_weights_are_sent_whole_and_an_adapter_alone(tmp_path: Path) -> None:
    run_two(Path(__file__).with_name("sent_processes.py"), tmp_path, **FSDP2)
    (adapter,) = (tmp_path / "adapter").iterdir()
    whole = torch.load(tmp_path / "whole.pt")
    weights = load_file(adapter / "adapter_model.safetensors")
    assert len(weights) == sum("lora_" in name for name in whole) > 0
    for name, weight in weights.items():
        assert torch.equal(weight, whole[name.replace(".weight", ".default.weight")])
    base: Any = policy()
    merged = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload().state_dict()  # pyright: ignore[reportCallIssue]
    sent, half = (
        load_file(tmp_path / kind / "model.safetensors") for kind in ("model", "bfloat16")
    )
    assert any(
        not torch.equal(weight, policy().state_dict()[name]) for name, weight in sent.items()
    )
    for name, weight in sent.items():
        torch.testing.assert_close(weight, merged[name])
        assert torch.equal(half[name], weight.to(torch.bfloat16))


def test_gradients_are_reduced_in_fp32_under_bf16_passes() -> None:
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    plugin.set_mixed_precision("bf16")
    state = SimpleNamespace(plugin_kwargs={})
    shard_gradients(
        cast(
            "Accelerator",
            SimpleNamespace(
                is_fsdp2=True, gradient_state=state, state=SimpleNamespace(fsdp_plugin=plugin)
            ),
        )
    )
    used: Any = plugin.mixed_precision_policy
    assert (used.param_dtype, used.reduce_dtype) == (torch.bfloat16, torch.float32)
