"""One prompt with as much of the document as fits."""

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bench.systems.benches import PLAIN, WINDOW, sample, scripted, setting

from memagent import Message, RunStore, ScriptedModel
from memagent.tokens import TokenizerFile
from memagent.tokens.byte_bound import ByteBound
from memagent_bench.systems.direct import GAP, both_ends
from memagent_bench.systems.registry import open_system

TOKENIZER = Path(__file__).parents[2] / "data" / "tokenizer"
SIDES = ("direct-left", "direct-right", "direct-middle")
TEXT = " ".join(f"{n:05d}" for n in range(4000))
TAGS = PLAIN.tags


def memory_of(model: ScriptedModel) -> str:
    """What stood in the memory field of the only request."""
    (request,) = model.requests
    content = request.messages[0].content
    opening, closing = f"<{TAGS.memory}>\n", f"\n</{TAGS.memory}>"
    assert content.count(f"<{TAGS.memory}>") == content.count(f"</{TAGS.memory}>") == 1
    assert "<|im_end|>" not in content
    return content.partition(opening)[2].partition(closing)[0]


def prompt_of(model: ScriptedModel) -> int:
    (request,) = model.requests
    return ByteBound().count_messages(request.messages) + request.max_tokens


@pytest.mark.parametrize("name", SIDES)
async def test_what_fits_is_shown_whole(store: RunStore, name: str) -> None:
    model = scripted()
    outcome = await open_system(name, setting(model, store)).answer(sample("All of it."), "r")
    assert memory_of(model) == "All of it."
    assert outcome.shown == 1.0
    assert (outcome.answer, outcome.usage.calls, outcome.predicted_calls) == ("7405812", 1, 1)


@pytest.mark.parametrize("name", SIDES)
async def test_what_does_not_fit_is_dropped_on_its_side(store: RunStore, name: str) -> None:
    model = scripted()
    outcome = await open_system(name, setting(model, store)).answer(sample(TEXT), "r")
    memory = memory_of(model)
    # ASCII, counted in bytes: the window is used to a thousandth.
    assert WINDOW - WINDOW // 1000 <= prompt_of(model) <= WINDOW
    if name == "direct-left":
        assert TEXT.endswith(memory)
    elif name == "direct-right":
        assert TEXT.startswith(memory)
    else:
        first, last = memory.split(GAP)
        assert TEXT.startswith(first)
        assert TEXT.endswith(last)
        assert 0 <= len(first) - len(last) <= 1
        memory = first + last
    assert outcome.shown == pytest.approx(len(memory) / len(TEXT))
    assert outcome.predicted_tokens == prompt_of(model)


async def test_direct_is_direct_middle(store: RunStore) -> None:
    asked = []
    for name in ("direct", "direct-middle"):
        model = scripted()
        system = open_system(name, setting(model, store))
        assert system.name == name
        await system.answer(sample(TEXT), "r")
        asked.append(model.requests)
    assert asked[0] == asked[1]


async def test_the_output_is_the_memory_agents(store: RunStore) -> None:
    model = scripted()
    await open_system("direct", setting(model, store, memory_tokens=300)).answer(sample(TEXT), "r")
    assert model.requests[0].max_tokens == 300


async def test_a_grapheme_is_not_cut(store: RunStore) -> None:
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    for name in SIDES:
        model = scripted()
        await open_system(name, setting(model, store)).answer(sample(family * 1000), "r")
        assert set(memory_of(model).replace(GAP, "").split(family)) == {""}


NASTY = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.sampled_from(
        [
            "x",
            "\n",
            "a\u0301",
            "\ufb2c",  # three code points in NFC
            "<|im_end|>",
            "</memory>",
            "</ problem >",
            "<memory",
            "\U0001f468\u200d\U0001f469",
            "ﷺ",
            "\u2060",
            "word ",
        ]
    ),
)


def test_whatever_the_text_prompt_and_output_fit(store: RunStore) -> None:
    model = scripted()
    shared = setting(model, store)
    systems = [open_system(name, shared) for name in (*SIDES, "bm25-model", "regex-model")]

    @given(parts=st.lists(NASTY, min_size=1, max_size=6), times=st.integers(1, 2000))
    @settings(max_examples=40)
    def check(parts: list[str], times: int) -> None:
        text = ("a" + "".join(parts) * times)[:40_000]
        asked = sample(text, "What of " + parts[0][:40] + "?")
        for system in systems:
            model.requests.clear()
            outcome = asyncio.run(system.answer(asked, "r"))
            assert prompt_of(model) <= WINDOW
            assert prompt_of(model) <= (outcome.predicted_tokens or 0)
            memory_of(model)  # one field, closed once
            assert 0 <= outcome.shown <= 1

    check()


async def test_a_real_tokenizer_and_its_template_fill_the_window_too(store: RunStore) -> None:
    counter = await asyncio.to_thread(TokenizerFile, TOKENIZER)
    prose = "The prince, who had left Moscow in 1812, wrote: «Où est-il?» and <|im_end|>. "
    for name in (*SIDES, "regex-model", "bm25-model"):
        model = scripted(window=2048, counter=counter)
        asked = sample(prose * 2000, "Where is the prince of Moscow?")
        await open_system(name, setting(model, store)).answer(asked, "r")
        (request,) = model.requests
        used = counter.count_messages(request.messages) + request.max_tokens
        assert 2048 - 40 <= used <= 2048


class Counted(ByteBound):
    """Remembers how much it was made to count."""

    def __init__(self) -> None:
        self.chars = 0

    def count_messages(
        self, messages: Sequence[Message], *, thinking: bool | None = None, tools: object = ()
    ) -> int:
        self.chars += sum(len(message.content) for message in messages)
        return super().count_messages(messages, thinking=thinking)

    def count(self, text: str) -> int:
        self.chars += len(text)
        return super().count(text)


async def test_of_a_huge_document_only_the_ends_are_counted(store: RunStore) -> None:
    for name in SIDES:
        counter = Counted()
        model = scripted(counter=counter)
        await open_system(name, setting(model, store)).answer(
            sample("words and words " * 500_000), "r"
        )
        assert counter.chars < 60 * WINDOW


@given(text=st.text(max_size=50), n=st.integers(0, 60))
def test_both_ends_never_overlap(text: str, n: int) -> None:
    spans = both_ends(text, n)
    assert sum(end - start for start, end in spans) <= max(n, 0) or n >= len(text)
    assert spans == sorted(spans)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
