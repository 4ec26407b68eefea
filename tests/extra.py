"""Runs the tests that need other frameworks and writes down how they ended: `make test-extra`."""

from __future__ import annotations

import platform
import sys
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

RESULT = Path(__file__).with_name("extra-result.txt")
FRAMEWORKS = (
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


class Outcomes:
    """A plugin of pytest that counts how tests ended."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            self.counts[report.outcome] += report.when != "teardown" or report.failed


def main() -> int:
    """Returns pytest's exit status; the result is written whatever it is."""
    outcomes = Outcomes()
    status = pytest.main(["-m", "extra", "-q"], plugins=[outcomes])
    counts = ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.counts.items()))
    versions = ", ".join(f"{name} {version(name)}" for name in FRAMEWORKS)
    RESULT.write_text(
        f"make test-extra: {counts or 'no test ran'}\n"
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()} on {platform.machine()}, {versions}\n"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
