"""Drafts: what is right of one is taken, and a reply never depends on it."""

import asyncio
import random
from typing import Any

import pytest
import torch
from tests.models.transformers.policies import policy, tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig, PreTrainedModel

from memagent.messages import Sampling
from memagent_engines.transformers import drafts
from memagent_engines.transformers.padded import PaddedSampler
from memagent_engines.transformers.sampler import Sampled

GREEDY = Sampling(temperature=0.0, top_p=1.0)
DRAWS = "memagent_engines.transformers.padded.draws"


@pytest.mark.parametrize(
    ("text", "followed"),
    [
        ("the old prince, the old ", "prince, the old "),  # where it stood first
        ("ab1 ab2 xab", "1 ab2 xab"),
        ("ab1 xab2 xab", "2 xab"),  # the longer one counts
        ("aaaa", "a"),
        ("abc", ""),
        ("a", ""),
        ("", ""),
        ("\ud800\U0003ffff1\ud800\U0003ffff", "1\ud800\U0003ffff"),  # ids of all kinds
    ],
)
def test_a_draft_is_what_followed_the_same_words(text: str, followed: str) -> None:
    assert drafts.guess(text, 20) == followed
    assert drafts.guess(text, 2) == followed[:2]
    assert drafts.guess(text, 0) == ""


def reply(
    model: PreTrainedModel,
    prompts: list[list[int]],
    limits: list[int],
    sampling: Sampling = GREEDY,
) -> list[Sampled]:
    sampler = PaddedSampler(model, tokenizer())

    async def together() -> list[Sampled]:
        calls = enumerate(zip(prompts, limits, strict=True))
        return await asyncio.gather(
            *(sampler.sample(p, max_tokens=n, sampling=sampling, seed=at) for at, (p, n) in calls)
        )

    with sampler.generating():
        return asyncio.run(together())


def undrafted(
    model: PreTrainedModel,
    prompts: list[list[int]],
    limits: list[int],
    monkeypatch: pytest.MonkeyPatch,
    sampling: Sampling = GREEDY,
) -> list[Sampled]:
    """Replies of transformers' own `generate`."""
    with monkeypatch.context() as patch:
        patch.setattr(DRAWS, lambda _: False)
        return reply(model, prompts, limits, sampling)


def draft(
    monkeypatch: pytest.MonkeyPatch,
    prompts: list[list[int]],
    replies: list[Sampled],
    chance: random.Random,
) -> None:
    """Has drafts be right for a while, and then wrong: the reply is known."""
    whole = [
        "".join(map(chr, [*prompt, *reply.ids]))
        for prompt, reply in zip(prompts, replies, strict=True)
    ]

    def guess(text: str, longest: int) -> str:
        right = next((w[len(text) :] for w in whole if w.startswith(text)), "")
        return (right[: chance.randrange(9)] + chance.choice(["", "abc"]))[:longest]

    monkeypatch.setattr(drafts, "guess", guess)


