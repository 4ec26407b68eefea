"""The settings of a warm start."""

from __future__ import annotations

from pathlib import Path

import pytest

from memagent.errors import ConfigError
from memagent_train.config.keys import list_keys
from memagent_train.config.sft import FREE_SFT, RolloutSource, SftConfig, load_sft

LEAST = '[model]\npath = "m"\n[[traces.source]]\nkind = "rollouts"\npath = "run/rollouts"\nmin_reward = 1.0\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "sft.toml"
    path.write_text(LEAST)
    return path


def test_a_model_and_traces_are_enough(file: Path) -> None:
    config = load_sft(file)
    source = config.traces.source[0]
    assert isinstance(source, RolloutSource)
    assert source.path == file.parent / "run/rollouts"
    assert config.optimizer.learning_rate == 1e-5


def test_a_model_beside_the_file_is_its_path(file: Path) -> None:
    (file.parent / "m").mkdir()
    (file.parent / "m" / "config.json").touch()
    assert load_sft(file).model.path == str(file.parent / "m")


def test_rows_are_divided_among_micro_batches(file: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"rows must be a multiple of micro_batches \(4\), got 10"
    ):
        load_sft(file, ["batch.rows=10", "batch.micro_batches=4"])


def test_rollouts_need_a_threshold(file: Path) -> None:
    with pytest.raises(ConfigError, match="min_reward is missing"):
        load_sft(file, ["traces.source=[{kind = 'rollouts', path = 'x'}]"])


@pytest.mark.parametrize(
    "setting",
    ["logging.rollouts=1", "logging.runs=1", "resources.device_gib=80", "resources.sharding=fsdp"],
)
def test_settings_without_effect_are_refused(file: Path, setting: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no setting '{setting.partition('=')[0]}'"):
        load_sft(file, [setting])


def test_settings_that_may_change_exist() -> None:
    assert set(FREE_SFT) <= set(list_keys(SftConfig))


def test_weights_in_float16_are_not_trained(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.dtype='float16' .*\[lora\]"):
        load_sft(file, ["model.dtype=float16"])
    assert load_sft(file, ["model.dtype=float16", "lora.rank=8"]).model.dtype == "float16"
