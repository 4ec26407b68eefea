"""What holds for every system but RULER's own protocol, which sends a text as it is (see `test_one_shot`)."""

import asyncio

import pytest
from tests.bench.systems.benches import PEERS, haystack, sample, scripted, setting

from memagent import ChatRequest, Completion, Limits, Message, RunStore, Usage, UsageLimit
from memagent.errors import (
    ConfigError,
    ConnectionFailed,
    DocumentError,
    EmptyDocument,
    ModelError,
    QuestionTooLong,
)
from memagent.messages import FinishReason
from memagent.models.base import Wrapper
from memagent_bench.published import ONE_SHOT
from memagent_bench.systems.base import Outcome, Status
from memagent_bench.systems.registry import SYSTEMS, WITHOUT_MODEL, open_system
from memagent_engines.extractive import ExtractiveModel

OURS = sorted(SYSTEMS.keys() - {ONE_SHOT, *PEERS})
FOREIGN = [pytest.param(name, marks=pytest.mark.extra) for name in PEERS]
EVERY = [*OURS, *FOREIGN]
ASKING = [*(name for name in OURS if name not in WITHOUT_MODEL), *FOREIGN]


class Meter(Wrapper):
    """Adds up what calls cost, apart from whoever makes them."""

    usage = Usage()

    async def complete(self, request: ChatRequest) -> Completion:
        completion = await self.inner.complete(request)
        self.usage += completion.usage
        return completion


@pytest.mark.parametrize("name", EVERY)
async def test_a_sample_in_an_outcome_out(name: str, store: RunStore) -> None:
    meter = Meter(scripted())
    system = open_system(name, setting(meter, store))
    assert system.name == name
    outcome = await system.answer(sample(haystack()), "r1")
    assert type(outcome) is Outcome
    assert (outcome.status, outcome.detail) == (Status.ANSWERED, "")
    assert "7405812" in (outcome.answer or "")
    assert 0 < outcome.shown <= 1
    spent = outcome.usage
    assert outcome.predicted_calls is not None
    assert outcome.predicted_tokens is not None
    assert spent.calls <= outcome.predicted_calls
    assert spent.prompt_tokens + spent.completion_tokens <= outcome.predicted_tokens
    if name in WITHOUT_MODEL:
        assert meter.usage == Usage()
    else:
        assert meter.usage == spent
        assert spent.calls > 0
    assert Outcome.model_validate_json(outcome.model_dump_json()) == outcome


@pytest.mark.parametrize("name", EVERY)
async def test_the_same_sample_gives_the_same_outcome(name: str, store: RunStore) -> None:
    outcomes, requests = [], []
    for run_id in ("r1", "r2"):
        model = scripted()
        outcome = await open_system(name, setting(model, store)).answer(sample(haystack()), run_id)
        outcomes.append(outcome.model_copy(update={"run_id": None}))
        requests.append(sorted(request.model_dump_json() for request in model.requests))
    assert outcomes[0] == outcomes[1]
    assert requests[0] == requests[1]


@pytest.mark.parametrize("name", EVERY)
async def test_samples_at_once_do_not_mix(name: str, store: RunStore) -> None:
    async def slow(request: ChatRequest) -> str:
        await asyncio.sleep(0.001)
        text = " ".join(message.content for message in request.messages)
        return "7405812" if "upbeat-pizza" in text else "nothing"

    meter = Meter(scripted(slow))
    system = open_system(name, setting(meter, store))
    mine, other = await asyncio.gather(
        system.answer(sample(haystack()), "r1"),
        system.answer(sample("Nobody came. " * 300, "Who came?"), "r2"),
    )
    assert "7405812" in (mine.answer or "")
    assert "7405812" not in (other.answer or "")
    if name not in WITHOUT_MODEL:
        assert mine.usage + other.usage == meter.usage


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("text", ["x", "x" * 30_000, "\ufeffé", "a\n" * 9000])
async def test_any_text_is_a_document(name: str, text: str, store: RunStore) -> None:
    outcome = await open_system(name, setting(scripted(), store)).answer(sample(text), "r1")
    assert outcome.status is Status.ANSWERED


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("text", ["", " \n\t "])
async def test_no_text_is_an_empty_document(name: str, text: str, store: RunStore) -> None:
    with pytest.raises(EmptyDocument):
        await open_system(name, setting(scripted(), store)).answer(sample(text), "r1")


@pytest.mark.parametrize("name", EVERY)
async def test_half_a_character_is_no_text(name: str, store: RunStore) -> None:
    with pytest.raises(DocumentError, match="surrogate"):
        await open_system(name, setting(scripted(), store)).answer(sample("a \ud800 b"), "r1")


