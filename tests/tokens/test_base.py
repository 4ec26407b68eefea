"""The allowances for chat templates that are not known."""

from pathlib import Path

from memagent.messages import Message
from memagent.tokens import TokenizerFile
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
