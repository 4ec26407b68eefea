"""What runs in a worker, called in this process. `test_pool.py` runs it where it belongs."""

import pytest
from tests.train.rewards.made import sample

from memagent.errors import ConfigError
from memagent_train.rewards import worker
from memagent_train.rewards.functions import load_reward


@pytest.fixture(autouse=True)
def by_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_loaded", [load_reward("tests.train.rewards.mine:by_word")])


def test_the_function_is_called() -> None:
    assert worker.check() == ""
    assert worker.judge("mapping", sample()).scores == {"precision": 0.25}


@pytest.mark.parametrize("answer", ["raise", "exit", "no such word"])
def test_whatever_it_raises_is_a_verdict(answer: str) -> None:
    verdict = worker.judge(answer, sample())
    assert verdict.reward is None
    assert "mine.py:" in verdict.error


def test_a_function_that_is_not_there_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_loaded", [ConfigError("there is none")])
    assert worker.check() == "there is none"
    assert worker.judge("true", sample()).error == "there is none"
