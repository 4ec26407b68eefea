import asyncio
import threading
from typing import Any

import pytest
from tests.models.transformers.policies import (
    PLAIN,
    WINDOW,
    forward_logprobs,
    policy,
    request,
    tokenizer,
)
from tests.train.rollout.policies import Echoes

from memagent.errors import ConfigError, ContextOverflow, TokenizerError
from memagent.messages import Completion, FinishReason, Sampling, Usage
from memagent_engines.transformers.padded import PaddedSampler
from memagent_train.rollout import model as rollout_model
from memagent_train.rollout.continuous import ContinuousSampler
from memagent_train.rollout.meter import Meter
from memagent_train.rollout.model import RolloutModel
from memagent_train.rollout.sampler import MeteredSampler
from memagent_train.rollout.template import Template

NAMES = tokenizer()


def model(sampler: Any = None, **options: Any) -> RolloutModel:
    return RolloutModel(Echoes() if sampler is None else sampler, NAMES, **options)


def template_ids(*texts: str) -> tuple[int, ...]:
    """A prompt's ids as transformers makes them."""
    messages = [{"role": m.role, "content": m.content} for m in request(*texts).messages]
    whole = NAMES.apply_chat_template(messages, add_generation_prompt=True, tokenize=True)
    return tuple(whole["input_ids"])


def ids(completion: Completion) -> tuple[int, ...]:
    assert completion.tokens is not None
    return completion.tokens.prompt + completion.tokens.sampled


async def test_first_turns_are_the_tokenizers_own_rendering() -> None:
    for texts in (("Who came?",), (" \n日本 <|im_end|> é",), ("a", "b", "c")):
        reply = await model().complete(request(*texts))
        assert reply.tokens is not None
        assert reply.tokens.prompt == template_ids(*texts)


async def test_a_reply_has_its_ids_logprobs_and_cost() -> None:
    sampler = Echoes()
    policy_model = model(sampler)
    reply = await policy_model.complete(request("Who came?", max_tokens=6))
    prompt, drawn = sampler.prompts[0], sampler.drawn[0]
    assert reply.tokens is not None
    assert (reply.tokens.prompt, reply.tokens.sampled) == (prompt, drawn)
    assert reply.tokens.logprobs is not None
    assert len(reply.tokens.logprobs) == len(drawn)
    assert reply.text == NAMES.decode(drawn, skip_special_tokens=True)
    assert (reply.finish_reason is FinishReason.STOP) == (drawn[-1] == 2)
    assert reply.usage == Usage(calls=1, prompt_tokens=len(prompt), completion_tokens=len(drawn))


@pytest.mark.parametrize("engine", [PaddedSampler, ContinuousSampler])
def test_a_conversation_at_an_engine_is_what_one_forward_pass_sees(engine: Any) -> None:
    weights = policy()
    sampler = engine(weights, NAMES)

    async def talk() -> list[Completion]:
        policy_model = model(sampler)
        said = ["Who came?"]
        replies: list[Completion] = []
        for after in ("And then?", "Why?"):
            replies.append(await policy_model.complete(request(*said, max_tokens=20)))
            said += [replies[-1].text, after]
        return replies

    with sampler.generating():
        first, second = asyncio.run(talk())
    assert ids(second)[: len(ids(first))] == ids(first)
    for reply in (first, second):
        assert reply.tokens is not None
        assert reply.tokens.logprobs == pytest.approx(
            forward_logprobs(weights, reply.tokens.prompt, reply.tokens.sampled), abs=1e-4
        )


async def test_the_counter_counts_what_is_sent() -> None:
    sampler = Echoes()
    policy_model = model(sampler)
    counter = await policy_model.counter()
    said = ["Who came?" * 20]
    for _ in range(4):
        sent = request(*said)
        counted = await asyncio.to_thread(counter.count_messages, sent.messages)
        reply = await policy_model.complete(sent)
        assert counted == len(sampler.prompts[-1]) == reply.usage.prompt_tokens
        said += [reply.text, "And?"]


async def test_over_the_window_nothing_is_sent() -> None:
    sampler = Echoes()
    length = len(template_ids("Who came?"))
    policy_model = model(sampler, window=length + 8)
    assert await policy_model.window() == length + 8
    await policy_model.complete(request("Who came?", max_tokens=8))
    with pytest.raises(ContextOverflow, match="policy"):
        await policy_model.complete(request("Who came?", max_tokens=9))
    assert len(sampler.prompts) == 1
    assert await model().window() == WINDOW
    for window in (0, WINDOW + 1):
        with pytest.raises(ConfigError, match=f"window={window}"):
            model(window=window)


