"""The section `[reward]`."""

import textwrap
from typing import Any

import pytest
from pydantic import ValidationError
from tests.train.rewards.made import sample

from memagent_train.rewards.settings import JudgeSettings, RewardSettings
from memagent_train.rewards.verdict import read_verdict


def test_defaults_reward_what_each_task_measures() -> None:
    settings = RewardSettings()
    assert settings.use == "task"
    assert settings.judge == JudgeSettings()
    assert settings.judge.sampling.temperature == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"use": ""},
        {"time_limit": 0},
        {"time_limit": float("nan")},
        {"workers": 0},
        {"max_answer_words": 0},
        {"answer_form": "xml"},
        {"judge": {"max_token": 3}},
        {"unknown": 1},
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RewardSettings.model_validate(fields)


def test_the_example_of_the_docstring_works() -> None:
    code = (RewardSettings.__doc__ or "").partition("```python")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(textwrap.dedent(code), names)
    assert read_verdict(names["reward"](" 12", sample())).reward == 1.0
    assert read_verdict(names["reward"]("13", sample())).scores == {"characters": 2.0}
    assert read_verdict(names["reward"](None, sample())).reward == 0.0
