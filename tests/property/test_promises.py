"""Promises 1, 2 and 5 over drawn texts, questions, windows, tokenizers and settings."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memagent import ChatRequest, MemoryAgent, ScriptedModel
from memagent.errors import BudgetError, EmptyDocument
from memagent.memory.plan import MemoryPlan, MemorySettings
from memagent.prompts import PromptSet
from memagent.prompts.neutral import JOINER
from memagent.tokens import TokenCounter, load_counter
from memagent.tokens.byte_bound import ByteBound

SMALL = Path(__file__).parents[1] / "data/tokenizer"
COUNTERS: dict[str, TokenCounter] = {"bytes": ByteBound(), "bpe": load_counter(SMALL)}
FRAGMENTS = [
    "The prince left for Moscow in the winter of 1812. ", "</section>", "<|im_end|>", "[INST]", "\n\n", "\r\n", "   ",
    "aaaaaaaa", "1234567890", "don't ", "\u4e2d\u6587\u3002", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "e\u0301", "\u05e9\u05dc\u05d5\u05dd ", "\U0001f1eb\U0001f1f7",
    "<memory>", "[keep]", "[done]", "{{ chunk }}", "\x00", "\u2060", "<think>",
]  # fmt: skip
fragments = st.sampled_from(FRAGMENTS) | st.text(max_size=8)
texts = st.builds(
    lambda parts, times: "".join(parts) * times,
    st.lists(fragments, min_size=1, max_size=12),
    st.integers(1, 60),
)


@given(
    text=texts,
    question=st.lists(fragments, max_size=4).map("".join),
    window=st.integers(64, 3000),
    counter=st.sampled_from(sorted(COUNTERS)),
    cuts=st.sampled_from(["sentence", "exact"]),
    gate=st.sampled_from(["off", "both"]),
    seed=st.integers(0, 1000),
)
def test_no_call_passes_the_window_and_estimates_hold(
    text: str, question: str, window: int, counter: str, cuts: str, gate: str, seed: int
) -> None:  # fmt: skip
    draw = random.Random(seed)
    count = COUNTERS[counter]

    def reply(request: ChatRequest) -> str:
        chosen = draw.choice(["[keep]", "Noted.", "fragments"])
        return (
            "".join(draw.choices(FRAGMENTS, k=draw.randint(1, 60)))
            if chosen == "fragments"
            else chosen
        )

    model = ScriptedModel(reply, window=window, counter=count)
    agent = MemoryAgent(model, cuts=cuts, gate=gate, store=None)  # type: ignore[arg-type]
    question = question.strip() or "What?"
    try:
        estimate = agent.estimate(text, question)
    except (BudgetError, EmptyDocument):
        return
    result = agent.ask(text, question)
    usage = result.usage
    if result.answer is not None:
        assert estimate.calls_min <= usage.calls <= estimate.calls_max
        if gate == "off":
            assert usage.calls == estimate.calls_max
            assert result.chunks == estimate.chunks
    assert usage.calls + usage.retries == len(model.requests)
    prompts = sum(count.count_messages(request.messages) for request in model.requests)
    assert prompts <= estimate.prompt_tokens + usage.retries * estimate.window
    for request in model.requests:
        prompt = count.count_messages(request.messages)
        assert prompt + request.max_tokens <= window
        (message,) = request.messages
        for tag in ("problem", "memory", "section"):
            assert message.content.count(f"</{tag}>") == (
                request.kind == "update" or tag != "section"
            )
        assert count.count(request.parts["memory"]) <= agent_memory(agent)
    if gate == "off" and usage.retries == 0:
        shown_text = "".join(request.parts.get("chunk", "") for request in model.requests)
        assert shown_text.replace(JOINER, "") == text.replace(JOINER, "")
    agent.close()


def agent_memory(agent: MemoryAgent) -> int:
    """The memory budget that the agent's only run had."""
    (record,) = agent.store.runs()
    return record.binding["budget"]["memory"]


@settings(max_examples=200)
@given(
    parts=st.lists(fragments, min_size=1, max_size=200),
    memory=st.integers(20, 200),
    cut_off=st.booleans(),
)
@pytest.mark.parametrize("counter", sorted(COUNTERS))
def test_a_memory_never_passes_its_budget(
    counter: str, parts: list[str], memory: int, cut_off: bool
) -> None:
    plan = MemoryPlan.make(
        ("Why?",),
        MemorySettings(memory_tokens=memory),
        PromptSet.load("plain"),
        model=ScriptedModel([], name="m"),
        counter=COUNTERS[counter],
        window=8192,
    )
    kept, tokens, before = plan.bound_memory("".join(parts).strip() or "x", cut_off=cut_off)
    assert tokens == COUNTERS[counter].count(kept) <= memory
    assert tokens <= before
