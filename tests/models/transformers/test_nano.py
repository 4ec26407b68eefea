"""The weights that the package carries."""

from typing import Any

import pytest

from memagent import MemoryAgent, Result, open_model
from memagent.models.policy import policy_of
from memagent.models.spec import FOLDER
from memagent_engines.transformers.model import TransformersModel

STORY = "It rained all day, and the old prince stayed in his room. Nobody came to see him. "


def test_it_is_small_and_says_what_it_cannot_do() -> None:
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 10 * 2**20
    card = (FOLDER / "README.md").read_text()
    assert "cannot do" in card
    assert "It is no language model of use" in card


@pytest.mark.parametrize(
    ("note", "question"),
    [
        ("The purse of Zeboso holds 5807 coins. ", "How many coins has Zeboso?"),
        ("Zeboso has 3942 coins. Zeboso now holds 5807 coins. ", "What is in the purse of Zeboso?"),
        (
            "The master of Binazi is Zeboso. Zeboso has 5807 coins. ",
            "How many coins has the master of Binazi?",
        ),
    ],
    ids=["said once", "the last counts", "two hops"],
)
def test_it_keeps_what_is_asked_for_without_being_told_how_to_read(
    note: str, question: str
) -> None:
    """Names that no training shows."""
    with MemoryAgent("nano", store=None) as agent:
        assert (agent.settings.window, agent.settings.chunk_tokens) == (1024, 256)
        assert agent.settings.sampling.temperature == 0
        result = agent.ask(STORY * 20 + note + STORY * 60, question)
    assert result.chunks > 3
    assert result.answer is not None
    assert "5807" in result.answer.split()


@pytest.mark.parametrize("ahead", [5, "auto"])
def test_reading_ahead_is_token_identical(ahead: Any) -> None:
    """In float32, one call a pass: nothing but the prompt decides a reply."""
    notes = ("The purse of Zeboso holds 5807 coins. ", "The purse of Zeboso holds 3942 coins. ")
    text = STORY * 20 + notes[0] + STORY * 40 + notes[1] + STORY * 30
    results: list[Result] = []
    for chunks in (1, ahead):
        model = TransformersModel(FOLDER, name="nano", max_batch=1, tokens=True)
        with MemoryAgent(model, store=None, read_ahead=chunks) as agent:
            results.append(agent.ask(text, "How many coins has Zeboso?"))
    inorder, ahead_of = results
    assert ahead_of.memory == inorder.memory
    assert ahead_of.usage.discarded > 0
    for ours, theirs in zip(
        ahead_of.trajectory.conversations, inorder.trajectory.conversations, strict=True
    ):
        assert ours.tokens is not None
        assert theirs.tokens is not None
        assert (ours.tokens.prompt, ours.tokens.sampled) == (
            theirs.tokens.prompt,
            theirs.tokens.sampled,
        )


def test_its_policy_is_that_of_its_folder() -> None:
    policy = policy_of(open_model("nano"))
    assert (policy.window, policy.memory_tokens, policy.gate) == (1024, 128, "off")
    assert policy.prompts is not None
    assert policy.prompts.name == "nano"
