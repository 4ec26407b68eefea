"""Without `--engine` nothing here is a test, and no skipped one either."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return None if config.getoption("--engine") else True
