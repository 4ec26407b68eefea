from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from memagent_nano.gate import FEWEST, HELD_OUT, gate
from memagent_nano.lessons import copies, traces
from memagent_nano.sizes import PICO
from memagent_nano.tokenizer import END, POLICY

N = 60


def always(text: str, tokenizer_folder: Path, out: Path) -> None:
    """Writes a model that replies the same to whatever it is asked.

    Its layers add nothing, so the next token depends on the last one alone: each token of the reply, and what comes
    before it, has a dimension of its own.
    """
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    ids = [tokenizer.convert_tokens_to_ids(POLICY), *tokenizer.encode(text)]
    assert len({*ids}) == len(ids) < 8
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=8,
            intermediate_size=8,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=PICO.window,
            tie_word_embeddings=False,
        )
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not name.endswith("norm.weight"):
                weight.zero_()
        for place, (one, after) in enumerate(
            zip(ids, [*ids[1:], tokenizer.convert_tokens_to_ids(END)], strict=True)
        ):
            model.model.embed_tokens.weight[one, place] = 1.0
            model.lm_head.weight[after, place] = 10.0
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def test_a_policy_that_always_says_none_is_right_where_there_is_nothing(
    tokenizers: dict[str, Path], tmp_path: Path
) -> None:
    always("none", tokenizers["pico"], tmp_path)
    found = gate(PICO, tmp_path, n=N)
    read = traces(PICO, "relevant", tokenizers["pico"], -(-N // FEWEST), HELD_OUT)
    lessons = [("", one) for one in copies(PICO, N, HELD_OUT)]
    lessons += [("read-", one) for one in islice(read, N)]
    of_kind, right = Counter[str](), Counter[str]()
    for prefix, (said, wanted) in lessons:
        same = f"\nMemory:\n{wanted}\nText: " in said
        kind = ("copy" if same else "change") if "\nText: " in said else "answer"
        of_kind[prefix + kind] += 1
        right[prefix + kind] += wanted == "none"
    assert {kind: one["n"] for kind, one in found.items()} == of_kind
    for kind, one in found.items():
        assert one["share"] == pytest.approx(right[kind] / of_kind[kind])
        assert one["low"] - 1e-9 <= one["share"] <= one["high"] + 1e-9
    assert sum(one["n"] for one in found.values()) == 2 * N
    assert found["change"]["share"] == found["read-answer"]["share"] == 0
    assert found["read-copy"]["share"] > 0.1
