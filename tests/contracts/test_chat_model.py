"""What every `ChatModel` promises, over all of them: those in this process, or a real engine.

`pytest --engine vllm` (or `sglang`) runs it against a real server; without it the models are those
that need none. What only a server can promise is in `tests/engines`.
"""

import asyncio
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contracts.subjects import Subject

from memagent import MemoryAgent, Recorder, RunStream
from memagent.errors import ConfigError, ContextOverflow
from memagent.events import Event, Retried
from memagent.messages import ChatRequest, FinishReason, Message, Sampling, ToolSpec
from memagent.models.base import ChatModel
from memagent.threads import in_thread, run_sync

LOOK_ALIKES = [
    "<|im_end|>", "<|im_start|>assistant\n", "<|endoftext|>", "<|eot_id|>", "[INST]", "</s>",
    "<think>", "</think>", "<bos>", "<start_of_turn>", "\u2060", "<|im_\u2060end|>",
]  # fmt: skip
TEXTS = st.lists(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
        st.sampled_from(LOOK_ALIKES),
        st.sampled_from([" ", "\n", "\n\n", "\t", "The prince ", "e\u0301", "é", "🙂🏽", "日本"]),
    ),
    min_size=1,
    max_size=8,
).map("".join)
BATCH = 20
DOCUMENT = "\n\n".join(
    f"In the year {1800 + i} the old prince rode to the village number {i} and spoke to nobody, "
    f"though Natásha had written to him {i} times about the sale of the forest and its wood."
    for i in range(120)
)


def request(*texts: str, **fields: object) -> ChatRequest:
    roles = ("user", "assistant") * len(texts)
    messages = tuple(Message(role=r, content=t) for r, t in zip(roles, texts, strict=False))
    fields = {"max_tokens": 1, "kind": "answer", "sampling": Sampling(temperature=0), **fields}
    return ChatRequest.model_validate({"messages": messages, **fields})


async def test_it_has_a_name_and_its_repr_no_secret(subject: Subject) -> None:
    model = subject.make()
    assert model.name
    assert model.name == subject.make().name, "nothing is opened before it is used"
    assert not subject.secret or subject.secret not in repr(model)
    await model.aclose()


async def test_its_window_is_what_the_engine_was_started_with(subject: Subject) -> None:
    model = subject.make()
    assert await model.window() == subject.window
    await model.aclose()


async def test_a_reply_keeps_to_its_limit_and_says_what_it_cost(subject: Subject) -> None:
    model = subject.make()
    for most in (1, 7):
        reply = await model.complete(request("Where was he?", max_tokens=most))
        assert reply.usage.calls == 1
        assert 0 < reply.usage.completion_tokens <= most
        assert reply.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
    await model.aclose()


async def test_a_reply_ends_at_a_stop_sequence(subject: Subject) -> None:
    model = subject.make()
    whole = await model.complete(request(subject.talk, max_tokens=12))
    middle = len(whole.text) // 2
    stop = whole.text[middle : middle + 2]
    before = whole.text[: whole.text.index(stop)]
    reply = await model.complete(request(subject.talk, max_tokens=12, stop=(stop, "\u2603\u2603")))
    if subject.name not in ("extractive", "scripted"):  # these draw nothing
        assert reply.text.partition(stop)[0] == before
        assert reply.usage.completion_tokens <= whole.usage.completion_tokens
        assert reply.finish_reason is FinishReason.STOP
    await model.aclose()


async def miscounted(
    model: ChatModel, texts: list[str], thinks: bool
) -> list[tuple[str, int, int]]:
    """Texts whose prompts the counter and the engine count differently, with both counts."""
    counter = await model.counter()

    async def one(place: int, text: str) -> tuple[str, int, int]:
        ask = request(text) if place % 2 else request(text, "I see. " + text[:9], "Go on.")
        if thinks and place % 4 > 1:
            ask = ask.model_copy(update={"thinking": False})
        counted = await in_thread(counter.count_messages, ask.messages, thinking=ask.thinking)
        return text, counted, (await model.complete(ask)).usage.prompt_tokens

    every = await asyncio.gather(*(one(place, text) for place, text in enumerate(texts)))
    return [found for found in every if found[1] != found[2]]


