"""Which policy a path names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.train.runs.tiny import write_model

from memagent.errors import ConfigError
from memagent_train.config.sections import ModelSettings
from memagent_train.runs.checkpoints import mark_complete
from memagent_train.runs.folder import RunFolder, open_run
from memagent_train.runs.target import run_target, target_of

MODEL = ModelSettings(path="base", dtype="bfloat16")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with checkpoints after steps 1 and 2, and half of one after 3."""
    model = write_model(tmp_path / "model")
    with open_run(tmp_path / "run", {"model": {"path": str(model)}}, free=()) as folder:
        for step in (1, 2, 3):
            path = write_model(folder.checkpoints / f"checkpoint-{step * 2}", seed=step)
            if step < 3:
                mark_complete(path, step)
    return tmp_path / "run"


def test_a_run_stands_for_its_newest_whole_checkpoint(run: Path) -> None:
    target = target_of(str(run), None, MODEL)
    assert target.checkpoint is not None
    assert target.checkpoint.step == 2
    assert target.model.dtype == "float32"
    assert target.name.endswith("checkpoint-4")
    model, tokenizer = target.load()
    assert len(tokenizer) <= model.config.vocab_size


def test_a_run_outlives_its_first_model(run: Path) -> None:
    shutil.rmtree(run.parent / "model")
    model, tokenizer = run_target(run).load()
    assert len(tokenizer) <= model.config.vocab_size
    assert tokenizer.chat_template
    bare = RunFolder(run).checkpoints / "checkpoint-6"
    (bare / "tokenizer_config.json").unlink()
    mark_complete(bare, 3)
    with pytest.raises(ConfigError, match=r"no tokenizer can be loaded from '.*/model'"):
        run_target(run).load()


def test_a_step_can_be_named(run: Path) -> None:
    target = run_target(run, 1)
    assert target.checkpoint is not None
    assert target.checkpoint.updates == 2
    with pytest.raises(ConfigError, match="no complete checkpoint of step 3; there are: 1, 2"):
        run_target(run, 3)


def test_a_model_is_itself(run: Path) -> None:
    folder = run.parent / "model"
    target = target_of(str(folder), None, MODEL)
    assert target.checkpoint is None
    assert (target.model.path, target.model.dtype) == (str(folder), "bfloat16")
    with pytest.raises(ConfigError, match="so it has no step 3"):
        target_of(str(folder), 3, MODEL)


def test_an_adapter_names_its_base(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "the/base"}')
    target = target_of(str(tmp_path), None, MODEL)
    assert target.model.path == "the/base"
    assert target.checkpoint is not None
    assert target.checkpoint.path == tmp_path


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not the folder of a run \(it has no config\.toml\)"):
        run_target(tmp_path)
    with open_run(tmp_path / "new", {"model": {"path": "m"}}, free=()):
        pass
    with pytest.raises(ConfigError, match="has no complete checkpoint; there are: none"):
        run_target(tmp_path / "new")


@pytest.mark.parametrize(
    "settings", ["{}", "[]", "{", '{"base_model_name_or_path": null}', "\udcff"]
)
def test_an_adapter_that_names_no_model_says_what_to_set(tmp_path: Path, settings: str) -> None:
    (tmp_path / "adapter_config.json").write_text(settings, "utf-8", "surrogateescape")
    with pytest.raises(ConfigError, match="doesn't name the model"):
        target_of(str(tmp_path), None, MODEL)
