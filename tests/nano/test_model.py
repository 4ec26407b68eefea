from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, Qwen3ForCausalLM

from memagent_engines.transformers.sampler import end_ids, window_of
from memagent_nano.model import new_model
from memagent_nano.sizes import PICO, SIZES
from memagent_nano.tokenizer import END

MOST = {"pico": 500_000, "nano": 5_000_000}
MIB_10 = 10 * 2**20


def made(name: str, tokenizers: dict[str, Path], seed: int = 0) -> Qwen3ForCausalLM:
    return new_model(SIZES[name], AutoTokenizer.from_pretrained(tokenizers[name]), seed=seed)


@pytest.mark.parametrize("name", SIZES)
def test_it_is_as_small_as_it_says(tokenizers: dict[str, Path], tmp_path: Path, name: str) -> None:
    model, size = made(name, tokenizers), SIZES[name]
    assert model.num_parameters() <= MOST[name]
    assert window_of(model) == size.window
    model.to(torch.bfloat16).save_pretrained(tmp_path)  # pyright: ignore[reportArgumentType]
    assert (tmp_path / "model.safetensors").stat().st_size < MIB_10


def test_pico_has_a_vocabulary_of_a_few_hundred() -> None:
    assert 256 < PICO.vocabulary <= 512


@pytest.mark.parametrize("name", SIZES)
def test_parts_of_the_window_leave_room_for_the_wording(name: str) -> None:
    size = SIZES[name]
    assert size.chunk_tokens + 2 * size.memory_tokens < size.window


def test_replies_end_with_the_tokenizers_end(tokenizers: dict[str, Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tokenizers["pico"])
    ends = end_ids(made("pico", tokenizers), tokenizer)
    assert ends == (tokenizer.convert_tokens_to_ids(END),)


def test_a_seed_makes_the_same_weights(tokenizers: dict[str, Path]) -> None:
    first, again, other = (made("pico", tokenizers, seed) for seed in (3, 3, 4))
    ids = torch.arange(64)[None]
    with torch.no_grad():
        logits = [model(ids).logits for model in (first, again, other)]
    assert torch.equal(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2])
