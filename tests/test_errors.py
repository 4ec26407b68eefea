import inspect
import re
from pathlib import Path

from memagent import errors

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "errors.md").read_text(encoding="utf-8")
CLASSES = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if kind.__module__ == errors.__name__
}


def test_the_page_draws_each_error_once() -> None:
    tree = PAGE[PAGE.rindex("MemagentError\n") :].partition("```")[0].split()
    assert sorted(tree) == sorted(CLASSES)
    assert all(issubclass(kind, errors.MemagentError) for kind in CLASSES.values())


def test_the_page_says_which_are_retried() -> None:
    table = PAGE[PAGE.index("| Class | Retried |") :].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| (yes|no)\b", table, re.MULTILINE)
    kinds = {name for name, kind in CLASSES.items() if issubclass(kind, errors.ModelError)}
    assert {name for name, _ in rows} == kinds - {"ModelError"}
    retryable = {name for name in kinds if getattr(CLASSES[name], "retryable", False)}
    assert {name for name, retried in rows if retried == "yes"} == retryable


def test_errors_carry_their_data() -> None:
    assert errors.DecodingError("bad byte", offset=7).offset == 7
    busy = errors.ServerBusy("later", retry_after=2.5, attempts=3)
    assert (busy.retry_after, busy.attempts, busy.run_id) == (2.5, 3, None)
