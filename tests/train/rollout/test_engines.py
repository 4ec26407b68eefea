"""What every engine in this process promises."""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.stand_in_engine import StandIn, StandInModel, no_tokenizer
from tests.models.transformers.folders import model_folder
from tests.models.transformers.policies import PLAIN, WINDOW, forward_logprobs, policy, tokenizer
from transformers import PreTrainedModel

from memagent.errors import ConfigError, EngineFailed, ModelError
from memagent.messages import FinishReason, Sampling
from memagent_engines.transformers.padded import PaddedSampler
from memagent_engines.transformers.sampler import Sampled
from memagent_train.rollout import in_process
from memagent_train.rollout.continuous import ContinuousSampler
from memagent_train.rollout.in_process import EngineSampler

Engine = Callable[..., Any]
PROMPTS = [[5, 6, 7], list(range(10, 60)), [1, 99, 2, 1, 500], [1500] * 20]


@pytest.fixture(params=[PaddedSampler, ContinuousSampler], ids=["padded", "continuous"])
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


async def _draw(
    sampler: Any, *, max_tokens: int = 12, sampling: Sampling = PLAIN, seed: int | None = None
) -> list[Sampled]:
    calls = (
        sampler.sample(prompt, max_tokens=max_tokens, sampling=sampling, seed=seed)
        for prompt in PROMPTS
    )
    return await asyncio.gather(*calls)


def draw(sampler: Any, **options: Any) -> list[Sampled]:
    return asyncio.run(_draw(sampler, **options))


def favour_end(model: PreTrainedModel, logit: float) -> None:
    """Adds to the end token's logit."""
    bias = torch.zeros(2000)
    bias[2] = logit
    model.lm_head.bias = torch.nn.Parameter(bias)  # pyright: ignore[reportAttributeAccessIssue]


def differences(model: PreTrainedModel, drawn: list[Sampled], temperature: float = 1.0) -> float:
    """The largest between an engine's log-probs and those of a plain forward pass."""
    return max(
        abs(ours - plain)
        for prompt, one in zip(PROMPTS, drawn, strict=True)
        for ours, plain in zip(
            one.logprobs, forward_logprobs(model, prompt, one.ids, temperature), strict=True
        )
    )


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_logprobs_are_those_of_a_forward_pass(engine: Engine, temperature: float) -> None:
    model = policy()
    sampler = engine(model, tokenizer())
    sampling = Sampling(temperature=temperature, top_p=1.0)
    with sampler.generating():
        drawn = draw(sampler, sampling=sampling)
    assert {len(one.ids) for one in drawn} != {0}
    assert differences(model, drawn, temperature) < 1e-4
    # The model's own repetition penalty, top-k and temperature took no part: they would show here.
    assert len({one.ids[0] for one in drawn}) > 1


def test_the_next_block_draws_with_the_weights_of_its_time(engine: Engine) -> None:
    model = policy()
    sampler = engine(model, tokenizer())
    with sampler.generating():
        before = draw(sampler)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    assert differences(model, before) > 0.1
    with sampler.generating():
        after = draw(sampler)
    assert differences(model, after) < 1e-4


def test_the_module_is_left_as_it_was_and_dropout_is_off_inside(engine: Engine) -> None:
    model = policy(dropout=0.5)
    model.model.layers[0].eval()  # pyright: ignore[reportAttributeAccessIssue]
    modes = {name: module.training for name, module in model.named_modules()}
    config = model.generation_config
    sampler = engine(model, tokenizer())
    with sampler.generating():
        assert not any(module.training for module in model.modules())
        drawn = draw(sampler)
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert model.generation_config is config
    assert model.config._attn_implementation == "sdpa"
    assert differences(model, drawn) < 1e-4


def test_outside_of_a_block_nothing_is_served_and_blocks_do_not_nest(engine: Engine) -> None:
    sampler = engine(policy(), tokenizer())
    with pytest.raises(ModelError, match="generating"):
        draw(sampler)
    with sampler.generating(), pytest.raises(ConfigError, match="already"), sampler.generating():
        pass
    with pytest.raises(ModelError, match="generating"):
        draw(sampler)


def test_a_reply_ends_at_its_end_token_or_its_limit(engine: Engine) -> None:
    model = policy()
    favour_end(model, 7.0)  # it comes in about one of eight steps
    sampler = engine(model, tokenizer())
    with sampler.generating():
        drawn = [one for _ in range(8) for one in draw(sampler, max_tokens=5)]
    assert {one.finish for one in drawn} == {FinishReason.STOP, FinishReason.LENGTH}
    for one in drawn:
        assert 1 <= len(one.ids) <= 5
        assert 2 not in one.ids[:-1]
        assert (one.finish is FinishReason.STOP) == (one.ids[-1] == 2)
        assert one.finish is FinishReason.STOP or len(one.ids) == 5


