"""What every task of every suite promises: its samples fill the length and no more, and are the same in any process."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.bench.counters import Quarters, line_ends
from tests.bench.longqa.data import hotpot, squad, titled, write
from tests.bench.short_book import book_options

from memagent.tasks import SCORERS
from memagent.tokens import TokenCounter
from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_bench.suites import CONTROL, SUITES, tasks_of

EVERY = [(suite, name) for suite in SUITES for name in tasks_of(suite)]
CHILD = """
import json, sys
from pathlib import Path
from tests.bench.test_every_task import hashes
print(json.dumps(hashes(Path(sys.argv[1]), sys.argv[2], (2, 0))))
"""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book and questions."""
    made = tmp_path_factory.mktemp("data")
    book_options(made)
    for name, content in (("h", hotpot(8, 20)), ("s", squad(12, 12)), ("p", titled(400))):
        write(made / f"{name}.json", content)
    return made


def options_of(folder: Path, counter: TokenCounter) -> DataOptions:
    return DataOptions(
        counter=counter,
        essays=(folder / "book.txt",),
        hotpotqa=(folder / "h.json",),
        squad=folder / "s.json",
        paragraphs=(folder / "p.json",),
    )


def hashes(folder: Path, suite: str, indexes: tuple[int, ...]) -> dict[str, str]:
    """By task and index; the samples of a task are made in the order given."""
    options = options_of(folder, length_counter(None))
    tasks = {name: make(4096, options) for name, make in tasks_of(suite).items()}
    return {
        f"{name} {index}": hashlib.sha256(task.sample(index).model_dump_json().encode()).hexdigest()
        for name, task in tasks.items()
        for index in indexes
    }


@pytest.mark.parametrize("suite", SUITES)
def test_another_process_makes_the_same_samples_in_any_order(suite: str, folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, folder, suite],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = hashes(folder, suite, (0, 1, 2))
    assert len(set(here.values())) == len(here)
    assert json.loads(ran.stdout) == {key: of for key, of in here.items() if key[-1] != "1"}


@pytest.mark.parametrize(("suite", "name"), EVERY)
@pytest.mark.parametrize(
    ("counter", "length"),
    [
        (partial(length_counter, None), 4096),
        (partial(length_counter, None), 32_768),
        (line_ends, 4096),
        (Quarters, 4096),
    ],
    ids=["gpt2", "long", "line ends", "quarters"],
)
def test_samples_fill_the_length_by_any_tokenizer_and_no_more(
    suite: str, name: str, counter: Callable[[], TokenCounter], length: int, folder: Path
) -> None:
    counts = counter()
    task = tasks_of(suite)[name](length, options_of(folder, counts))
    assert task.name == name
    assert task.scorer in SCORERS
    for index in (0, 3, 7):
        sample = task.sample(index)
        assert (sample.task, sample.index, sample.length) == (name, index, length)
        assert sample.tokens == counts.count(sample.prompt) + sample.generate <= length
        if not name.endswith(CONTROL):
            # Coded words take different numbers of tokens, and all samples of fwe have about the same number of words.
            spare = length // 5 if name == "fwe" else 125 if counter is Quarters else 100
            assert sample.tokens >= length - spare
