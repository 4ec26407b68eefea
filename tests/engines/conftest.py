"""Without `--engine` nothing here is a test, and no skipped one either; laptops' engines have a suite of their own."""

from pathlib import Path

import pytest
from tests.engines import venvs

LAPTOPS = "test_laptops.py"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    engine = config.getoption("--engine")
    mine = (collection_path.name == LAPTOPS) == (engine in venvs.LAPTOPS)
    return None if engine and mine else True
