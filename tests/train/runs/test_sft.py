"""A warm start learns the replies, goes on where it was, and refuses other traces."""

from __future__ import annotations

import json
import random
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import torch
from tests.train.runs.tiny import write_model
from transformers import GraniteConfig, GraniteForCausalLM
from transformers.utils import logging
from trl.trainer.sft_config import SFTConfig as TrlConfig
from trl.trainer.sft_trainer import SFTTrainer

from memagent.errors import ConfigError
from memagent_train.config.sections import ModelSettings
from memagent_train.config.sft import SftConfig, load_sft
from memagent_train.errors import CheckpointMismatch
from memagent_train.runs import metrics
from memagent_train.runs.checkpoints import list_checkpoints
from memagent_train.runs.folder import RunFolder
from memagent_train.runs.policy import load_model, load_tokenizer
from memagent_train.runs.sft import ReplyTrainer, dataset, digest, warm_start
from memagent_train.runs.target import run_target
from memagent_train.runs.traces import TraceRow

REPLIES = ("fox", "goat", "hare", "bear")


@pytest.fixture
def config(tmp_path: Path) -> SftConfig:
    write_model(tmp_path / "model")
    lines = [
        {
            "messages": [
                {"role": "user", "content": f"ask {word} answer"},
                {"role": "assistant", "content": word},
            ]
        }
        for word in REPLIES
    ]
    (tmp_path / "traces.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    file = tmp_path / "sft.toml"
    tables = {
        "model": {"path": "model"},
        "traces": {"source": [{"kind": "messages", "files": ["traces.jsonl"]}], "window": 128},
        "batch": {"rows": 4, "micro_batches": 2},
        "optimizer": {"steps": 6, "learning_rate": 0.01, "warmup_steps": 0},
        "checkpoints": {"every": 3},
        "resources": {"device": "cpu"},
    }
    file.write_text(tomli_w.dumps(tables))
    return load_sft(file)


def losses(out: Path) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in metrics.read(RunFolder(out).metrics)}


def test_labels_are_the_replies() -> None:
    made = dataset([TraceRow((1, 2), (3, 4, 5), (1, 0, 1))])
    assert made[0] == {"input_ids": [1, 2, 3, 4, 5], "labels": [-100, -100, 3, -100, 5]}


@pytest.mark.parametrize("scaling", [None, 8.0])
def test_the_loss_is_that_of_trl(tmp_path: Path, scaling: float | None) -> None:
    """Whether or not the model scales its logits, which it does after its head."""
    folder = str(write_model(tmp_path / "model"))
    if scaling is not None:
        like = load_model(ModelSettings(path=folder)).config.to_dict()
        like = {name: like[name] for name in ("vocab_size", "pad_token_id", "eos_token_id")}
        size: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        config = GraniteConfig(**like, **size, logits_scaling=scaling, initializer_range=0.5)
        GraniteForCausalLM(config).save_pretrained(folder)
    tokenizer = load_tokenizer(ModelSettings(path=folder))
    rows = [TraceRow((1, 2, 3), (4, 5), (1, 1)), TraceRow((6,), (7, 8, 9), (0, 1, 1))]
    found: list[list[Any]] = []
    for kind in (ReplyTrainer, SFTTrainer):
        trainer = kind(
            model=load_model(ModelSettings(path=folder)),
            args=TrlConfig(
                output_dir=str(tmp_path),
                use_cpu=True,
                bf16=False,
                activation_checkpointing=False,
                report_to=[],
                dataset_kwargs={"skip_prepare_dataset": True},
            ),
            train_dataset=dataset(rows),
            processing_class=tokenizer,
        )
        batch = trainer.data_collator([dataset(rows)[i] for i in range(2)])
        model: Any = trainer.model
        loss = trainer.compute_loss(model, batch, num_items_in_batch=torch.tensor(4))
        loss.backward()
        found.append([loss.detach(), *(one.grad for one in model.parameters())])
    assert found[0][0] > 1
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)]
)
def test_passes_use_the_precision_that_was_asked_for(
    config: SftConfig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    dtype: torch.dtype,
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16" if precision == "fp32" else "no")
    computed: set[torch.dtype] = set()
    model: Any = load_model(config.model)
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda _, given, output: computed.add(output.dtype))
    monkeypatch.setattr("memagent_train.runs.sft.load_model", lambda _: model)
    optimizer = config.optimizer.model_copy(update={"precision": precision, "steps": 1})
    warm_start(config.model_copy(update={"optimizer": optimizer}), tmp_path / "run")
    assert computed == {dtype}


