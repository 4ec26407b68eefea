"""Arm (g): a model of equal size that has all of a training's document in its window, and answers at once."""

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
"""The stage."""
WINDOW = 1536
"""Tokens: documents of pico that are four times as long as its training's take about 1,100."""
ANSWER = 16
"""Tokens of a reply."""
MOST = 8
"""Maximum characters per token, on average: text more than this many per window token back is out of reach."""


def prompt(document: str, question: str) -> str:
    """What the model is asked."""
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
        # A token has a character or more: cutting as many characters as tokens never cuts too much.
        document = document[max(over, len(document) - MOST * window) :]


def lessons(size: Size, count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Documents as they come in the training, and answers in the form in which they are given from a memory.

    There are longer ones too, as long as any that the window holds of those it is measured on: it has to see them.
    """
    expert = Expert("relevant", entries=size.entries, syllables=size.syllables)
    lengths = (*size.lengths, *size.longer, 4 * size.lengths[-1])
    for sample in documents(size, count, UNTRAINED + seed, lengths=lengths):
        memory = read_memory(expert.update(sample.question, [], sample.context))
        yield (
            prompt(sample.context, sample.question),
            expert.answer(sample.question, memory),
        )
