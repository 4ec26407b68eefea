"""Guessed replies: what is right of a guess is taken, and a reply never depends on it."""

import asyncio
import random
from typing import Any

import pytest
import torch
from tests.models.transformers.policies import policy, tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel

from memagent.messages import Sampling
from memagent.models.transformers import drafts
from memagent.models.transformers.batching import Request
from memagent.models.transformers.drafts import KEPT, Drafts
from memagent.models.transformers.padded import PaddedSampler
from memagent.models.transformers.sampler import Sampled


def noted(*replies: list[int]) -> Drafts:
    made = Drafts()
    for reply in replies:
        made.note(reply)
    return made


@pytest.mark.parametrize(
    ("prompt", "guess"),
    [
        ([1, 5, 6, 7, 8, 9, 2], [5, 6, 7, 8, 9]),  # the whole reply stands there
        ([1, 5, 6, 7, 8, 3, 2], [5, 6, 7, 8, 9]),  # its beginning does
        ([1, 5, 6, 7, 3, 8, 9], []),  # too little of it
        ([7, 8, 9], []),
        ([], []),
    ],
)
def test_a_reply_that_begins_in_the_prompt_is_guessed(prompt: list[int], guess: list[int]) -> None:
    assert noted([5, 6, 7, 8, 9]).guess(prompt, 10) == guess


def test_a_short_reply_is_guessed_where_all_of_it_stands() -> None:
    assert noted([5]).guess([3, 5, 4], 10) == [5]
    assert noted([5, 6]).guess([3, 5, 4], 10) == []


def test_of_several_the_one_with_most_in_the_prompt_and_then_the_latest() -> None:
    assert noted([5], [5, 6, 7, 8, 9], [5, 6]).guess([5, 6, 7, 8, 9], 10) == [5, 6, 7, 8, 9]
    assert noted([5, 6, 7, 8, 1], [5, 6, 7, 8, 2]).guess([5, 6, 7, 8], 10)[-1] == 2
    assert noted([5, 6, 7, 8, 1], [5, 6, 7, 8, 2], [5, 6, 7, 8, 1]).guess([5, 6, 7, 8], 10)[-1] == 1


def test_no_more_than_asked_for_is_guessed() -> None:
    assert noted([5, 6, 7, 8, 9]).guess([5, 6, 7, 8, 9], 2) == [5, 6]
    assert noted([5]).guess([5], 0) == []


def test_ids_of_large_vocabularies_and_surrogates_are_ids_like_others() -> None:
    assert noted([0xD800, 262_143]).guess([1, 0xD800, 262_143, 1], 10) == [0xD800, 262_143]


def test_old_replies_are_forgotten_and_empty_ones_never_known() -> None:
    made = noted([1], [2], [])
    for one in range(3, KEPT + 2):
        made.note([one])
    assert made.guess([1], 10) == []
    assert made.guess([2], 10) == [2]


GREEDY = Sampling(temperature=0.0, top_p=1.0)


class Told(Drafts):
    """Guesses what it is told to."""

    def __init__(self, guesses: dict[tuple[int, ...], list[int]] | None = None) -> None:
        super().__init__()
        self.guesses = guesses or {}

    def guess(self, prompt_ids: Any, most: int) -> list[int]:
        return self.guesses.get(tuple(prompt_ids), [])[:most]