def test_the_hub_is_told_nothing(
    config: SftConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where huggingface_hub is loaded already, its variables come too late."""
    sent: list[Any] = []
    monkeypatch.setattr(
        "trl.trainer.base_trainer.send_telemetry", lambda **given: sent.append(given)
    )
    for name in ("CI", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.delenv(name, raising=False)
    warm_start(config, tmp_path / "run")
    assert sent == []


def test_the_callers_random_numbers_and_logging_are_left_alone(
    config: SftConfig, tmp_path: Path
) -> None:
    def told() -> list[Any]:
        return [logging.get_verbosity(), random.getstate(), str(np.random.get_state())]

    before, state = told(), torch.get_rng_state()
    warm_start(config, tmp_path / "run")
    assert told() == before
    assert torch.equal(torch.get_rng_state(), state)


def test_other_rows_have_another_digest() -> None:
    row = TraceRow((1, 2), (3,), (1,))
    others = [TraceRow((1,), (2, 3), (1, 1)), TraceRow((1, 2), (3,), (0,))]
    assert len({digest([one]) for one in (row, *others)}) == 3
    assert digest([row]) == digest([row])


def test_the_first_loss_is_the_mean_over_the_tokens_of_all_replies(
    config: SftConfig, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = warm_start(config, out)
    assert (done.rows, done.dropped, done.steps) == (4, 0, 6)
    model, tokenizer = load_model(config.model).eval(), load_tokenizer(config.model)
    taken: list[torch.Tensor] = []
    for word in REPLIES:
        said = [{"role": "user", "content": f"ask {word} answer"}]
        prompt = tokenizer.apply_chat_template(said, add_generation_prompt=True, return_dict=False)
        reply = [*tokenizer.convert_tokens_to_ids([word]), tokenizer.eos_token_id]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1]
        taken.append(
            torch.nn.functional.cross_entropy(logits, torch.tensor(reply), reduction="none")
        )
    seen = losses(out)
    assert seen[1] == pytest.approx(torch.cat(taken).mean().item(), rel=1e-4)
    assert seen[6] < seen[1] / 2


def test_it_goes_on_where_it_was(config: SftConfig, tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    warm_start(config, whole)
    short = config.optimizer.model_copy(update={"steps": 3})
    warm_start(config.model_copy(update={"optimizer": short}), halves)
    warm_start(config, halves)
    assert losses(halves) == pytest.approx(losses(whole), rel=1e-4)
    counts = [metrics.read(RunFolder(out).metrics)[5]["num_tokens"] for out in (halves, whole)]
    assert counts[0] == counts[1]
    before = RunFolder(whole).metrics.read_bytes()
    assert warm_start(config, whole).loss == losses(whole)[6]
    assert RunFolder(whole).metrics.read_bytes() == before


def test_a_run_of_an_earlier_version_goes_on(config: SftConfig, tmp_path: Path) -> None:
    """It recorded settings that a warm start has no more, since they did nothing."""
    folder = RunFolder(tmp_path / "run")
    warm_start(config, folder.path)
    before = tomllib.loads(folder.settings.read_text())
    before["logging"] |= {"rollouts": 1, "runs": 1}
    before["resources"] |= {"sharding": "none", "device_gib": 80.0}
    folder.settings.write_text(tomli_w.dumps(before))
    longer = config.model_copy(
        update={"optimizer": config.optimizer.model_copy(update={"steps": 7})}
    )
    assert warm_start(longer, folder.path).steps == 7
    assert list(losses(folder.path)) == [1, 2, 3, 4, 5, 6, 7]


def test_every_update_has_as_many_conversations(config: SftConfig, tmp_path: Path) -> None:
    """Also where a pass over five of them, four an update, ends."""
    file = tmp_path / "traces.jsonl"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*lines, lines[-1].replace("bear", "cat")]))
    warm_start(config, tmp_path / "run")
    tokens = [line["num_tokens"] for line in metrics.read(RunFolder(tmp_path / "run").metrics)]
    assert tokens == [tokens[0] * step for step in range(1, 7)]


def test_checkpoints_may_come_more_often_from_then_on(config: SftConfig, tmp_path: Path) -> None:
    short = config.optimizer.model_copy(update={"steps": 3})
    warm_start(config.model_copy(update={"optimizer": short}), tmp_path)
    often = config.checkpoints.model_copy(update={"every": 1, "keep": 0})
    warm_start(config.model_copy(update={"checkpoints": often}), tmp_path)
    found = list_checkpoints(RunFolder(tmp_path).checkpoints)
    assert [one.step for one in found] == [3, 4, 5, 6]
    assert len(list(RunFolder(tmp_path).checkpoints.iterdir())) == 4, "no card of TRL's"


def test_other_traces_are_refused(config: SftConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    short = config.model_copy(
        update={"optimizer": config.optimizer.model_copy(update={"steps": 1})}
    )
    warm_start(short, out)
    file = tmp_path / "traces.jsonl"
    file.write_text(file.read_text().replace("bear", "cat"))
    with pytest.raises(CheckpointMismatch, match="traces was"):
        warm_start(config, out)


def test_traces_and_the_model_may_be_moved(config: SftConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    short = config.optimizer.model_copy(update={"steps": 1})
    warm_start(config.model_copy(update={"optimizer": short}), out)
    (file,) = tmp_path.glob("*.jsonl")
    source = config.traces.source[0].model_copy(update={"files": (file.rename(out / "moved"),)})
    model = config.model.model_copy(update={"path": str(tmp_path / "moved")})
    shutil.copytree(config.model.path, tmp_path / "moved")
    traces = config.traces.model_copy(update={"source": (source,)})
    warm_start(config.model_copy(update={"traces": traces, "model": model}), out)
    assert run_target(out).model.path == str(tmp_path / "moved")
    (out / "moved").write_text((out / "moved").read_text().replace("bear", "cat"))
    with pytest.raises(CheckpointMismatch, match="traces was"):
        warm_start(config.model_copy(update={"traces": traces, "model": model}), out)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft's
def test_an_adapter_is_learnt_and_merged(config: SftConfig, tmp_path: Path) -> None:
    from memagent_train.config.sections import LoraSettings

    adapted = config.model_copy(update={"lora": LoraSettings(rank=4, alpha=8)})
    warm_start(adapted, tmp_path / "run")
    assert losses(tmp_path / "run")[6] < losses(tmp_path / "run")[1]
    model, _ = run_target(tmp_path / "run").load()
    base = load_model(config.model)
    assert model.num_parameters() == base.num_parameters()
    assert not torch.equal(
        model.model.layers[0].mlp.up_proj.weight, base.model.layers[0].mlp.up_proj.weight
    )


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft's
def test_an_adapter_is_continued(config: SftConfig, tmp_path: Path) -> None:
    from memagent_train.config.sections import LoraSettings

    lora = LoraSettings(rank=4, alpha=8)
    first = config.model_copy(update={"lora": lora})
    warm_start(first, tmp_path / "first")
    newest = RunFolder(tmp_path / "first").find_newest()
    assert newest is not None
    again = lora.model_copy(update={"start": newest.path})
    warm_start(config.model_copy(update={"lora": again}), tmp_path / "second")
    assert losses(tmp_path / "second")[1] < losses(tmp_path / "first")[2]
    assert losses(tmp_path / "second")[6] < losses(tmp_path / "first")[6]


@pytest.mark.parametrize(
    ("lora", "said"),
    [
        ({"rank": 2, "alpha": 8}, "lora.rank = 2 and lora.alpha = 8.0, but the adapter in"),
        ({"rank": 4, "alpha": 8, "start": "none"}, "is not an adapter of this model"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft's
def test_another_adapter_is_refused(
    config: SftConfig, tmp_path: Path, lora: dict[str, Any], said: str
) -> None:
    from memagent_train.config.sections import LoraSettings

    short = config.model_copy(
        update={
            "lora": LoraSettings(rank=4, alpha=8),
            "optimizer": config.optimizer.model_copy(update={"steps": 1}),
        }
    )
    warm_start(short, tmp_path / "first")
    newest = RunFolder(tmp_path / "first").find_newest()
    assert newest is not None
    lora = {"start": newest.path, **lora}
    with pytest.raises(ConfigError, match=re.escape(said)):
        warm_start(config.model_copy(update={"lora": LoraSettings(**lora)}), tmp_path / "second")


@pytest.mark.parametrize(("schedule", "last"), [("constant", 0.01), ("linear", 0.01 / 6)])
def test_the_rate_stays_or_goes_down_to_nothing(
    config: SftConfig, tmp_path: Path, schedule: str, last: float
) -> None:
    optimizer = config.optimizer.model_copy(update={"schedule": schedule})
    out = tmp_path / "run"
    warm_start(config.model_copy(update={"optimizer": optimizer}), out)
    rates = [line["learning_rate"] for line in metrics.read(RunFolder(out).metrics)]
    assert rates[0] == pytest.approx(0.01)
    assert rates[-1] == pytest.approx(last)
