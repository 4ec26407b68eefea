"""Arm (g): a model of equal size that has a whole training document in its window, and answers at once."""

from __future__ import annotations

from collections.abc import Iterator

from memagent.errors import QuestionTooLong
from memagent.messages import ChatRequest, Message
from memagent.models.base import ChatModel
from memagent.tasks import Sample
from memagent_nano.expert import Expert, read_memory
from memagent_nano.lessons import documents
from memagent_nano.sizes import Size
from memagent_nano.task import UNTRAINED

DIRECT = "direct"
"""Name of the stage."""
WINDOW = 1536
"""Tokens of the window: `pico`'s documents of four times the training's length take about 1,100."""
ANSWER = 16
"""Maximum tokens of a reply."""
MOST = 8
"""Maximum characters per token, on average: text further back than this per window token can't fit."""


def prompt(document: str, question: str) -> str:
    """Returns the model's prompt."""
    return f"Text: {document}\nQuestion: {question}\nAnswer:"


async def agent(model: ChatModel, sample: Sample) -> str:
    """Asks once, with as much of the document's end as the window takes.

    Args:
        model: the policy.
        sample: the document and the question.

    Returns:
        The reply.

    Raises:
        QuestionTooLong: the window has no room for the question alone.
    """
    counter, window = await model.counter(), await model.window() or WINDOW
    document = sample.context
    while True:
        message = Message(role="user", content=prompt(document, sample.question))
        over = counter.count_messages([message]) + ANSWER - window
        if over <= 0:
            reply = await model.complete(ChatRequest(messages=(message,), max_tokens=ANSWER))
            return reply.text.strip()
        if not document:
            raise QuestionTooLong(
                f"the question {sample.question!r:.80} takes {over} tokens more than the window of {window}: ask a "
                f"shorter one"
            )
        # A token has at least one character: cutting as many characters as tokens never cuts too much.
        document = document[max(over, len(document) - MOST * window) :]


def lessons(size: Size, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yields documents as in the training, and answers in the form of those given from a memory.

    Includes longer ones, up to the longest measured documents that fit the window: the model must have seen them.
    """
    expert = Expert("relevant", entries=size.entries, syllables=size.syllables)
    lengths = (*size.lengths, *size.longer, 4 * size.lengths[-1])
    for sample in documents(size, count, UNTRAINED + seed, lengths=lengths):
        memory = read_memory(expert.update(sample.question, [], sample.context))
        yield (
            prompt(sample.context, sample.question),
            expert.answer(sample.question, memory),
        )
