import pytest

from memagent.agents.calls import bound_memory, seed_of
from memagent.agents.plan import Plan, Settings
from memagent.prompts import PromptSet
from memagent.prompts.neutral import JOINER
from memagent.tokens.byte_bound import ByteBound


def plan(memory: int) -> Plan:
    return Plan.make(
        ("Why?",),
        Settings(memory_tokens=memory),
        PromptSet.load("plain"),
        model="m",
        counter=ByteBound(),
        window=8192,
    )


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
    memory, tokens, before = bound_memory(text, plan(24), cut_off=cut_off)
    assert memory == kept
    assert (tokens, before) == (len(kept.encode()), len(text.encode()))


def test_a_memory_is_counted_as_it_is_shown() -> None:
    memory, tokens, _ = bound_memory("a</memory>b", plan(100), cut_off=False)
    assert memory == f"a<{JOINER}/memory>b"
    assert tokens == len(memory.encode())


def test_seeds_are_stable_and_apart() -> None:
    assert seed_of(0, 0, 0, 0) == seed_of(0, 0, 0, 0)
    seeds = {
        seed_of(s, q, c, a) for s in range(3) for q in range(3) for c in range(9) for a in range(3)
    }
    assert len(seeds) == 243
    assert all(0 <= seed < 2**31 for seed in seeds)