def test_weights_that_are_no_numbers_fail_the_call(engine: Engine) -> None:
    model = policy()
    with torch.no_grad():
        model.model.norm.weight.fill_(math.nan)  # pyright: ignore[reportAttributeAccessIssue, reportCallIssue]
    sampler = engine(model, tokenizer())
    with sampler.generating(), pytest.raises(ModelError):
        draw(sampler)


def test_greedy_takes_the_likeliest(engine: Engine) -> None:
    model = policy()
    sampler = engine(model, tokenizer())
    greedy = Sampling(temperature=0.0, top_p=1.0)
    with sampler.generating():
        drawn = draw(sampler, sampling=greedy)
        assert drawn == draw(sampler, sampling=greedy)
    assert differences(model, drawn) < 1e-4
    model.eval()
    whole: Any = model
    likeliest = whole(torch.tensor([PROMPTS[0]])).logits[0, -1].argmax()
    assert drawn[0].ids[0] == likeliest


def test_cancelled_calls_and_the_end_of_a_block_leave_nothing_behind(engine: Engine) -> None:
    model = policy()
    favour_end(model, -1e9)  # never
    sampler = engine(model, tokenizer())
    long = {"max_tokens": 900, "sampling": PLAIN, "seed": None}

    async def leave() -> None:
        call = asyncio.create_task(sampler.sample([5, 6], **long))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert (await sampler.sample([5], max_tokens=1, sampling=PLAIN, seed=None)).ids

    async def begin() -> None:
        call = asyncio.create_task(sampler.sample([5, 6, 7], **long))
        await asyncio.sleep(0.1)
        call.cancel()

    def threads() -> list[str]:
        """Without those that memagent keeps for blocking work, which start when they are first needed."""
        names = (thread.name for thread in threading.enumerate())
        return sorted(name for name in names if not name.startswith("memagent-work"))

    before = threads()
    with sampler.generating():
        asyncio.run(leave())
        asyncio.run(begin())
    ends = time.monotonic() + 30  # on a busy machine the engine's thread ends after the block
    while threads() != before and time.monotonic() < ends:
        time.sleep(0.05)
    assert threads() == before


def test_a_block_that_ends_too_early_fails_what_is_left(engine: Engine) -> None:
    model = policy()
    favour_end(model, -1e9)  # never
    sampler = engine(model, tokenizer())

    async def outlive() -> Sampled:
        return await sampler.sample([5, 6], max_tokens=900, sampling=PLAIN, seed=None)

    with ThreadPoolExecutor() as elsewhere:
        with sampler.generating():
            left = elsewhere.submit(asyncio.run, outlive())
            time.sleep(0.2)
        with pytest.raises(ModelError):
            left.result(timeout=10)


def test_engines_say_what_window_they_have(engine: Engine) -> None:
    assert engine(policy(), tokenizer()).window == WINDOW
    assert engine(policy(), tokenizer(), window=100).window == 100
    with pytest.raises(ConfigError, match=r"max_batch and \w+ must be at least 1, got 0"):
        engine(policy(), tokenizer(), max_batch=0)


# --- engines with weights of their own


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    """The engines that start, none of them a real one."""
    no_tokenizer(monkeypatch)
    kinds: Mapping[str, type] = {"vllm-engine": StandInModel}
    monkeypatch.setattr(in_process, "KINDS", kinds)
    monkeypatch.setattr(in_process, "SETTINGS", {"vllm-engine": {}})
    return StandInModel.watch(monkeypatch)


async def test_an_engine_that_died_between_rollouts_starts_again_with_the_weights(
    started: list[StandIn], tmp_path: Path
) -> None:
    folders = [str(model_folder(tmp_path / name)) for name in ("first", "second")]
    sampler = EngineSampler("vllm-engine", tokenizer(), [2], window=100, settings={})
    await sampler.load(Path(folders[0]))
    started[0].dead = True
    await sampler.load(Path(folders[1]))
    assert [engine.loaded for engine in started] == [[], [folders[1]]]
    drawn = await sampler.sample([5], max_tokens=1, sampling=PLAIN, seed=None)
    assert drawn.ids == (2,)  # by the second
    await sampler.aclose()


async def test_an_engine_that_dies_again_while_it_loads_fails(
    started: list[StandIn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = model_folder(tmp_path / "model")
    sampler = EngineSampler("vllm-engine", tokenizer(), [2], window=100, settings={})
    await sampler.load(folder)

    async def die(engine: StandIn, _: str) -> None:
        engine.die()
        raise EngineFailed("the engine died")

    monkeypatch.setattr(StandIn, "load", die)
    with pytest.raises(EngineFailed, match="died"):
        await sampler.load(folder)
    assert len(started) == 2
    await sampler.aclose()