class Counted:
    """How many passes a model made."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.passes = 0
        model.register_forward_pre_hook(self.count)

    def count(self, *_: object) -> None:
        self.passes += 1


def sampler(model: PreTrainedModel, guesses: dict[tuple[int, ...], list[int]]) -> PaddedSampler:
    made = PaddedSampler(model, tokenizer())
    made.drafts = Told(guesses)
    return made


def reply(one: PaddedSampler, prompts: list[list[int]], limits: list[int]) -> list[Sampled]:
    async def together() -> list[Sampled]:
        calls = zip(prompts, limits, strict=True)
        return await asyncio.gather(
            *(one.sample(p, max_tokens=n, sampling=GREEDY, seed=None) for p, n in calls)
        )

    with one.generating():
        return asyncio.run(together())


@pytest.mark.parametrize("seed", range(3))
def test_no_reply_depends_on_what_was_guessed(seed: int) -> None:
    draw = random.Random(seed)
    prompts = [[draw.randrange(3, 2000) for _ in range(draw.randrange(1, 60))] for _ in range(6)]
    limits = [draw.randrange(1, 30) for _ in prompts]
    plain = reply(sampler(policy(), {}), prompts, limits)
    guesses = dict[tuple[int, ...], list[int]]()
    for prompt, one in zip(prompts[1:], plain[1:], strict=True):  # the first has none
        right = list(one.ids)[: draw.randrange(0, 20)]
        guesses[tuple(prompt)] = [i for i in right if i != 2] + draw.choice([[], [7, 8, 9]])
    guessed = reply(sampler(policy(), guesses), prompts, limits)
    for one, other in zip(plain, guessed, strict=True):
        assert (one.ids, one.finish) == (other.ids, other.finish)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_a_reply_that_was_guessed_takes_one_pass() -> None:
    model = policy()
    (plain,) = reply(sampler(model, {}), [[9, 8]], [20])
    counted = Counted(model)
    (guessed,) = reply(sampler(model, {(9, 8): list(plain.ids)}), [[9, 8]], [20])
    assert guessed.ids == plain.ids
    assert counted.passes == 1


def test_a_reply_that_repeats_what_stands_in_its_prompt_is_guessed() -> None:
    model = policy()
    one = PaddedSampler(model, tokenizer())
    (first,) = reply(one, [[9, 8]], [20])
    counted = Counted(model)
    prompt = [9, 8, *first.ids, 9, 8]
    (again,) = reply(one, [prompt], [20])
    assert counted.passes <= 20  # the guess is in the first pass, and what is wrong costs none
    assert again.ids == reply(sampler(model, {}), [prompt], [20])[0].ids


def test_what_is_drawn_at_a_temperature_is_not_guessed() -> None:
    model = policy()
    one = sampler(model, {(9, 8): [5, 5, 5]})
    counted = Counted(model)
    sampling = Sampling(temperature=1.0, top_p=1.0)

    async def drawn() -> Sampled:
        return await one.sample([9, 8], max_tokens=5, sampling=sampling, seed=1)

    with one.generating():
        assert counted.passes <= len(asyncio.run(drawn()).ids) <= counted.passes + 1


def test_drafts_are_cut_where_their_logits_would_fill_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = policy()
    (plain,) = reply(sampler(model, {}), [[9, 8]], [20])
    for most in (0, 3):
        monkeypatch.setattr(drafts, "LOGITS", (most + 1) * 2000)
        checked = drafts.Verified(model.eval(), [[9, 8]], [plain.ids[:19]], pad=0)
        assert checked.drawn[0][0] == list(plain.ids[: most + 1])


SIZES: Any = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "vocab_size": 2000,
    "num_hidden_layers": 2,
}
HEADS: Any = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3}


def other(kind: str, **settings: Any) -> Any:
    """A tiny model of another architecture, with random weights."""
    torch.manual_seed(0)
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 2000, "initializer_range": 0.3}
    known = sizes if kind == "gpt2" else {**SIZES, **HEADS}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **known, **settings))
    model.generation_config = GenerationConfig(eos_token_id=[2])
    return model


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (kind, {"sliding_window": None} if kind == "mistral" else {})
        for kind in sorted(drafts.TRIED)
    ],
)
def test_every_architecture_that_is_guessed_with_replies_the_same(
    kind: str, settings: dict[str, Any]
) -> None:
    model = other(kind, **settings)
    assert drafts.verifies(model)
    prompts, limits = [[9, 8], [7] * 30, [6, 5, 4]], [20, 20, 20]
    plain = reply(sampler(model, {}), prompts, limits)
    tails = ([], [7] * 9, [7])
    guesses = {
        tuple(prompt): [i for i in one.ids if i != 2][:12] + tail
        for prompt, one, tail in zip(prompts, plain, tails, strict=True)
    }
    guessed = reply(sampler(model, guesses), prompts, limits)
    assert [one.ids for one in guessed] == [one.ids for one in plain]


@pytest.mark.parametrize(
    "model",
    [
        other("mistral", sliding_window=4),
        other("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
        other("llama").to(torch.bfloat16),
        other("gpt_neox"),
    ],
    ids=["sliding", "dynamic", "half", "untried"],
)
def test_where_a_guess_could_change_a_reply_there_is_none(model: PreTrainedModel) -> None:
    assert not drafts.verifies(model)


@pytest.mark.parametrize("dropped", [False, True])
def test_a_reply_that_nobody_waited_for_is_not_remembered(dropped: bool) -> None:
    (whole,) = reply(sampler(policy(), {}), [[9, 8]], [20])
    one = PaddedSampler(policy(), tokenizer())
    request = Request([9, 8], 20, GREEDY, None)
    if dropped:
        request.reply.cancel()
    with one.generating():
        one.serve([request])
    assert one.drafts is not None
    assert bool(one.drafts.guess(whole.ids, 9)) != dropped