@pytest.mark.timeout(600)
def test_it_counts_prompts_as_it_reads_them(subject: Subject) -> None:
    """Texts as they are: what looks like a control token is one for counter and engine alike."""
    for tokenizer in subject.tokenizers:
        model = subject.make(tokenizer=tokenizer)

        @settings(
            max_examples=1000 // BATCH if subject.engine else 3,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        @given(texts=st.lists(TEXTS, min_size=BATCH, max_size=BATCH), model=st.just(model))
        def all_equal(texts: list[str], model: ChatModel) -> None:
            assert run_sync(miscounted(model, texts, subject.thinks)) == []

        all_equal()
        run_sync(model.aclose())


async def test_it_takes_tools_or_says_that_it_cannot(subject: Subject) -> None:
    model = subject.make()
    ask = request("Where was he?").model_copy(update={"tools": (ToolSpec(name="look"),)})
    counter, before = await model.counter(), subject.requests()
    refusal = ""
    try:
        reply = await model.complete(ask)
        counted = await in_thread(counter.count_messages, ask.messages, tools=ask.tools)
        assert counted == reply.usage.prompt_tokens
        assert counted > await in_thread(counter.count_messages, ask.messages)
    except ConfigError as error:
        refusal = str(error)
    assert not refusal or ("text protocol" in refusal and subject.requests() == before)
    await model.aclose()


async def test_an_overflow_is_refused_before_anything_is_sent(subject: Subject) -> None:
    model = subject.make()
    text = "The prince rode on. " * 20
    prompt = await in_thread((await model.counter()).count_messages, request(text).messages)
    room = subject.window - prompt
    before = subject.requests()
    for ask in (request(text, max_tokens=room + 1), request("word " * 3 * subject.window)):
        with pytest.raises(ContextOverflow) as caught:
            await model.complete(ask)
        for word in (str(subject.window), "--window"):
            assert word in str(caught.value)
    assert subject.requests() == before
    fits = await model.complete(request(text, max_tokens=room))
    assert prompt + fits.usage.completion_tokens <= subject.window
    await model.aclose()


async def test_one_model_serves_several_event_loops(subject: Subject) -> None:
    model = subject.make()
    texts: list[str] = []

    def elsewhere() -> None:
        texts.append(asyncio.run(model.complete(request("Where was he?", max_tokens=5))).text)

    threads = [threading.Thread(target=elsewhere) for _ in range(3)]
    for thread in threads:
        thread.start()
    texts.append((await model.complete(request("Where was he?", max_tokens=5))).text)
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert len(texts) == 4
    await model.aclose()


async def test_a_cancelled_call_leaves_the_model_usable_and_no_task_behind(
    subject: Subject,
) -> None:
    model = subject.make()
    for wait in (0.0, 0.01, 0.05):
        call = asyncio.create_task(model.complete(request("Where was he?", max_tokens=400)))
        await asyncio.sleep(wait)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    assert (await model.complete(request("And now?", max_tokens=3))).usage.completion_tokens
    await model.aclose()
    await model.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def events_of(stream: RunStream) -> list[Event]:
    return [event async for event in stream]


@pytest.mark.timeout(600)
async def test_64_runs_at_once_never_pass_the_window(subject: Subject) -> None:
    recorder = Recorder(subject.make())
    # Random weights write what they like, and are not asked again for it.
    reading = {"degenerate": "take", **subject.reading, "window": min(1024, subject.window)}
    agent = MemoryAgent(recorder, concurrency=64, store=None, **reading)
    documents = [f"Paper {i}. {DOCUMENT[: 4000 + 37 * i]}" for i in range(64)]
    estimates = [await agent.aestimate(document, "Where was he in 1812?") for document in documents]
    streams = [agent.stream(document, "Where was he in 1812?") for document in documents]
    told = await asyncio.gather(*map(events_of, streams))
    results = [result for stream in streams for result in stream.results]
    assert len({result.run_id for result in results}) == 64
    for estimate, result, events in zip(estimates, results, told, strict=True):
        assert result.stop_reason == "answered", result.detail
        usage = result.usage
        assert usage.calls == estimate.calls_max == estimate.calls_min
        # An engine without seeds may draw the end of the text first: that reply alone is sent for again.
        reasons = [event.reason for event in events if isinstance(event, Retried)]
        assert usage.retries == reasons.count("the reply is empty") == len(reasons)
        assert usage.prompt_tokens <= estimate.prompt_tokens
        assert usage.completion_tokens <= estimate.completion_tokens
    assert recorder.conversations
    for conversation in recorder.conversations:
        if conversation.tokens is not None:
            whole = len(conversation.tokens.prompt) + len(conversation.tokens.sampled)
            assert whole <= min(1024, subject.window)
    await agent.aclose()


async def test_ids_and_log_probabilities_are_those_of_the_call(served: Subject) -> None:
    model = served.make(tokens=True)
    ask = request(served.talk, max_tokens=12)
    first, again = await model.complete(ask), await model.complete(ask)
    tokens = first.tokens
    assert tokens is not None
    assert again.tokens is not None
    assert tokens.sampled == again.tokens.sampled
    counter = await model.counter()
    assert len(tokens.prompt) == await in_thread(counter.count_messages, ask.messages)
    assert len(tokens.prompt) == first.usage.prompt_tokens
    assert len(tokens.sampled) == first.usage.completion_tokens == 12
    assert tokens.logprobs is not None
    assert len(tokens.logprobs) == len(tokens.sampled)
    assert all(logprob <= 0 for logprob in tokens.logprobs)
    assert tokens.logprobs == pytest.approx(again.tokens.logprobs, abs=1e-3)
    await model.aclose()
    plain = served.make()
    assert (await plain.complete(ask)).tokens is None, "ids cost: only when asked for"
    await plain.aclose()


async def test_a_reply_is_held_to_a_pattern(served: Subject) -> None:
    model = served.make()
    ask = request("Yes or no?", max_tokens=12, pattern=r"(yes|no), [a-c]{3}")
    reply = await model.complete(ask)
    assert reply.text[:3].strip(",") in ("yes", "no")
    assert reply.text.partition(", ")[2].strip("abc") == ""
    not_empty = await model.complete(request("Yes?", max_tokens=12, pattern=r"\S[\s\S]*"))
    assert not_empty.text == not_empty.text.lstrip() != ""
    await model.aclose()
