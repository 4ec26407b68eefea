"""Parses a model's reply into the next state. Literals are compared exactly; nothing is guessed."""

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
    """The content of an update reply."""

    memory: str | None
    """The new memory; None keeps the old one."""
    done: bool
    """Whether the reading may stop here."""
    cut_off: bool
    """Whether the reply was cut off by its token limit, in the middle of the memory."""


@dataclass(frozen=True)
class Answer:
    """The content of an answer reply."""

    text: str
    form_found: bool
    """False if the reply lacks the answer form; `text` is then the whole reply."""
    truncated: bool
    """Whether the reply was cut off by its token limit."""


class UnusableReply(Exception):
    """The reply is empty, ends in its reasoning, was aborted or isn't an answer; the message says which."""


def visible(completion: Completion, stops: Sequence[str] = ()) -> str:
    """Returns the reply without its reasoning, up to the first stop sequence, stripped.

    If the server separates reasoning (`Completion.reasoning`), its text is used whole. Otherwise reasoning starts with
    `<think>` at the very start, or ends with a `</think>` without a `<think>` before it (templates may open it in the
    prompt), up to the last such `</think>`. Anywhere else, both are ordinary text.

    Raises:
        UnusableReply: nothing remains, or the engine stopped the reply for a reason other than the
            model's end of turn or the token limit.
    """
    if completion.finish_reason is FinishReason.OTHER:
        raise UnusableReply("the reply was stopped by the engine (by a content filter, say)")
    text = completion.text
    if not completion.reasoning:
        start = 0
        while (end := text.find(_CLOSE, start)) >= 0:
            segment = text[start:end]
            if _OPEN in segment and not segment.lstrip().startswith(_OPEN):
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

    A reply of exactly `keep` or `done` keeps the memory; `done` alone on the last line is
    removed and ends the reading. Literals that the gate doesn't offer are ordinary text. Raises like `visible`.
    """
    text = visible(completion, prompts.stop.update)
    limited = completion.finish_reason is FinishReason.LENGTH
    cut_off = limited and completion.text.rstrip().endswith(text)  # and not at a stop sequence
    done = False
    if gate in ("exit", "both"):
        memory, _, last_line = text.rpartition("\n")
        if last_line.strip() == prompts.done:
            text, done = memory.strip(), True
    if (done and not text) or (gate in ("update", "both") and text == prompts.keep):
        return Update(memory=None, done=done, cut_off=False)
    return Update(memory=text, done=done, cut_off=cut_off)


def read_answer(completion: Completion, prompts: PromptSet) -> Answer:
    """Reads the reply to an answer call: its answer in the set's form, else the whole text.

    Raises like `visible`, and if the reply is `keep` or `done`, which aren't answers.
    """
    text = visible(completion, prompts.stop.answer)
    if text in (prompts.keep, prompts.done):
        raise UnusableReply(f"the reply is {text!r}, which is not an answer")
    answer = find_answer(text, prompts.answer_form)
    limited = completion.finish_reason is FinishReason.LENGTH
    return Answer(
        text=text if answer is None else answer,
        form_found=answer is not None,
        truncated=limited and completion.text.rstrip().endswith(text),
    )


def find_answer(text: str, form: AnswerForm) -> str | None:
    r"""Finds the answer in a reply; None if the reply doesn't have the form.

    It is the whole text, the content of the last `\boxed{...}`, or what follows the last "Therefore, the answer is".
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
    """Returns the content of the last closed box."""
    stack: list[int | None] = []
    box: tuple[int, int] | None = None
    for match in _BRACES.finditer(text):
        if match[0] != "}":
            stack.append(None if match[0] == "{" else match.end())
        elif stack:
            start = stack.pop()
            if start is not None and (box is None or start > box[0]):
                box = start, match.start()
    return None if box is None else text[slice(*box)].strip()
