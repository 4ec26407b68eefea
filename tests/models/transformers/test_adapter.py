"""A LoRA adapter is added to the model that it was trained on, and to no other one."""

import asyncio
import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tests.models.transformers.folders import SETTINGS, model_folder
from tests.models.transformers.policies import policy

from memagent import PromptSet
from memagent.errors import ConfigError
from memagent.models.policy import FILE, Policy
from memagent_engines import smol
from memagent_engines.lora import SETTINGS as CONFIG
from memagent_engines.lora import WEIGHTS
from memagent_engines.transformers.adapter import BASE, weights_sha256
from memagent_engines.transformers.loading import load
from memagent_engines.transformers.model import TransformersModel

IDS = torch.arange(10)[None]

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*is_gradient_checkpointing:FutureWarning"
)  # of peft's


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "base")


@pytest.fixture
def adapter(base: Path, tmp_path: Path) -> Path:
    return made_for(base, tmp_path / "adapter")


def made_for(base: Path, folder: Path) -> Path:
    """An adapter with random factors, bound to a model."""
    model, _ = load(str(base), device="cpu")
    adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    torch.manual_seed(1)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(std=0.1)
    adapted.save_pretrained(str(folder))
    weights = load_file(folder / WEIGHTS)
    save_file(weights, folder / WEIGHTS, metadata={BASE: weights_sha256(base)})
    with torch.no_grad():
        torch.save(adapted.eval()(IDS).logits, folder / "logits.pt")
    return folder


def test_the_sum_is_what_peft_computes(base: Path, adapter: Path) -> None:
    merged, _ = load(str(base), device="cpu", adapter=adapter)
    with torch.no_grad():
        logits = merged(IDS).logits
    assert torch.allclose(logits, torch.load(adapter / "logits.pt"), atol=1e-5)
    assert not torch.allclose(logits, load(str(base), device="cpu")[0](IDS).logits, atol=1e-2)


def test_a_digest_is_of_the_tensors_and_not_of_their_file(base: Path) -> None:
    before = weights_sha256(base)
    weights = load_file(base / "model.safetensors")
    save_file(weights, base / "model.safetensors", metadata={"format": "pt", "more": "x" * 99})
    assert weights_sha256(base) == before
    weights["model.norm.weight"] += 1
    save_file(weights, base / "model.safetensors")
    assert weights_sha256(base) != before


def test_a_model_has_a_digest_of_its_weights_and_its_adapter(base: Path, adapter: Path) -> None:
    bare, adapted = TransformersModel(base), TransformersModel(base, adapter=adapter)
    both = [weights_sha256(folder)[:16] for folder in (base, adapter)]
    assert [bare.weights_digest, adapted.weights_digest] == [both[0], "+".join(both)]
    assert TransformersModel("name/on-a-hub").weights_digest == ""


def test_weights_that_are_pickled_have_a_digest_too(base: Path) -> None:
    (base / "model.safetensors").unlink()
    seen = {weights_sha256(base)}
    for value in (0.0, 1.0, 1.0):
        torch.save({"weight": torch.tensor(value)}, base / "pytorch_model.bin")
        seen.add(weights_sha256(base))
    assert len(seen) == 3


def test_other_kinds_of_weights_have_a_digest_or_none_but_not_the_same(base: Path) -> None:
    (base / "model.safetensors").unlink()
    assert TransformersModel(base).weights_digest == ""
    seen = set[str]()
    for name, content in (("a.gguf", b"1"), ("a.gguf", b"2"), ("b.pt", b"1"), ("b.pt", b"2")):
        (base / name).write_bytes(content)
        seen.add(TransformersModel(base).weights_digest)
    assert len(seen) == 4
    (base / "a.bin").write_bytes(b"1")
    before = weights_sha256(base)
    (base / "b.pt").unlink()
    assert weights_sha256(base) == before, "other files beside weights don't count"


def test_another_model_is_refused(adapter: Path, tmp_path: Path) -> None:
    other = policy()
    with torch.no_grad():
        other.get_parameter("model.embed_tokens.weight")[0] += 1
    folder = model_folder(tmp_path / "other", other)
    with pytest.raises(ConfigError, match="was not trained on"):
        load(str(folder), device="cpu", adapter=adapter)


def test_one_that_is_bound_to_none_is_refused_where_its_shapes_do_not_fit(
    base: Path, adapter: Path
) -> None:
    weights = load_file(adapter / WEIGHTS)
    save_file(
        {name: weight[:, :3].contiguous() for name, weight in weights.items()}, adapter / WEIGHTS
    )
    with pytest.raises(ConfigError, match="does not fit"):
        load(str(base), device="cpu", adapter=adapter)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"use_dora": True}, "not plain LoRA"),
        ({"peft_type": "IA3"}, "not plain LoRA"),
        ({"rank_pattern": {"q_proj": 2}}, "ranks differ by layer"),
        ({"r": 0}, "has no readable adapter"),
    ],
)
def test_another_kind_is_refused(
    base: Path, adapter: Path, change: dict[str, object], said: str
) -> None:
    file = adapter / CONFIG
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ConfigError, match=said):
        load(str(base), device="cpu", adapter=adapter)


def test_what_is_no_adapter_is_refused(base: Path, adapter: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no readable adapter"):
        load(str(base), device="cpu", adapter=tmp_path / "nowhere")
    (adapter / WEIGHTS).write_bytes(b"half a file")
    with pytest.raises(ConfigError, match="has no readable adapter"):
        load(str(base), device="cpu", adapter=adapter)


def test_smol_reads_with_an_adapter_and_its_settings(
    base: Path, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smol, "smol_folder", lambda: base)
    (adapter / "prompts.toml").write_text(PromptSet.load("boxed").source, encoding="utf-8")
    (adapter / FILE).write_text(SETTINGS, encoding="utf-8")
    model = smol.open_smol(str(adapter))
    assert model.name == f"smol:{adapter}"
    assert model.policy is not None
    assert (model.policy.window, model.policy.memory_tokens) == (800, 12)


def test_the_adapter_that_comes_with_memagent_is_for_smol_alone(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smol, "smol_folder", lambda: base)
    model = smol.open_smol("trained")
    assert (model.name, model.policy) == ("smol:trained", Policy.load(smol.TRAINED))
    with pytest.raises(ConfigError, match=r"was not trained on .*sha256"):
        asyncio.run(model.window())
