import pytest

from memagent.cli.reading import last_seq
from memagent.events import ChunkRead
from memagent.runstore import RunStore


@pytest.mark.parametrize("number", [0, 1, 2, 3, 5, 300, 1025])
def test_last_seq(number: int) -> None:
    store = RunStore(None)
    store.create("r", {}, {}, {})
    read = ChunkRead(chunk=0, start=0, end=1, tokens=1, last=False)
    store.log("r", [read] * number)
    assert last_seq(store, "r") == number - 1
    assert last_seq(store, "nosuch") == -1
    store.close()
