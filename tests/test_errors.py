import inspect

import pytest

from memagent import errors

TREE = [line.strip(" │├└─") for line in (errors.__doc__ or "").split("\n\n")[1].splitlines()]
CLASSES = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if kind.__module__ == errors.__name__
}


def test_the_drawn_tree_is_the_tree() -> None:
    assert [line.split()[0] for line in TREE if line] == sorted(
        CLASSES, key=[line.split()[0] for line in TREE].index
    )
    assert len(TREE) == len(CLASSES)
    assert all(issubclass(kind, errors.MemagentError) for kind in CLASSES.values())


@pytest.mark.parametrize("line", [line for line in TREE if "retryable" in line and "`" not in line])
def test_the_drawn_retryable_errors_are(line: str) -> None:
    assert getattr(CLASSES[line.split()[0]], "retryable")  # noqa: B009


def test_the_others_are_not_retryable() -> None:
    drawn = {line.split()[0] for line in TREE if "retryable" in line and "`" not in line}
    retryable = {name for name, kind in CLASSES.items() if getattr(kind, "retryable", False)}
    assert retryable == drawn


def test_errors_carry_their_data() -> None:
    assert errors.DecodingError("bad byte", offset=7).offset == 7
    busy = errors.ServerBusy("later", retry_after=2.5, attempts=3)
    assert (busy.retry_after, busy.attempts, busy.run_id) == (2.5, 3, None)
