import torch

from memagent_engines.transformers.sampler import end_ids, window_of
from memagent_train.smoke.model import WINDOW, tiny_model
from memagent_train.smoke.tokenizer import END, word_tokenizer


def test_it_has_fewer_than_a_hundred_thousand_weights() -> None:
    model = tiny_model(word_tokenizer(), seed=0)
    assert 50_000 < model.num_parameters() < 100_000
    assert window_of(model) == WINDOW


def test_its_replies_end_with_the_tokenizers_end() -> None:
    tokenizer = word_tokenizer()
    assert end_ids(tiny_model(tokenizer, seed=0), tokenizer) == (
        tokenizer.convert_tokens_to_ids(END),
    )


def test_a_seed_makes_the_same_weights() -> None:
    tokenizer = word_tokenizer()
    first, again, other = (tiny_model(tokenizer, seed=seed) for seed in (3, 3, 4))
    ids = torch.arange(len(tokenizer))[None]
    with torch.no_grad():
        logits = [model(ids).logits for model in (first, again, other)]
    assert torch.equal(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2])
