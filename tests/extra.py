"""Runs the tests that need other frameworks and writes down how they ended: `make test-extra`, `make test-verl`."""

from __future__ import annotations

import platform
import sys
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

HERE = Path(__file__).parent
EXTRA = (
    "deepagents",
    "langchain",
    "langchain-classic",
    "langchain-openai",
    "llama-index-core",
    "llm",
    "openai-agents",
    "opentelemetry-sdk",
    "pydantic-ai-slim",
    "ray",
)
VERL = ("ray", "tensordict", "torch", "transformers", "verl")
# verl's wheel has a package `tests` of its own, which hides this folder's: nothing outside tests/verl is imported.
ALONE = ("tests/verl", "--confcutdir", "tests/verl", "-W", "ignore")
SUITES = {"extra": (("-m", "extra"), EXTRA), "verl": (ALONE, VERL)}


class Outcomes:
    """A plugin of pytest that counts how tests ended."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.counts[report.outcome] += report.when != "teardown" or report.failed


def main(suite: str = "extra") -> int:
    """Returns pytest's exit status; the result is written whatever it is."""
    outcomes = Outcomes()
    options, packages = SUITES[suite]
    status = pytest.main([*options, "-q"], plugins=[outcomes])
    counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.counts.items()))
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    (HERE / f"{suite}-result.txt").write_text(
        f"make test-{suite}: {counts or 'no test ran'}\n"
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()} on {platform.machine()}, {versions}\n"
    )
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