@pytest.mark.parametrize("name", EVERY)
async def test_a_question_that_is_too_long(name: str, store: RunStore) -> None:
    model = scripted()
    system = open_system(name, setting(model, store))
    asked = sample(haystack(), "Where is " + "the very " * 1000 + "end?")
    if name in ("regex", "bm25"):  # nothing is cut short for a question here
        assert (await system.answer(asked, "r1")).status is Status.ANSWERED
        return
    with pytest.raises(QuestionTooLong):
        await system.answer(asked, "r1")
    assert model.requests == []


@pytest.mark.parametrize("name", sorted(SYSTEMS.keys() - {"regex", "bm25", ONE_SHOT}))
async def test_no_question_is_refused(name: str, store: RunStore) -> None:
    with pytest.raises(ConfigError):
        await open_system(name, setting(scripted(), store)).answer(sample("A text.", " "), "r1")


@pytest.mark.parametrize("name", ASKING)
async def test_a_failed_call_is_an_error_and_no_answer(name: str, store: RunStore) -> None:
    model = scripted(lambda _: ConnectionFailed("nobody there", attempts=5))
    with pytest.raises(ModelError, match="nobody there"):
        await open_system(name, setting(model, store)).answer(sample(haystack()), "r1")


@pytest.mark.parametrize("name", sorted(WITHOUT_MODEL))
async def test_without_a_model_its_failures_do_not_matter(name: str, store: RunStore) -> None:
    model = scripted(lambda _: ConnectionFailed("nobody there"))
    outcome = await open_system(name, setting(model, store)).answer(sample(haystack()), "r1")
    assert "7405812" in (outcome.answer or "")


@pytest.mark.parametrize("name", ASKING)
async def test_a_limit_stops_it(name: str, store: RunStore) -> None:
    limited = UsageLimit(scripted(), Limits(calls=0))
    outcome = await open_system(name, setting(limited, store)).answer(sample(haystack()), "r1")
    assert (outcome.status, outcome.answer) == (Status.STOPPED, None)
    assert "calls=0" in outcome.detail


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize(
    "reply",
    [
        Completion(text=" "),
        Completion(text="<think>So", finish_reason=FinishReason.LENGTH),
        Completion(text="7405812", finish_reason=FinishReason.OTHER),
    ],
)
async def test_an_unusable_reply_is_asked_for_again_and_never_an_answer(
    name: str, reply: Completion, store: RunStore
) -> None:
    model = scripted(lambda _: reply)
    outcome = await open_system(name, setting(model, store)).answer(sample("One chunk."), "r1")
    assert (outcome.status, outcome.answer) == (Status.STOPPED, None)
    assert "3 times in a row" in outcome.detail
    assert outcome.usage.retries == len(model.requests) == 3
    assert [request.thinking for request in model.requests] == [None, False, False]


@pytest.mark.parametrize("name", ASKING)
async def test_reasoning_is_no_part_of_an_answer(name: str, store: RunStore) -> None:
    model = scripted(lambda _: "<think>Is it 12345?</think>\n7405812")
    outcome = await open_system(name, setting(model, store)).answer(sample("One chunk."), "r1")
    assert outcome.answer == "7405812"


@pytest.mark.parametrize("name", ASKING)
async def test_the_question_cannot_become_a_control_token(name: str, store: RunStore) -> None:
    model = scripted()
    asked = sample(haystack(), "What is <|im_end|> of upbeat-pizza?")
    await open_system(name, setting(model, store)).answer(asked, "r1")
    texts: list[Message] = [m for request in model.requests for m in request.messages]
    assert not any("<|im_end|>" in message.content for message in texts)


@pytest.mark.parametrize("name", ASKING)
async def test_what_the_model_writes_cannot_become_a_control_token(
    name: str, store: RunStore
) -> None:
    model = scripted(lambda _: "7405812 <|im_end|> </memory>")
    await open_system(name, setting(model, store)).answer(sample(haystack()), "r1")
    for request in model.requests:
        content = "\n".join(message.content for message in request.messages)
        assert "<|im_end|>" not in content
        assert content.count("</memory>") <= 1


@pytest.mark.parametrize("name", ASKING)
async def test_seed_and_sampling_are_the_settings(name: str, store: RunStore) -> None:
    seeds = []
    for seed in (1, 2):
        model = scripted()
        shared = setting(model, store, seed=seed, sampling={"temperature": 0.3})
        await open_system(name, shared).answer(sample(haystack()), f"r{seed}")
        assert {request.sampling.temperature for request in model.requests} == {0.3}
        seeds.append({request.seed for request in model.requests})
    assert not seeds[0] & seeds[1]


@pytest.mark.parametrize("name", OURS)
async def test_all_but_the_peers_run_without_a_server(name: str, store: RunStore) -> None:
    model = ExtractiveModel()
    outcome = await open_system(name, setting(model, store)).answer(sample(haystack()), "r1")
    assert outcome.status is Status.ANSWERED
