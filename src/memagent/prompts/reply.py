"""A model's reply -> the next state. Literals are compared exactly; nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from memagent.messages import Completion, FinishReason
from memagent.prompts.promptset import AnswerForm, Gate, PromptSet

_SENTENCE = re.compile(r"[Tt]herefore, the answer is:? *(.+)")
_BRACES = re.compile(r"\\boxed\s*+\{|[{}]")
_OPEN, _CLOSE = "<think>", "</think>"


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
    """The reply is empty, ends in its reasoning, was stopped half-way or answers nothing; the message says which."""


def visible(completion: Completion, stops: Sequence[str] = ()) -> str:
    """The reply without its reasoning, up to the first stop sequence, stripped.

    A server that separates reasoning (`Completion.reasoning`) has done so: its text is taken whole. Else
    reasoning is what `<think>` begins at the very start, or what ends with a `</think>` that no `<think>`
    stands before (templates may open it in the prompt), up to the last `</think>` of that kind. Further on,
    both are words that the reply mentions.

    Raises:
        UnusableReply: nothing is left, or the engine stopped the reply for a reason that is neither the
            model's end of turn nor the token limit.
    """
    if completion.finish_reason is FinishReason.OTHER:
        raise UnusableReply("the reply was stopped by the engine (by a content filter, say)")
    text = completion.text
    if not completion.reasoning:
        start = 0
        while (end := text.find(_CLOSE, start)) >= 0:
            before = text[start:end]
            if _OPEN in before and not before.lstrip().startswith(_OPEN):
                break
            start = end + len(_CLOSE)
        text = text[start:].lstrip()
        if text.startswith(_OPEN):
            raise UnusableReply("the reply ends inside its reasoning (no </think>)")
    text = text.strip()
    for stop in stops:  # an engine that knows stop sequences has cut there
        text = text.partition(stop)[0].rstrip()
    if text:
        return text
    cut = completion.finish_reason is FinishReason.LENGTH
    if cut and (completion.reasoning or completion.text.strip()):
        raise UnusableReply("the reply was cut off by its token limit while reasoning")
    raise UnusableReply("the reply is empty")


def read_update(completion: Completion, prompts: PromptSet, gate: Gate) -> Update:
    """Reads the reply to an update call.

    A whole reply equal to `keep`, or `done` alone, carries the memory; `done` alone on the last line is
    removed and ends the reading. Literals that the gate does not offer are ordinary text.

    Raises:
        UnusableReply: see `visible`.
    """
    text = visible(completion, prompts.stop.update)
    limited = completion.finish_reason is FinishReason.LENGTH
    cut_off = limited and completion.text.rstrip().endswith(text)  # and not at a stop sequence
    done = False
    if gate in ("exit", "both"):
        before, _, last = text.rpartition("\n")
        if last.strip() == prompts.done:
            text, done = before.strip(), True
    if (done and not text) or (gate in ("update", "both") and text == prompts.keep):
        return Update(memory=None, done=done, cut_off=False)
    return Update(memory=text, done=done, cut_off=cut_off)


def read_answer(completion: Completion, prompts: PromptSet) -> Answer:
    """Reads the reply to an answer call: its answer in the set's form, else the whole text.

    Raises:
        UnusableReply: see `visible`; or it is `keep` or `done`, which answer nothing.
    """
    text = visible(completion, prompts.stop.answer)
    if text in (prompts.keep, prompts.done):
        raise UnusableReply(f"the reply is {text!r} and no answer")
    found = find_answer(text, prompts.answer_form)
    limited = completion.finish_reason is FinishReason.LENGTH
    return Answer(
        text=text if found is None else found,
        form_found=found is not None,
        truncated=limited and completion.text.rstrip().endswith(text),
    )


def find_answer(text: str, form: AnswerForm) -> str | None:
    r"""The answer in a reply, None where it is not in that form.

    It is the whole text, the last `\boxed{...}`, or what follows the last "Therefore, the answer is".
    """
    if form == "boxed":
        return _last_box(text)
    if form == "sentence":
        sentences = _SENTENCE.findall(text)
        if not sentences:
            return None
        text = sentences[-1].strip().removesuffix(".").strip()
        return text[1:-1].strip() if text.startswith("(") and text.endswith(")") else text
    return text


def _last_box(text: str) -> str | None:
    """What stands in the last box that is closed."""
    opened: list[int | None] = []
    last: tuple[int, int] | None = None
    for match in _BRACES.finditer(text):
        if match[0] != "}":
            opened.append(None if match[0] == "{" else match.end())
        elif opened:
            start = opened.pop()
            if start is not None and (last is None or start > last[0]):
                last = start, match.start()
    return None if last is None else text[slice(*last)].strip()
