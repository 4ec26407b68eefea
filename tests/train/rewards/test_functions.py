"""Finding a user's function, and awaiting an async one."""

import asyncio
import time
from pathlib import Path

import pytest
from tests.train.rewards.made import sample

from memagent.errors import ConfigError
from memagent_train.agents import is_async
from memagent_train.rewards.functions import AwaitedReward, describe, load_reward

MINE = "tests.train.rewards.mine"
AWAITED = load_reward(f"{MINE}:awaited")
JUDGING = load_reward(f"{MINE}:judging")


def test_a_function_is_found_by_its_name() -> None:
    assert load_reward(f"{MINE}:right")("12", sample()) == 1.0
    assert load_reward(f"{MINE}:judging.__call__") is not None


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("right", "the reward 'right' doesn't name a function.*my_reward:reward"),
        ("__main__:right", "a separate module"),
        (f"{MINE}:rigth", "no function 'rigth'"),
        (f"{MINE}:of_one", r"must accept \(answer, sample\)"),
        ("leaving:reward", "exits when it is imported"),
    ],
)
def test_what_cannot_be_used_is_said(
    spec: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other fault of a name or a module: tests/train/test_agents.py."""
    (tmp_path / "leaving.py").write_text("raise SystemExit(2)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=said):
        load_reward(spec)


def test_async_functions_are_known() -> None:
    assert is_async(AWAITED)
    assert is_async(JUDGING)
    assert not is_async(load_reward(f"{MINE}:right"))


async def test_an_async_function_is_awaited_on_the_loop() -> None:
    reward = AwaitedReward(AWAITED, 5)
    assert (await reward.judge("thread", sample())).reward == 1.0
    assert (await reward.judge("x", sample())).scores == {"seen": 35.0}
    assert (await AwaitedReward(JUDGING, 5).judge("x", sample())).reward == 0.75


async def test_an_async_function_has_a_time_limit() -> None:
    reward = AwaitedReward(AWAITED, 0.1)
    started = time.perf_counter()
    verdicts = await asyncio.gather(*(reward.judge(a, sample()) for a in ("hang", "x", "hang")))
    assert time.perf_counter() - started < 2
    assert [v.reward for v in verdicts] == [None, 0.5, None]
    assert verdicts[0].error == "the reward function took longer than 0.1 s"


async def test_a_timeout_of_the_functions_own_is_its_error() -> None:
    verdict = await AwaitedReward(AWAITED, 5).judge("raise", sample())
    assert verdict.error.startswith("the reward function raised TimeoutError: of its own (mine.py:")


async def test_an_async_function_cannot_end_the_program() -> None:
    verdict = await AwaitedReward(AWAITED, 5).judge("exit", sample())
    assert verdict.error.startswith("the reward function raised SystemExit: 3")


def test_an_error_is_described_in_one_line() -> None:
    assert describe(ValueError("a\n b")) == "ValueError: a b"
    assert describe(KeyboardInterrupt()) == "KeyboardInterrupt"
