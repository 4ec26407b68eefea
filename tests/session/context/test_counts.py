"""How often tokens are counted: a step costs its new texts, however long the prompt is."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.session.context.strict import opened
from tests.session.context.test_anchors import PROSE, TOOLS, Reporting, Templateless, Truth, run

from memagent.messages import Message
from memagent.tokens import TokenCounter
from memagent.tokens.byte_bound import ByteBound

STEPS = 100


class Watched:
    """A counter that notes what it is asked."""

    def __init__(self, inner: TokenCounter) -> None:
        self.inner, self.name, self.control_tokens = inner, inner.name, inner.control_tokens
        self.exact: bool = getattr(inner, "exact", True)
        self.texts = Counter[str]()
        self.wholes = 0

    def count(self, text: str) -> int:
        self.texts[text] += 1
        return self.inner.count(text)

    def count_messages(self, messages: Sequence[Message], **how: Any) -> int:
        self.wholes += 1
        return self.inner.count_messages(messages, **how)

    def measure(self, text: str) -> Any:
        return self.inner.measure(text)


@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize(
    "inner", [Truth(), Templateless(), ByteBound()], ids=["template", "tokenizer", "bytes"]
)
async def test_whole_prompts_are_hardly_counted(inner: TokenCounter, reports: bool) -> None:
    counter = Watched(inner)
    model = Reporting(window=8192, offered=counter)
    settings: dict[str, Any] = {"tools": TOOLS, "working_context": 8192, "max_summaries": 99}
    async with await opened(model, **settings) as buffer:
        await run(buffer, model, STEPS, reports=reports)
        assert buffer.summaries > 1
    assert counter.wholes <= 0.5 * STEPS
    results = [
        texts for text, texts in counter.texts.items() if PROSE in text and ": Well" in text[:12]
    ]
    assert len(results) >= STEPS - 1
    assert max(results) == 1
    if counter.exact:  # each is a request where the server counts
        assert sum(counter.texts.values()) <= 5 * STEPS
