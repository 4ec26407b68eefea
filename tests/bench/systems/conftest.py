"""A run store for each test, made before its event loop runs."""

from collections.abc import Iterator

import pytest

from memagent import RunStore


@pytest.fixture
def store() -> Iterator[RunStore]:
    store = RunStore(None)
    yield store
    store.close()
