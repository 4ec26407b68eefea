"""All 13 tasks, in the published order."""

from memagent_bench.ruler.niah import NIAH
from memagent_bench.ruler.tasks import TASKS


def test_there_are_thirteen_in_the_published_order() -> None:
    assert list(TASKS) == [*NIAH, "vt", "cwe", "fwe", "qa_1", "qa_2"]
