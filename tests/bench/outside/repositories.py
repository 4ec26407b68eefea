"""Small repositories with a fault, and the instances that describe it."""

from __future__ import annotations

import difflib
from io import StringIO
from pathlib import Path
from typing import Any

from tests.bench.outside.gyms import write

FAULTY = '''\
"""Prices."""


def total(prices):
    """The sum."""
    result = 0
    for price in prices[1:]:
        result += price
    return result


def mean(prices):
    """The average."""
    return total(prices) / len(prices)
'''
SOUND = FAULTY.replace("prices[1:]", "prices")
VISIBLE = "from shop.prices import total\n\n\ndef test_nothing_costs_nothing():\n    assert total([]) == 0\n"
HIDDEN = VISIBLE + "\n\ndef test_everything_counts():\n    assert total([2, 3]) == 5\n"
TESTS = "tests/test_prices.py"


def diff(path: str, old: str, new: str) -> str:
    """A unified diff."""
    before, after = (list(StringIO(text, newline="\n")) for text in (old, new))
    lines = difflib.unified_diff(before, after, f"a/{path}", f"b/{path}")
    return "".join(s if s[-1] == "\n" else f"{s}\n\\ No newline at end of file\n" for s in lines)


def instance(**more: Any) -> dict[str, Any]:
    """A row of the data."""
    return {
        "instance_id": "shop-1",
        "problem_statement": "total() forgets the first price.",
        "repo": "shop-1",
        "FAIL_TO_PASS": [f"{TESTS}::test_everything_counts"],
        "PASS_TO_PASS": f'["{TESTS}::test_nothing_costs_nothing"]',
        "test_patch": diff(TESTS, VISIBLE, HIDDEN),
        "patch": diff("shop/prices.py", FAULTY, SOUND),
        **more,
    }


def make(folder: Path, **more: Any) -> Path:
    """Writes a repository and its instance."""
    files = {"shop/prices.py": FAULTY, "shop/__init__.py": "", TESTS: VISIBLE, ".git/HEAD": "ref"}
    for name, text in files.items():
        path = folder / "shop-1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "shop-1/logo.png").write_bytes(b"\x89PNG\xff")
    write(folder / "instances.jsonl", instance(**more))
    return folder
