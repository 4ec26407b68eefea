"""UTF-8 bytes as an upper bound."""

from hypothesis import given
from hypothesis import strategies as st

from memagent.messages import Message
from memagent.tokens import ByteBound
from memagent.tokens.base import MESSAGE_ALLOWANCE, REQUEST_ALLOWANCE


def test_it_says_what_it_is() -> None:
    assert (ByteBound().name, ByteBound().exact, ByteBound().control_tokens) == (
        "utf8-bytes",
        False,
        frozenset(),
    )


@given(st.text(max_size=50))
def test_counts_bytes(text: str) -> None:
    assert ByteBound().count(text) == len(text.encode())


def test_messages_have_their_allowances() -> None:
    messages = [Message(role="system", content="é"), Message(role="user", content="ab")]
    assert ByteBound().count_messages(messages) == 4 + 2 * MESSAGE_ALLOWANCE + REQUEST_ALLOWANCE


@given(st.text(max_size=30), st.integers(-1, 130))
def test_the_prefix_within_a_limit_is_the_longest(text: str, limit: int) -> None:
    chars = ByteBound().measure(text).chars_within(limit)
    assert chars == max(
        [n for n in range(len(text) + 1) if len(text[:n].encode()) <= limit], default=0
    )
