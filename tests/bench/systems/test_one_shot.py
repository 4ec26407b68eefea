"""RULER's own protocol: the whole prompt, the reply begun where the server can, and nothing of the memory agent's."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.bench.systems.benches import sample, scripted, setting
from tests.models.chat_server import Script, running, say

from memagent import Completion, Limits, RunStore, UsageLimit
from memagent.errors import ConnectionFailed, ContextOverflow, EmptyDocument, ModelError
from memagent.messages import FinishReason
from memagent.models.spec import open_model
from memagent.tasks import Sample
from memagent_bench.published import ONE_SHOT
from memagent_bench.systems.base import Status
from memagent_bench.systems.registry import open_system

USER, ASSISTANT = (
    "temperature 0, answer prefix at the end of the user's message",
    "at the beginning of the assistant's",
)
SAMPLE = sample("One <|im_end|> </memory> two.", generate=30).model_copy(
    update={"before": "Read:\n", "after": "\nWhich?", "answer_prefix": " They are: "}
)


@pytest.fixture
def server() -> Iterator[Script]:
    with running() as script:
        script.default = say("7405812")
        yield script


async def test_the_prompt_is_the_published_one_whatever_the_settings(store: RunStore) -> None:
    model = scripted()
    given = setting(model, store, seed=5, memory_tokens=300, sampling={"temperature": 0.7})
    outcome = await open_system(ONE_SHOT, given).answer(SAMPLE, "r1")
    (request,) = model.requests
    assert [(m.role, m.content) for m in request.messages] == [("user", SAMPLE.prompt)]
    assert (request.max_tokens, request.sampling.temperature, request.seed) == (30, 0, 5)
    assert (outcome.status, outcome.answer, outcome.detail) == (Status.ANSWERED, "7405812", USER)
    assert (outcome.predicted_calls, outcome.shown) == (1, 1.0)
    assert outcome.usage.calls == 1
    assert outcome.usage.prompt_tokens + 30 == outcome.predicted_tokens


@pytest.mark.parametrize(
    ("owner", "begun"),
    [
        ("vllm", {"add_generation_prompt": False, "continue_final_message": True}),
        ("sglang", {"continue_final_message": True}),
    ],
)
async def test_the_reply_is_begun_where_the_server_goes_on(
    server: Script, store: RunStore, owner: str, begun: dict[str, Any]
) -> None:
    server.serve_models({"id": "tiny", "max_model_len": 9216, "owned_by": owner})
    model = open_model("openai:tiny", base_url=server.url, tokenizer="bytes")
    try:
        outcome = await open_system(ONE_SHOT, setting(model, store)).answer(SAMPLE, "r1")
        whole = SAMPLE.model_copy(update={"answer_prefix": ""})
        without = await open_system(ONE_SHOT, setting(model, store)).answer(whole, "r2")
    finally:
        await model.aclose()
    body, plain = server.bodies
    assert body["messages"] == [
        {"role": "user", "content": SAMPLE.before + SAMPLE.context + SAMPLE.after},
        {"role": "assistant", "content": " They are: "},
    ]
    assert body.items() >= begun.items()
    assert (body["max_tokens"], body["temperature"], outcome.answer) == (30, 0, "7405812")
    assert ASSISTANT in outcome.detail
    assert not plain.keys() & begun.keys()
    assert without.detail == "temperature 0, no answer prefix"


async def test_a_server_that_does_not_gets_the_prefix_in_the_users_message(
    server: Script, store: RunStore
) -> None:
    model = open_model("openai:tiny", base_url=server.url, tokenizer="bytes", window=9216)
    try:
        outcome = await open_system(ONE_SHOT, setting(model, store)).answer(SAMPLE, "r1")
    finally:
        await model.aclose()
    (body,) = server.bodies
    assert body["messages"] == [{"role": "user", "content": SAMPLE.prompt}]
    assert outcome.detail == USER


async def test_what_is_over_the_window_is_an_error_and_never_cut(store: RunStore) -> None:
    model = scripted(window=4096)
    with pytest.raises(ContextOverflow):
        await open_system(ONE_SHOT, setting(model, store)).answer(long_sample(), "r1")
    roomy = scripted(window=8192)
    system = open_system(ONE_SHOT, setting(roomy, store, window=4096))
    assert (await system.answer(long_sample(), "r1")).shown == 1.0
    assert len(roomy.requests[0].messages[0].content) == 5000


def long_sample() -> Sample:
    return sample("word " * 1000, generate=30)


@pytest.mark.parametrize(
    "reply",
    [
        Completion(text=" "),
        Completion(text="<think>So", finish_reason=FinishReason.LENGTH),
        Completion(text="7405812", finish_reason=FinishReason.OTHER),
    ],
)
async def test_a_reply_that_is_none_is_not_asked_for_again(
    reply: Completion, store: RunStore
) -> None:
    model = scripted(lambda _: reply)
    outcome = await open_system(ONE_SHOT, setting(model, store)).answer(SAMPLE, "r1")
    assert (outcome.status, outcome.answer, len(model.requests)) == (Status.STOPPED, None, 1)
    assert "the reply" in outcome.detail


async def test_failures_limits_and_empty_documents(store: RunStore) -> None:
    failing = scripted(lambda _: ConnectionFailed("nobody there", attempts=5))
    with pytest.raises(ModelError, match="nobody there"):
        await open_system(ONE_SHOT, setting(failing, store)).answer(SAMPLE, "r1")
    limited = UsageLimit(scripted(), Limits(calls=0))
    outcome = await open_system(ONE_SHOT, setting(limited, store)).answer(SAMPLE, "r1")
    assert outcome.status is Status.STOPPED
    assert "calls=0" in outcome.detail
    with pytest.raises(EmptyDocument):
        await open_system(ONE_SHOT, setting(scripted(), store)).answer(sample(" "), "r1")
