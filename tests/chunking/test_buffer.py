"""Text that was fed and not yet cut."""

from hypothesis import given
from hypothesis import strategies as st

from memagent.chunking.buffer import Buffer

STEPS = st.lists(
    st.text("abc", max_size=5) | st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=30
)


@given(STEPS)
def test_behaves_as_one_string(steps: list[str | tuple[int, int]]) -> None:
    buffer, model = Buffer(), ""
    for step in steps:
        if isinstance(step, str):
            buffer.append(step)
            model += step
        else:
            seen = buffer.peek(step[0])
            assert seen == model[: step[0]]
            dropped = min(step[1], len(seen))
            buffer.drop(dropped)
            model = model[dropped:]
        assert buffer.size == len(model)
