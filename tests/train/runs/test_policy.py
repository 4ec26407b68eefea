"""Models and tokenizers are loaded as asked, and what cannot be loaded is named with its setting."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from peft import get_peft_model
from safetensors.torch import load_file, save_file
from tests.train.runs.tiny import write_model
from transformers import AutoTokenizer

from memagent.errors import ConfigError
from memagent_train.config.sections import LoraSettings, ModelSettings
from memagent_train.runs.policy import (
    adapter_settings,
    check_fit,
    load_model,
    load_tokenizer,
    with_adapter,
    with_checkpoint,
)

PEFT = "ignore:.*is_gradient_checkpointing:FutureWarning"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("policy") / "model")


def changed(folder: Path, to: Path, **values: object) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for name, value in values.items():
        setattr(tokenizer, name, value)
    tokenizer.save_pretrained(to)
    return to


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_has_the_type_that_was_asked_for(folder: Path, dtype: str) -> None:
    model = load_model(ModelSettings(path=str(folder), dtype=dtype))  # pyright: ignore[reportArgumentType]
    assert model.dtype == getattr(torch, dtype)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"path": "no-such-folder"}, r"model\.path = 'no-such-folder' cannot be loaded"),
        ({"attention": "flash_attention_9"}, "cannot be loaded"),
    ],
)
def test_what_cannot_be_loaded_is_named(folder: Path, settings: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        load_model(ModelSettings.model_validate({"path": str(folder)} | settings))


def test_weights_that_lack_tensors_are_refused(folder: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    shutil.copytree(folder, half)
    weights = load_file(half / "model.safetensors")
    left = {name: weight for name, weight in weights.items() if "layers.1" not in name}
    save_file(left, half / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"half' lack \d+ tensors, such as 'model.layers.1"):
        load_model(ModelSettings(path=str(half)))


@pytest.mark.filterwarnings(PEFT)
def test_an_adapter_of_another_base_is_refused(folder: Path, tmp_path: Path) -> None:
    lora = LoraSettings(rank=2, alpha=4.0, start=tmp_path)
    model = load_model(ModelSettings(path=str(folder)))
    get_peft_model(model, adapter_settings(lora)).save_pretrained(str(tmp_path))
    weights = load_file(tmp_path / "adapter_model.safetensors")
    save_file(weights, tmp_path / "adapter_model.safetensors", metadata={"base_sha256": "0" * 64})
    with pytest.raises(ConfigError, match="was not trained on"):
        with_adapter(load_model(ModelSettings(path=str(folder))), lora)


def test_a_tokenizer_of_no_folder_is_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match=r"'no-such-folder' .*: there is no such folder"):
        load_tokenizer(ModelSettings(path="no-such-folder"))


def test_a_damaged_file_of_weights_is_named(folder: Path, tmp_path: Path) -> None:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        load_model(ModelSettings(path=str(tmp_path)))


def test_a_template_of_ones_own_takes_the_place_of_the_tokenizers(
    folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("{{ messages[0].content }}")
    tokenizer = load_tokenizer(ModelSettings(path=str(folder), chat_template=file))
    said = [{"role": "user", "content": "hello"}]
    assert tokenizer.apply_chat_template(said, tokenize=False) == "hello"
    with pytest.raises(ConfigError, match=r"model\.chat_template"):
        load_tokenizer(ModelSettings(path=str(folder), chat_template=tmp_path / "none"))


def test_a_tokenizer_without_a_template_is_refused(folder: Path, tmp_path: Path) -> None:
    bare = changed(folder, tmp_path, chat_template=None)
    with pytest.raises(ConfigError, match=r"no chat template: give one with model\.chat_template"):
        load_tokenizer(ModelSettings(path=str(folder), tokenizer=str(bare)))


def test_a_tokenizer_without_an_end_is_refused(folder: Path, tmp_path: Path) -> None:
    endless = changed(folder, tmp_path, eos_token=None)
    with pytest.raises(ConfigError, match="no end token"):
        load_tokenizer(ModelSettings(path=str(folder), tokenizer=str(endless)))


def test_without_a_padding_token_the_end_pads(folder: Path, tmp_path: Path) -> None:
    padless = changed(folder, tmp_path, pad_token=None)
    tokenizer = load_tokenizer(ModelSettings(path=str(folder), tokenizer=str(padless)))
    assert tokenizer.pad_token_id == tokenizer.eos_token_id


def test_a_missing_tokenizer_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"give one with model.tokenizer"):
        load_tokenizer(ModelSettings(path=str(folder), tokenizer=str(tmp_path)))


def test_more_tokens_than_embeddings_are_refused(folder: Path) -> None:
    settings = ModelSettings(path=str(folder))
    model, tokenizer = load_model(settings), load_tokenizer(settings)
    check_fit(model, tokenizer)
    tokenizer.add_tokens(["more"])
    with pytest.raises(ConfigError, match="the tokenizer has"):
        check_fit(model, tokenizer)


@pytest.mark.filterwarnings(PEFT)
def test_an_adapter_is_merged_into_its_base(folder: Path, tmp_path: Path) -> None:
    settings = ModelSettings(path=str(folder))
    adapted = get_peft_model(load_model(settings), adapter_settings(LoraSettings(rank=4)))  # pyright: ignore[reportArgumentType]
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)
    adapted.save_pretrained(str(tmp_path))
    ids = torch.arange(12)[None]
    with torch.no_grad():
        expected = adapted.eval()(ids).logits
        merged = with_checkpoint(settings, tmp_path).eval()(ids).logits
        base = load_model(settings).eval()(ids).logits
    assert torch.allclose(merged, expected, atol=1e-4)
    assert not torch.allclose(base, expected, atol=1e-2)


@pytest.mark.filterwarnings(PEFT)
def test_a_target_that_is_no_layer_is_named(folder: Path) -> None:
    model = load_model(ModelSettings(path=str(folder)))
    for wrong in ("q_prj", "self_attn"):
        with pytest.raises(ConfigError, match=rf"{wrong}.* no such layer: .*q_proj"):
            with_adapter(model, LoraSettings(targets=("v_proj", wrong)))
    assert with_adapter(model, LoraSettings(targets=("self_attn.q_proj",)))[1] is not None


def test_an_adapter_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="does not fit"):
        with_checkpoint(ModelSettings(path=str(folder)), tmp_path)


def test_a_checkpoint_of_all_weights_takes_the_place_of_the_model(
    folder: Path, tmp_path: Path
) -> None:
    other = write_model(tmp_path / "checkpoint", seed=1)
    ids = torch.arange(12)[None]
    with torch.no_grad():
        loaded = with_checkpoint(ModelSettings(path=str(folder)), other).eval()(ids).logits
        expected = load_model(ModelSettings(path=str(other))).eval()(ids).logits
    assert torch.equal(loaded, expected)
