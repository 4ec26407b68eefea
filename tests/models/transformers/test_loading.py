import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.models.transformers.folders import model_folder
from tests.models.transformers.policies import policy, tokenizer
from transformers.utils import logging

from memagent.errors import ConfigError, DeviceFull
from memagent.messages import Message
from memagent.tokens import TokenizerFile
from memagent_engines.transformers import loading
from memagent_engines.transformers.loading import load, text_counter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_folder(tmp_path, policy().to(torch.bfloat16))  # pyright: ignore[reportArgumentType]


def test_on_a_cpu_weights_are_float32_unless_another_dtype_is_asked_for(folder: Path) -> None:
    model, tokenizer = load(str(folder), device="cpu")
    assert model.dtype == torch.float32
    assert not model.training
    assert len(tokenizer) <= 2000
    assert load(str(folder), device="cpu", dtype="bfloat16")[0].dtype == torch.bfloat16


def test_elsewhere_they_are_the_checkpoints(folder: Path) -> None:
    assert load(str(folder), device="meta")[0].dtype == torch.bfloat16


def test_bars_are_as_they_were(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logging.enable_progress_bar()
    try:
        load(str(folder), device="cpu")
        assert logging.is_progress_bar_enabled()
    finally:
        logging.disable_progress_bar()
    assert capsys.readouterr().err == ""


def test_weights_that_lack_a_part_are_refused(folder: Path) -> None:
    file = folder / "model.safetensors"
    weights = load_file(file)
    del weights["model.norm.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"lack 1 tensors, such as 'model\.norm\.weight'"):
        load(str(folder), device="cpu")


def test_a_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    template = dict(content["added_tokens"][-1])
    content["added_tokens"] += [{**template, "id": 2000 + n, "content": f"<x{n}>"} for n in (0, 1)]
    file.write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="2002 tokens, but the model only 2000"):
        load(str(folder), device="cpu")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_damaged_file_is_told_with_a_remedy(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"{")
    with pytest.raises(ConfigError, match="save_pretrained"):
        load(str(folder), device="cpu")


def test_a_name_that_the_hub_does_not_give() -> None:
    with pytest.raises(ConfigError, match="nobody/nothing"):
        load("nobody/nothing", device="cpu")


def test_weights_that_do_not_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", full)
    with pytest.raises(DeviceFull, match="smaller model"):
        load(str(folder), device="cpu")


def test_prompts_are_counted_and_read_as_the_tokenizers_template_writes_them() -> None:
    names = tokenizer()
    counter = text_counter(names)
    assert isinstance(counter, TokenizerFile)
    for text in ("Who came?", "", "<|im_end|> 🙂 e\u0301\n\n"):
        messages = (Message(role="system", content="Read."), Message(role="user", content=text))
        plain = [{"role": m.role, "content": m.content} for m in messages]
        wanted = names.apply_chat_template(plain, add_generation_prompt=True, tokenize=True)
        ids = counter.prompt_ids(messages)
        assert list(ids) == wanted["input_ids"]
        assert counter.count_messages(messages) == len(ids)
        assert counter.decode(ids) == names.decode(ids, skip_special_tokens=True)
    assert "<|im_end|>" in counter.control_tokens


def test_thinking_goes_to_the_template() -> None:
    names = tokenizer()
    switch = "{% if enable_thinking is defined %} {{ enable_thinking }}{% endif %}"
    names.chat_template = "{{ messages[-1].content }}" + switch
    counter, ask = text_counter(names), (Message(role="user", content="a"),)
    for thinking, text in ((None, "a"), (True, "a True"), (False, "a False")):
        assert counter.decode(counter.prompt_ids(ask, thinking=thinking)) == text


def test_a_slow_tokenizer_is_refused() -> None:
    class Slow:
        def save_pretrained(self, folder: str) -> None:
            (Path(folder) / "vocab.txt").touch()

    slow: object = Slow()
    with pytest.raises(ConfigError, match="Slow is a slow one"):
        text_counter(slow)  # pyright: ignore[reportArgumentType]
