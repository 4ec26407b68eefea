"""What the tests of others' benchmarks share."""

from collections.abc import Iterator

import pytest
from tests.bench.outside.cages import Open, opening


@pytest.fixture
def sandbox() -> Iterator[Open]:
    with opening() as make:
        yield make
