"""The allowances for chat templates that are not known."""

import re
from pathlib import Path

import pytest

from memagent.messages import Message
from memagent.tokens import ByteBound, TokenizerFile
from memagent.tokens.base import MESSAGE_ALLOWANCE, REQUEST_ALLOWANCE

TOKENIZER = Path(__file__).parents[1] / "data" / "tokenizer"


def test_the_allowances_bound_a_known_template() -> None:
    counter = TokenizerFile(TOKENIZER)
    for count in (1, 2, 9):
        messages = [Message(role="user", content="Who is Pierre?")] * count
        bound = (
            sum(counter.count(m.content) + MESSAGE_ALLOWANCE for m in messages) + REQUEST_ALLOWANCE
        )
        assert counter.count_messages(messages) <= bound


@pytest.mark.parametrize("thinking", [None, False, True])
def test_where_no_template_is_known_thinking_makes_no_difference(thinking: bool | None) -> None:
    messages = [Message(role="user", content="Who is Pierre?")]
    for counter in (ByteBound(), TokenizerFile(TOKENIZER)):  # whose template knows no reasoning
        plain = counter.count_messages(messages)
        assert counter.count_messages(messages, thinking=thinking) == plain


def test_the_request_allowance_bounds_the_header_of_gpt_oss() -> None:
    # Its template writes this system message, in 80 to 90 of its own tokens.
    header = (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
        "Knowledge cutoff: 2024-06\nCurrent date: 2025-08-05\n\nReasoning: medium\n\n"
        "# Valid channels: analysis, commentary, final. Channel must be included for every message."
        "<|end|><|start|>assistant"
    )
    assert len(re.findall(r"<\|\w+\|>|\w+|[^\w\s]|\s+", header)) <= REQUEST_ALLOWANCE
