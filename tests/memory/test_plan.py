from typing import Any

import pytest

from memagent.budget import JOINT_SLACK
from memagent.errors import ConfigError, WindowUnknown
from memagent.memory.plan import MemoryPlan, MemorySettings
from memagent.messages import Message
from memagent.models.scripted import ScriptedModel
from memagent.prompts import PromptSet
from memagent.prompts.neutral import JOINER
from memagent.tokens.byte_bound import ByteBound


def make(
    questions: tuple[str, ...] = ("Why?",), reported: int | None = 8192, **settings: Any
) -> MemoryPlan:
    return MemoryPlan.make(
        questions,
        MemorySettings(**settings),  # type: ignore[arg-type]
        PromptSet.load("plain"),
        model=ScriptedModel([], name="m"),
        counter=ByteBound(),
        window=reported,
    )


def test_frames_are_those_of_the_empty_prompts() -> None:
    plan = make()
    for kind in ("update", "answer"):
        messages = plan.prompts.render(kind, question="", memory="", gate="off")
        assert plan.frames[kind] == ByteBound().count_messages(messages)
    assert plan.budget.frame == max(plan.frames.values()) == plan.frames["update"]
    assert make(gate="both").budget.frame > plan.budget.frame


def test_the_longest_question_takes_the_budget() -> None:
    plan = make(("Why?", "Why on earth?"))
    assert plan.question_tokens == (4, 13)
    assert plan.budget.question == 13


def test_a_question_is_counted_as_it_is_sent() -> None:
    assert make(("</problem>",)).question_tokens == (len("</problem>") + 3,)
    assert make(("</problem>",), trust="exact").question_tokens == (len("</problem>"),)


def test_a_rendered_prompt_says_what_the_memory_may_take() -> None:
    plan = make(memory_tokens=1000)
    (message,) = plan.render("update", 0, "", "Text.")
    assert isinstance(message, Message)
    assert "at most 700 words" in message.content
    assert plan.prompts.empty_memory in message.content


@pytest.mark.parametrize(
    "settings", [{"seed": 1}, {"gate": "both"}, {"cuts": "exact"}, {"window": 4096}]
)
def test_whatever_shapes_a_prompt_or_reply_is_bound(settings: dict[str, Any]) -> None:
    assert make(**settings).binding() != make().binding()


@pytest.mark.parametrize(
    ("text", "cut_off", "kept"),
    [
        ("One is 1. Two is 2.", False, "One is 1. Two is 2."),
        ("One is 1. Two is", True, "One is 1."),
        ("One is 1. Two is 2.", True, "One is 1. Two is 2."),
        ("no sentence at all", True, "no sentence at"),
        ("Facts. item 1 costs 1, item 2 costs 2", False, "Facts. item 1 costs 1,"),
        ("One is 1. Two is 2. Three is 3.", False, "One is 1. Two is 2."),
        ("- one: 1\n- two: 2\n- three: 3\n", False, "- one: 1\n- two: 2"),
        ("x" * 50, False, "x" * 24),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467" * 3, False, "\U0001f468\u200d\U0001f469\u200d\U0001f467"),
    ],
)  # fmt: skip
def test_a_memory_is_cut_at_the_last_sentence_end_that_fits(
    text: str, cut_off: bool, kept: str
) -> None:
    memory, tokens, before = make(memory_tokens=24).bound_memory(text, cut_off=cut_off)
    assert memory == kept
    assert (tokens, before) == (len(kept.encode()), len(text.encode()))


def test_a_memory_is_counted_as_it_is_shown() -> None:
    memory, tokens, _ = make(memory_tokens=100).bound_memory("a</memory>b", cut_off=False)
    assert memory == f"a<{JOINER}/memory>b"
    assert tokens == len(memory.encode())


def test_a_prompt_is_never_over_the_sum_of_its_parts() -> None:
    plan = make(("Why </problem>?",), memory_tokens=100)
    for memory, chunk in (("", "Text."), ("x" * 100, "Text. " * 50)):
        whole = ByteBound().count_messages(plan.render("update", 0, memory, chunk))
        bound = plan.bound("update", 0, len(memory), len(chunk))
        # The frame is counted with a number of words that has five digits.
        assert whole <= bound <= whole + JOINT_SLACK + 4


def test_the_window_must_be_known_and_not_exceed_the_models() -> None:
    with pytest.raises(WindowUnknown, match="'m' does not report"):
        make(reported=None)
    with pytest.raises(ConfigError, match="window=9000 exceeds the 8192"):
        make(window=9000)
    assert make(reported=None, window=9000).budget.window == 9000
