import time

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
        ("\n <think>hm</think>\n\nFacts.", "off", "Facts.", False),
        ("<think></think>Facts.", "off", "Facts.", False),
        ("pre-opened</think>Facts.", "off", "Facts.", False),
        ("<think>a <think> in it</think>Facts.", "off", "Facts.", False),
        ("<think>a </think> in it</think>Facts.", "off", "Facts.", False),
        ("<think>a</think>\n<think>b</think>Facts.", "off", "Facts.", False),
        ("It wraps thoughts in <think>.", "off", "It wraps thoughts in <think>.", False),
        ("A <think>b</think> c", "off", "A <think>b</think> c", False),
        (
            "<think>a</think>Tags: <think> and </think>.",
            "off",
            "Tags: <think> and </think>.",
            False,
        ),
        ("a</think>Tags: <think> and </think>.", "off", "Tags: <think> and </think>.", False),
    ],
)
def test_update_replies(text: str, gate: Gate, memory: str | None, done: bool) -> None:
    update = read_update(reply(text), PROMPTS, gate)
    assert (update.memory, update.done, update.cut_off) == (memory, done, False)


def test_a_memory_that_was_cut_off_says_so() -> None:
    assert read_update(reply("Facts and", cut=True), PROMPTS, "off").cut_off


@pytest.mark.parametrize("text", ["<think>", "A </think> B", "<think> a </think> b", "[keep"])
def test_a_text_whose_reasoning_the_server_took_out_is_whole(text: str) -> None:
    assert read_update(reply(f" {text}\n", reasoning="hm"), PROMPTS, "both").memory == text


@pytest.mark.parametrize("text", ["She marries", "", "[keep]", "<think>a</think>b"])
def test_a_reply_that_the_engine_stopped_is_unusable(text: str) -> None:
    completion = Completion(text=text, finish_reason=FinishReason.OTHER)
    with pytest.raises(UnusableReply, match="stopped by the engine"):
        read_update(completion, PROMPTS, "both")
    with pytest.raises(UnusableReply, match="stopped by the engine"):
        read_answer(completion, PROMPTS)


@pytest.mark.parametrize(
    ("completion", "says"),
    [
        (reply(""), "empty"),
        (reply(" \n"), "empty"),
        (reply("<think>still at it", cut=True), "inside its reasoning"),
        (reply("<think>still at it"), "inside its reasoning"),
        (reply("", cut=True, reasoning="still at it"), "while reasoning"),
        (reply("<think>all</think>", cut=True), "while reasoning"),
        (reply("all</think>\n"), "empty"),
        (reply("<think>a</think> <think>still at it"), "inside its reasoning"),
        (reply("", reasoning="thought, then said nothing"), "empty"),
    ],
)
def test_unusable_replies(completion: Completion, says: str) -> None:
    with pytest.raises(UnusableReply, match=says):
        read_update(completion, PROMPTS, "both")
    with pytest.raises(UnusableReply, match=says):
        read_answer(completion, PROMPTS)


@pytest.mark.parametrize(
    ("form", "text", "answer", "found"),
    [
        ("plain", " In 1813. ", "In 1813.", True),
        ("boxed", r"So \boxed{1812}, no: \boxed{1813}.", "1813", True),
        ("boxed", r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", True),
        ("boxed", r"\boxed {a}", "a", True),
        ("boxed", r"\boxed{a} then \boxed{broken", "a", True),
        ("boxed", r"\boxed{a \boxed{b} c}", "b", True),
        ("boxed", r"} { \boxed{a} } \boxed{ { b }", "a", True),
        ("boxed", r"\boxed{\boxed{a}", "a", True),
        ("boxed", r"\boxed{", r"\boxed{", False),
        ("boxed", "1813", "1813", False),
        ("sentence", "Well. Therefore, the answer is (in 1813).", "in 1813", True),
        ("sentence", "Therefore, the answer is Pierre.", "Pierre", True),
        ("sentence", "Pierre.", "Pierre.", False),
    ],
)
def test_answer_forms(form: AnswerForm, text: str, answer: str, found: bool) -> None:
    prompts = PROMPTS.model_copy(update={"answer_form": form})
    read = read_answer(reply(text), prompts)
    assert (read.text, read.form_found, read.truncated) == (answer, found, False)


@pytest.mark.parametrize("text", ["[keep]", " [done]\n", "<think>a</think>[keep]"])
def test_a_literal_answers_nothing(text: str) -> None:
    with pytest.raises(UnusableReply, match="not an answer"):
        read_answer(reply(text), PROMPTS)


def test_a_reply_is_read_up_to_its_first_stop_sequence() -> None:
    stop = {"update": ("\n\n", "Text:"), "answer": ("\n",)}
    prompts = PromptSet.model_validate(PROMPTS.model_dump() | {"stop": stop})
    text = "\n\nHe is old. \nHe rides. Text: more\n\nand more"
    update = read_update(reply(text, cut=True), prompts, "off")
    assert (update.memory, update.cut_off) == ("He is old. \nHe rides.", False)
    answer = read_answer(reply(text, cut=True), prompts)
    assert (answer.text, answer.truncated) == ("He is old.", False)
    assert read_update(reply("He is", cut=True), prompts, "off").cut_off


def test_an_answer_that_was_cut_off_says_so() -> None:
    assert read_answer(reply("In 18", cut=True), PROMPTS).truncated


@pytest.mark.parametrize(
    "unit", ["\\boxed{", "\\boxed{}", "\\boxed ", "{", "<think>", "</think>", "a<think></think>"]
)
def test_long_repetitive_replies_are_read_in_linear_time(unit: str) -> None:
    completion = reply("x" + unit * (400_000 // len(unit)) + "x")
    start = time.process_time()
    read_answer(completion, PROMPTS.model_copy(update={"answer_form": "boxed"}))
    assert time.process_time() - start < 1.0  # quadratic reading would take minutes
