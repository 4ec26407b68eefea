from typing import Any

import pytest

from memagent.errors import ConfigError, WindowUnknown
from memagent.memory.plan import MemoryPlan, MemorySettings
from memagent.messages import Message
from memagent.prompts import PromptSet
from memagent.tokens.byte_bound import ByteBound


def make(
    questions: tuple[str, ...] = ("Why?",), reported: int | None = 8192, **settings: Any
) -> MemoryPlan:
    return MemoryPlan.make(
        questions,
        MemorySettings(**settings),  # type: ignore[arg-type]
        PromptSet.load("plain"),
        model="m",
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
    (message,) = plan.render("update", "Why?", "", "Text.")
    assert isinstance(message, Message)
    assert "at most 700 words" in message.content
    assert plan.prompts.empty_memory in message.content


@pytest.mark.parametrize(
    "settings", [{"seed": 1}, {"gate": "both"}, {"cuts": "exact"}, {"window": 4096}]
)
def test_whatever_shapes_a_prompt_or_reply_is_bound(settings: dict[str, Any]) -> None:
    assert make(**settings).binding() != make().binding()


def test_the_window_must_be_known_and_not_exceed_the_models() -> None:
    with pytest.raises(WindowUnknown, match="'m' does not say"):
        make(reported=None)
    with pytest.raises(ConfigError, match="window=9000 is over the 8192"):
        make(window=9000)
    assert make(reported=None, window=9000).budget.window == 9000
