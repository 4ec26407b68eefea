import pytest

from memagent.messages import Completion, FinishReason
from memagent.prompts import PromptSet, UnusableReply, read_answer, read_update
from memagent.prompts.promptset import AnswerForm, Gate

PROMPTS = PromptSet.load("plain")


def reply(text: str, *, cut: bool = False, reasoning: str = "") -> Completion:
    finish = FinishReason.LENGTH if cut else FinishReason.STOP
    return Completion(text=text, finish_reason=finish, reasoning=reasoning)


@pytest.mark.parametrize(
    ("text", "gate", "memory", "done"),
    [
        ("New memory.", "both", "New memory.", False),
        ("  New memory.\n", "off", "New memory.", False),
        ("[keep]", "update", None, False),
        (" [keep]\n", "both", None, False),
        ("[keep]", "off", "[keep]", False),
        ("[keep]", "exit", "[keep]", False),
        ("[keep].", "both", "[keep].", False),
        ("[KEEP]", "both", "[KEEP]", False),
        ("I [keep] it", "both", "I [keep] it", False),
        ("Facts.\n[done]", "exit", "Facts.", True),
        ("Facts.\n  [done]  ", "both", "Facts.", True),
        ("Facts.\n[done]", "update", "Facts.\n[done]", False),
        ("Facts. [done]", "both", "Facts. [done]", False),
        ("[done]\nFacts.", "both", "[done]\nFacts.", False),
        ("[done]", "exit", None, True),
        ("[keep]\n[done]", "both", None, True),
        ("<think>hm</think>Facts.", "off", "Facts.", False),
        ("hm</think> a </think>\n[keep]", "both", None, False),
    ],
)
def test_update_replies(text: str, gate: Gate, memory: str | None, done: bool) -> None:
    update = read_update(reply(text), PROMPTS, gate)
    assert (update.memory, update.done, update.cut_off) == (memory, done, False)


def test_a_memory_that_was_cut_off_says_so() -> None:
    assert read_update(reply("Facts and", cut=True), PROMPTS, "off").cut_off


@pytest.mark.parametrize(
    ("completion", "says"),
    [
        (reply(""), "empty"),
        (reply(" \n"), "empty"),
        (reply("<think>still at it", cut=True), "inside its reasoning"),
        (reply("<think>still at it"), "inside its reasoning"),
        (reply("", cut=True, reasoning="still at it"), "while reasoning"),
        (reply("<think>all</think>", cut=True), "while reasoning"),
        (reply("", reasoning="thought, then said nothing"), "empty"),
    ],
)
def test_unusable_replies(completion: Completion, says: str) -> None:
    with pytest.raises(UnusableReply, match=says):
        read_update(completion, PROMPTS, "both")
    with pytest.raises(UnusableReply, match=says):
        read_answer(completion, "plain")


@pytest.mark.parametrize(
    ("form", "text", "answer", "found"),
    [
        ("plain", " In 1813. ", "In 1813.", True),
        ("boxed", r"So \boxed{1812}, no: \boxed{1813}.", "1813", True),
        ("boxed", r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", True),
        ("boxed", r"\boxed {a}", "a", True),
        ("boxed", r"\boxed{a} then \boxed{broken", "a", True),
        ("boxed", "1813", "1813", False),
        ("sentence", "Well. Therefore, the answer is (in 1813).", "in 1813", True),
        ("sentence", "Therefore, the answer is Pierre.", "Pierre", True),
        ("sentence", "Pierre.", "Pierre.", False),
    ],
)
def test_answer_forms(form: AnswerForm, text: str, answer: str, found: bool) -> None:
    read = read_answer(reply(text), form)
    assert (read.text, read.form_found, read.truncated) == (answer, found, False)


def test_an_answer_that_was_cut_off_says_so() -> None:
    assert read_answer(reply("In 18", cut=True), "plain").truncated