class Counted:
    """How many passes a model made."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.passes = 0
        model.register_forward_pre_hook(self.count)

    def count(self, *_: object) -> None:
        self.passes += 1


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.7, top_p=0.9)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_no_reply_depends_on_what_was_drafted(
    seed: int, sampling: Sampling, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    prompts = [[chance.randrange(3, 60) for _ in range(chance.randrange(1, 60))] for _ in range(5)]
    prompts.append([5, 6, 7, 8] * 9)
    limits = [chance.randrange(1, 60) for _ in prompts]
    plain = undrafted(policy(), prompts, limits, monkeypatch, sampling)
    drafted = reply(policy(), prompts, limits, sampling)
    draft(monkeypatch, prompts, plain, chance)
    forced = reply(policy(), prompts, limits, sampling)
    for row, *others in zip(plain, drafted, forced, strict=True):
        for other_row in others:
            assert (row.ids, row.finish) == (other_row.ids, other_row.finish)
            assert row.logprobs == pytest.approx(other_row.logprobs, abs=1e-4)


def test_prompts_of_one_id_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = undrafted(policy(), [[9], [8]], [12, 5], monkeypatch)
    assert [row.ids for row in reply(policy(), [[9], [8]], [12, 5])] == [row.ids for row in plain]


def test_a_reply_that_was_drafted_takes_a_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = policy()
    (plain,) = undrafted(model, [[9, 8]], [40], monkeypatch)
    counted = Counted(model)
    monkeypatch.setattr(
        drafts,
        "guess",
        lambda text, longest: "".join(map(chr, plain.ids))[len(text) - 2 :][:longest],
    )
    (drafted,) = reply(model, [[9, 8]], [40])
    assert drafted.ids == plain.ids
    assert counted.passes < len(plain.ids) / 3


def test_a_large_batch_is_drafted_once_drafts_are_seen_to_be_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = policy()
    prompts = [[9, 8]] * 20
    plain = undrafted(model, prompts, [40] * 20, monkeypatch)
    counted = Counted(model)
    monkeypatch.setattr(
        drafts,
        "guess",
        lambda text, longest: "".join(map(chr, plain[0].ids))[len(text) - 2 :][:longest],
    )
    assert [row.ids for row in reply(model, prompts, [40] * 20)] == [row.ids for row in plain]
    assert counted.passes < len(plain[0].ids) / 2


def test_a_prompt_that_several_have_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sampling = policy(), Sampling(temperature=1.0, top_p=1.0)
    prompts = [[9, 8, 7], [5] * 20, [9, 8, 7], [5] * 20, [9, 8, 7], [4]]
    plain = undrafted(model, prompts, [12] * 6, monkeypatch, sampling)
    read: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: read.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    shared = reply(model, prompts, [12] * 6, sampling)
    assert read[0] == (3, 19)  # the last ids are fed with those that follow
    assert [row.ids for row in shared] == [row.ids for row in plain]
    assert len({row.ids for row in shared}) == 6
    for row, other in zip(plain, shared, strict=True):
        assert row.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_prompts_are_read_in_passes_of_similar_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    model, sampling = policy(), Sampling(temperature=1.0, top_p=1.0)
    prompts = [[7] * 40, [9, 8, 7], [4], [5] * 20, [9, 8, 7], [6] * 21]
    plain = undrafted(model, prompts, [12] * 6, monkeypatch, sampling)
    monkeypatch.setattr(drafts, "READ", 50)
    read: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: read.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    replies = reply(model, prompts, [12] * 6, sampling)
    assert read[:3] == [(1, 39), (2, 20), (2, 2)]
    assert read[3][0] == 6
    assert [row.ids for row in replies] == [row.ids for row in plain]
    for row, other in zip(plain, replies, strict=True):
        assert row.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_half_precision_is_not_drafted_but_replies_still_leave_the_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model: Any = policy().to(torch.bfloat16)  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(drafts, "guess", lambda *_: pytest.fail("a draft"))
    fed: list[tuple[int, ...]] = []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: fed.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    limits = [2, 2, 6]
    replies = reply(model, [[9, 8, 7], [9, 8, 7], [5] * 20], limits)
    assert [len(row.ids) for row in replies] == limits
    assert fed == [(2, 19), (3, 1), (3, 1), (1, 1), (1, 1), (1, 1), (1, 1)]


def test_a_pass_is_no_wider_than_its_logits_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [[5, 6, 7, 8] * 9] * 2
    plain = undrafted(policy(), prompts, [20, 20], monkeypatch)
    for widest in (0, 1, 3):
        monkeypatch.setattr(drafts, "LOGITS", widest * 2 * 2000)
        assert [row.ids for row in reply(policy(), prompts, [20, 20])] == [row.ids for row in plain]


@pytest.mark.parametrize("draws", [True, False])
def test_a_reply_ends_where_it_is_stopped(draws: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DRAWS, lambda _: draws)
    (whole, other_row) = reply(policy(), [[9, 8], [7, 7]], [20, 20])
    last = whole.ids[5]
    sampler = PaddedSampler(policy(), tokenizer())

    async def both() -> list[Sampled]:
        stopped = sampler.sample(
            [9, 8], max_tokens=20, sampling=GREEDY, seed=0, stopped=lambda ids: last in ids
        )
        free = sampler.sample([7, 7], max_tokens=20, sampling=GREEDY, seed=1)
        return list(await asyncio.gather(stopped, free))

    with sampler.generating():
        cut, free = asyncio.run(both())
    length = whole.ids.index(last) + 1
    assert cut.ids == whole.ids[:length]
    assert len(cut.logprobs) == length
    assert cut.finish == "stop"
    assert (free.ids, free.finish) == (other_row.ids, other_row.finish)


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
def test_every_architecture_that_drafts_are_made_for_replies_the_same(
    kind: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = other(kind, **settings)
    assert drafts.draws(model)
    assert drafts.verifies(model)
    prompts = [[9, 8], [7] * 30, [6, 5, 4]]
    plain = undrafted(model, prompts, [20, 20, 20], monkeypatch)
    draft(monkeypatch, prompts, plain, random.Random(0))
    drafted = reply(model, prompts, [20, 20, 20])
    assert [row.ids for row in drafted] == [row.ids for row in plain]


@pytest.mark.parametrize(
    "model",
    [
        other("mistral", sliding_window=4),
        other("llama", rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}),
        other("gpt_neox"),
    ],
    ids=["sliding", "dynamic", "untried"],
)
def test_what_cannot_drop_an_id_is_left_to_transformers(model: PreTrainedModel) -> None:
    assert not drafts.draws(model)
