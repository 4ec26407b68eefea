"""All 13 tasks, in the published order."""

import pytest

from memagent.tasks import SCORERS
from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_bench.ruler.niah import NIAH
from memagent_bench.ruler.tasks import TASKS

PUBLISHED = [*NIAH, "vt", "cwe", "fwe", "qa_1", "qa_2"]


def test_there_are_thirteen_in_the_published_order() -> None:
    assert list(TASKS) == PUBLISHED


@pytest.mark.parametrize("name", [name for name in PUBLISHED if not name.startswith("qa")])
def test_each_makes_samples_by_its_name(name: str) -> None:
    task = TASKS[name](4096, DataOptions(counter=length_counter(None)))
    sample = task.sample(1)
    assert task.name == sample.task == name
    assert task.scorer in SCORERS
    assert length_counter(None).count(sample.prompt) + sample.generate == sample.tokens <= 4096
