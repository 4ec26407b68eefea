"""What runs in a worker, called in this process. `test_pool.py` runs it where it belongs."""

import pytest
from tests.train.rewards.made import sample

from memagent.errors import ConfigError
from memagent_train.rewards import worker
from memagent_train.rewards.verdict import Verdict

SPEC = "tests.train.rewards.mine:by_word"


def judged(answer: str) -> Verdict:
    worker.begin(SPEC)
    return worker.judge(SPEC, worker.pack(answer, sample()))


def test_the_function_is_called() -> None:
    assert judged("mapping").scores == {"precision": 0.25}


@pytest.mark.parametrize("answer", ["raise", "exit", "no such word"])
def test_whatever_it_raises_is_a_verdict(answer: str) -> None:
    verdict = judged(answer)
    assert verdict.reward is None
    assert "mine.py:" in verdict.error


def test_a_function_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no function 'nothing'"):
        worker.begin("tests.train.rewards.mine:nothing")
