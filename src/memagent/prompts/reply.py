"""A model's reply -> the next state. Literals are compared exactly; nothing is guessed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memagent.messages import Completion, FinishReason
from memagent.prompts.promptset import AnswerForm, Gate, PromptSet

_SENTENCE = re.compile(r"[Tt]herefore, the answer is:? *(.+)")


@dataclass(frozen=True)
class Update:
    """What an update reply says."""

    memory: str | None
    """The new memory; None carries the old one."""
    done: bool
    """The reading may stop here."""
    cut_off: bool
    """The reply ended at its token limit, in the middle of the memory."""


@dataclass(frozen=True)
class Answer:
    """What an answer reply says."""

    text: str
    form_found: bool
    """False when the answer form was not in the reply; `text` is then the whole reply."""
    truncated: bool
    """The reply ended at its token limit."""


class UnusableReply(Exception):
    """The reply is empty, or was cut off inside its reasoning; the message says which."""


def visible(completion: Completion) -> str:
    """The reply after the last `</think>`, stripped.

    Raises:
        UnusableReply: nothing is left.
    """
    text = completion.text
    cut = completion.finish_reason is FinishReason.LENGTH
    if "</think>" in text:
        text = text.rpartition("</think>")[2]
    elif "<think>" in text:
        raise UnusableReply("the reply ends inside its reasoning (no </think>)")
    text = text.strip()
    if text:
        return text
    if cut and (completion.reasoning or completion.text.strip()):
        raise UnusableReply("the reply was cut off by its token limit while reasoning")
    raise UnusableReply("the reply is empty")


def read_update(completion: Completion, prompts: PromptSet, gate: Gate) -> Update:
    """Reads the reply to an update call.

    A whole reply equal to `keep`, or `done` alone, carries the memory; `done` alone on the last line is
    removed and ends the reading. Literals that the gate does not offer are ordinary text.

    Raises:
        UnusableReply: empty, or cut off inside reasoning.
    """
    text = visible(completion)
    done = False
    if gate in ("exit", "both"):
        before, _, last = text.rpartition("\n")
        if last.strip() == prompts.done:
            text, done = before.strip(), True
    if (done and not text) or (gate in ("update", "both") and text == prompts.keep):
        return Update(memory=None, done=done, cut_off=False)
    return Update(memory=text, done=done, cut_off=completion.finish_reason is FinishReason.LENGTH)


def read_answer(completion: Completion, form: AnswerForm) -> Answer:
    r"""Reads the reply to an answer call.

    The answer is the whole text, the last `\boxed{...}`, or what follows the last "Therefore, the answer is".

    Raises:
        UnusableReply: empty, or cut off inside reasoning.
    """
    text = visible(completion)
    found: str | None = text
    if form == "boxed":
        found = _last_box(text)
    elif form == "sentence":
        matches = _SENTENCE.findall(text)
        found = _bare(matches[-1]) if matches else None
    return Answer(
        text=text if found is None else found,
        form_found=found is not None,
        truncated=completion.finish_reason is FinishReason.LENGTH,
    )


def _last_box(text: str) -> str | None:
    for start in reversed([match.end() for match in re.finditer(r"\\boxed\s*\{", text)]):
        depth = 1
        for place in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[place], 0)
            if depth == 0:
                return text[start:place].strip()
    return None


def _bare(sentence: str) -> str:
    bare = sentence.strip().removesuffix(".").strip()
    if bare.startswith("(") and bare.endswith(")"):
        bare = bare[1:-1].strip()
    return bare