async def test_sampling_is_that_of_the_training_or_the_requests_own() -> None:
    sampler = Echoes()
    cold = Sampling(temperature=0.0, top_p=0.5)
    await model(sampler).complete(request("a", sampling=cold))
    await model(sampler, sampling=None).complete(request("a", sampling=cold))
    await model(sampler, sampling=Sampling(temperature=2)).complete(request("a", sampling=cold))
    assert sampler.samplings == [PLAIN, cold, Sampling(temperature=2)]


async def test_seeds_are_the_requests_or_follow_from_the_rollouts() -> None:
    sampler = Echoes()
    for base in (None, 5, 5, 6):
        policy_model = model(sampler).clone(base)
        for seed in (None, None, 9):
            await policy_model.complete(request("a", seed=seed))
    runs = [sampler.seeds[place : place + 3] for place in (0, 3, 6, 9)]
    assert runs[0] == [None, None, 9]
    assert runs[1] == runs[2]
    assert len({*runs[1], *runs[3]}) == 5, "only 9 is in both"


async def test_what_is_fresh_knows_no_conversations_and_shares_the_engine() -> None:
    sampler = Echoes()
    first = model(sampler)
    reply = await first.complete(request("Who came?"))
    other = first.clone()
    assert other.meter is first.meter
    again = await other.complete(request("Who came?", reply.text, "And?"))
    known = await first.complete(request("Who came?", reply.text, "And?"))
    assert ids(known)[: len(ids(reply))] == ids(reply)
    assert again.tokens is not None
    assert again.tokens.prompt == template_ids("Who came?", reply.text, "And?")
    assert await other.counter() is not await first.counter()


async def test_long_prompts_are_tokenised_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_model, "SHORT", 30)
    policy_model = model()
    where: list[bool] = []
    encode = Template.encode

    def noted(template: Template, text: str) -> tuple[int, ...]:
        where.append(threading.current_thread() is threading.main_thread())
        return encode(template, text)

    monkeypatch.setattr(Template, "encode", noted)
    await policy_model.complete(request("a"))
    await policy_model.complete(request("a" * 31, max_tokens=1))
    assert where == [True, False]


async def test_the_meter_sees_calls_and_an_engine_from_outside() -> None:
    policy_model = model(Echoes(pause=0.03))
    policy_model.meter.read()
    await asyncio.gather(*(policy_model.complete(request(f"{n}")) for n in range(5)))
    reading = policy_model.meter.read()
    assert (reading.calls, reading.in_flight_max) == (5, 5)
    assert 0 <= reading.idle_share < 0.9
    assert reading.tokens_per_second > 0


def test_the_meter_of_an_engine_is_its_own() -> None:
    sampler = MeteredSampler(policy(), NAMES)
    assert model(sampler).meter is sampler.meter
    assert isinstance(model().meter, Meter)


async def test_what_the_template_refuses_is_an_error_of_settings() -> None:
    with pytest.raises(TokenizerError, match="no system"):
        await model(chat_template="{{ raise_exception('no system') }}").complete(request("a"))
    bare = tokenizer()
    bare.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        RolloutModel(Echoes(), bare)


async def test_thinking_reaches_prompt_and_count() -> None:
    switch = "{{ messages[-1].content }}{% if enable_thinking is defined %} {{ enable_thinking }}{% endif %}"
    policy_model = model(chat_template=switch)
    counter = await policy_model.counter()
    for thinking, text in ((None, "a"), (True, "a True"), (False, "a False")):
        asked = request("a", thinking=thinking)
        reply = await policy_model.complete(asked)
        assert reply.tokens is not None
        assert NAMES.decode(reply.tokens.prompt) == text
        assert counter.count_messages(asked.messages, thinking=thinking) == len(reply.tokens.prompt)


async def test_it_says_what_it_is() -> None:
    policy_model = model(name="qwen")
    assert policy_model.name == "qwen"
    assert repr(policy_model) == f"RolloutModel('qwen', Echoes, window={WINDOW})"
    await policy_model.aclose()
