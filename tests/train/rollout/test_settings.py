import pytest
from pydantic import ValidationError

from memagent.errors import ConfigError
from memagent.messages import Sampling
from memagent_train.rollout.settings import RolloutSettings


def test_defaults_are_the_published_rollouts() -> None:
    settings = RolloutSettings()
    assert settings.sampling == Sampling(temperature=1.0, top_p=1.0)
    assert settings.engine == "padded"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"engine": "vllm"}, "needs a base_url"),
        ({"engine": "vllm", "base_url": ()}, "needs a base_url"),
        ({"engine": "padded", "base_url": "http://x"}, "not used by engine='padded'"),
        ({"engine": "continuous", "top_p": 0.9}, "cannot be trained"),
        ({"weights": "bfloat16"}, "generates with those in training: leave weights out"),
        ({"engine": "vllm-engine", "weights": "adapter"}, "it gets the adapter merged"),
        ({"engine": "vllm", "base_url": "http://x", "top_p": 0.9}, "cannot be trained"),
    ],
)
def test_settings_that_do_not_go_together(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        RolloutSettings.model_validate(fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0},
        {"temperature": float("nan")},
        {"concurrency": 0},
        {"tempo": 1},
        {"engine": "x"},
    ],
)
def test_values_that_cannot_be(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RolloutSettings.model_validate(fields)
