"""A run's folder: one process at a time, the same settings, and what came after the checkpoint is gone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest
import tomli_w
from pydantic import BaseModel, model_validator

from memagent.cli.exits import code_of
from memagent.errors import ConfigError, RunBusy, StoreReadOnly
from memagent.runstore import RunStore
from memagent_train.config.toml import read_toml
from memagent_train.errors import CheckpointMismatch
from memagent_train.runs import metrics
from memagent_train.runs.checkpoints import mark_complete
from memagent_train.runs.folder import RunFolder, check_run, open_run
from memagent_train.runs.ids import evaluation_id, group_id, rollout_id

SETTINGS: dict[str, Any] = {
    "model": {"path": "m"},
    "optimizer": {"steps": 3, "learning_rate": 1e-6},
    "evaluation": {"lengths": [8, 16]},
}
FREE = ("optimizer.steps", "evaluation")


def changed(section: str, **values: Any) -> dict[str, Any]:
    return SETTINGS | {section: SETTINGS[section] | values}


def refuse(
    error: type[Exception],
    said: str,
    path: Path,
    settings: Mapping[str, Any] = SETTINGS,
    **kind: Any,
) -> str:
    """Has a run refused with an error that says so; returns all that it says."""
    with pytest.raises(error, match=said) as caught, open_run(path, settings, free=FREE, **kind):
        pass
    return str(caught.value)


def checkpoint(folder: RunFolder, updates: int, step: int | None) -> None:
    path = folder.checkpoints / f"checkpoint-{updates}"
    path.mkdir(parents=True)
    if step is not None:
        mark_complete(path, step)


def store_runs(folder: RunFolder, *names: str) -> None:
    store = RunStore(folder.runs)
    for name in names:
        store.create(name, {"questions": ["q"]}, {}, {})
    store.close()


def stored_runs(folder: RunFolder) -> set[str]:
    store = RunStore(folder.runs)
    found = {record.id for record in store.runs()}
    store.close()
    return found


def test_the_settings_and_the_origin_are_written_down(tmp_path: Path) -> None:
    with open_run(tmp_path / "a" / "b", SETTINGS, free=FREE) as folder:
        assert read_toml(folder.settings) == SETTINGS
        assert folder.find_newest() is None
    with open_run(folder.path, SETTINGS, free=FREE):
        lines = (folder.path / "provenance.jsonl").read_text().splitlines()
    assert len(lines) == 2, "one a session"
    assert json.loads(lines[0])["packages"]["trl"]


def begun(path: Path) -> None:
    """Makes a run with a checkpoint, the first session of which has ended."""
    with open_run(path, SETTINGS, free=FREE) as folder:
        checkpoint(folder, 2, 1)


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    begun(tmp_path)
    said = refuse(
        CheckpointMismatch,
        r"model.path was 'm', is 'x'.*another --out",
        tmp_path,
        changed("model", path="x"),
    )
    assert "optimizer" not in said
    assert read_toml(RunFolder(tmp_path).settings) == SETTINGS


def test_a_warm_start_and_a_training_are_told_apart(tmp_path: Path) -> None:
    begun(tmp_path)
    warm = {"traces": {"window": 9}, "model": {"path": "m"}}
    holds = "holds a training by reinforcement learning: use another --out"
    assert refuse(CheckpointMismatch, holds, tmp_path, warm).endswith("--out")
    with open_run(tmp_path / "warm", warm, free=FREE) as folder:
        checkpoint(folder, 2, 1)
    refuse(CheckpointMismatch, "warm' holds a warm start: use another --out", folder.path)


def test_a_folder_that_cannot_be_used_has_the_code_of_one() -> None:
    assert code_of(CheckpointMismatch("")) == 5


def test_a_run_can_be_checked_without_a_trace(tmp_path: Path) -> None:
    begun(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    check_run(tmp_path, SETTINGS, free=FREE)
    check_run(tmp_path / "new" / "run", SETTINGS, free=FREE)
    with pytest.raises(CheckpointMismatch, match=r"model.path was 'm', is 'x'"):
        check_run(tmp_path, changed("model", path="x"), free=FREE)
    with pytest.raises(StoreReadOnly, match=r"cannot write to the folder .*config.toml/run'"):
        check_run(tmp_path / "config.toml" / "run", SETTINGS, free=FREE)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_setting_that_comes_or_goes_is_another_setting(tmp_path: Path) -> None:
    begun(tmp_path)
    refuse(
        CheckpointMismatch, r"lora.rank was None, is 8", tmp_path, SETTINGS | {"lora": {"rank": 8}}
    )


def test_a_run_goes_on_with_a_version_that_has_more_settings(tmp_path: Path) -> None:
    begun(tmp_path)
    with open_run(tmp_path, changed("model", since_then=0), free=FREE) as folder:
        assert folder.find_newest() is not None


class Settings(BaseModel):
    """Settings with a default that isn't off."""

    summaries: int = 7
    weights: dict[str, float] = {}
    model: dict[str, str] = {}
    optimizer: dict[str, float] = {}
    evaluation: dict[str, list[int]] = {}


def test_settings_that_are_not_given_are_the_defaults(tmp_path: Path) -> None:
    begun(tmp_path)
    with open_run(tmp_path, SETTINGS | {"summaries": 7}, free=FREE, kind=Settings):
        pass
    refuse(
        CheckpointMismatch,
        r"summaries was 7, is 0",
        tmp_path,
        SETTINGS | {"summaries": 0},
        kind=Settings,
    )


def test_a_value_of_0_that_is_added_is_another_setting(tmp_path: Path) -> None:
    begun(tmp_path)
    refuse(
        CheckpointMismatch,
        r"weights.summary was None, is 0",
        tmp_path,
        SETTINGS | {"weights": {"summary": 0}},
        kind=Settings,
    )


class Stricter(Settings):
    """Settings of a version that refuses one that an earlier version took."""

    @model_validator(mode="after")
    def _refuse(self) -> Self:
        if "dropout" in self.model:
            raise ConfigError("leave it out")
        return self


def test_settings_that_are_refused_by_now_may_be_left_out(tmp_path: Path) -> None:
    earlier = changed("model", dropout="0.1")
    with open_run(tmp_path, earlier, free=FREE) as folder:
        pass
    with open_run(tmp_path, SETTINGS, free=FREE, kind=Stricter):
        assert read_toml(folder.settings) == SETTINGS
    folder.settings.write_text(tomli_w.dumps(earlier))
    checkpoint(folder, 2, 1)
    refuse(CheckpointMismatch, r"model.dropout was '0.1', is None", tmp_path, kind=Stricter)


@pytest.mark.parametrize("step", [None, 1])
def test_checkpoints_of_another_program_stay(tmp_path: Path, step: int | None) -> None:
    checkpoint(RunFolder(tmp_path), 500, step)
    refuse(CheckpointMismatch, r"has checkpoints, but no config\.toml", tmp_path)
    assert (tmp_path / "checkpoints" / "checkpoint-500").is_dir()


@pytest.mark.parametrize("name", ["config.toml", "prompts.toml", "data.json", "metrics.jsonl"])
def test_files_of_the_user_stay(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    refuse(ConfigError, rf"is not the folder of a run .*\({name}\): use another", tmp_path)
    assert (tmp_path / name).read_text() == "mine"


def test_a_run_that_ended_while_it_began_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("note_provenance", "replacing"):
        with monkeypatch.context() as patched:
            patched.setattr(f"memagent_train.runs.folder.{name}", None)
            with pytest.raises(TypeError), open_run(tmp_path, SETTINGS, free=FREE):
                pass
    with open_run(tmp_path, SETTINGS, free=FREE) as folder:
        assert read_toml(folder.settings) == SETTINGS


def test_before_the_first_checkpoint_a_wrong_setting_may_be_put_right(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS, free=FREE) as folder:
        folder.bind_data({"rows": 3})
        metrics.append(folder.metrics, 0, {"evaluation": {}})
    with open_run(tmp_path, changed("model", path="x"), free=FREE) as folder:
        assert read_toml(folder.settings)["model"] == {"path": "x"}
        assert not folder.metrics.exists()
        folder.bind_data({"rows": 4})
        folder.bind_data({"rows": 5})
    folder.settings.write_text("steps = ")
    with open_run(tmp_path, SETTINGS, free=FREE) as folder:
        assert read_toml(folder.settings) == SETTINGS


def test_other_data_are_refused_by_what_differs(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS, free=FREE) as folder:
        folder.bind_data({"rows": 3, "sources": ["a" * 500], "seed": 1})
        checkpoint(folder, 2, 1)
        folder.bind_data({"seed": 1, "sources": ["a" * 500], "rows": 3})
        with pytest.raises(CheckpointMismatch, match="or weights: rows was '3', is '4'") as caught:
            folder.bind_data({"rows": 4, "sources": ["a" * 500], "seed": 1})
        assert "seed" not in str(caught.value)
        with pytest.raises(CheckpointMismatch, match=r"see data\.json"):
            folder.bind_data({"rows": 3, "sources": ["a" * 499], "seed": 1})
        (folder.path / "data.json").write_text("{")
        with pytest.raises(CheckpointMismatch, match="damaged"):
            folder.bind_data({"rows": 3})


def test_changes_may_be_accepted_and_later_facts_are_added(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_run(tmp_path, SETTINGS, free=FREE) as folder:
        folder.bind_data({"rows": 3})
        checkpoint(folder, 2, 1)
        # A run of an earlier version says nothing of code.
        folder.bind_data({"rows": 3, "reward_code": "a"}, later=["reward_code"])
        with pytest.raises(CheckpointMismatch, match="reward_code was 'a', is 'b'"):
            folder.bind_data({"rows": 3, "reward_code": "b"}, later=["reward_code"])
        assert not caplog.records
        folder.bind_data({"rows": 3, "reward_code": "b"}, later=["reward_code"], accept=True)
        assert "reward_code was 'a', is 'b'" in caplog.text
        folder.bind_data({"rows": 3, "reward_code": "b"}, later=["reward_code"])
        assert folder.find_newest() is not None


MOVABLE: dict[str, Any] = {
    "model": {"path": "m", "chat_template": "t"},
    "data": {
        "source": [
            {"kind": "jsonl", "files": ["a"], "split": 1},
            {"kind": "hotpotqa", "files": ["h"]},
        ]
    },
}
RECORD: dict[str, Any] = {
    "weights": "1",
    "tokenizer": "2",
    "chat_template": "3",
    "sources": [{"kind": "jsonl", "digest": "4"}, {"kind": "hotpotqa", "digest": "5"}],
}


def moved(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with other paths."""
    first, second = settings["data"]["source"]
    sources = [first | {"files": ["elsewhere/a"]}, second]
    return {"model": {"path": "x", "chat_template": "y"}, "data": {"source": sources}}


def test_what_the_record_has_the_digest_of_may_be_elsewhere(tmp_path: Path) -> None:
    with open_run(tmp_path, MOVABLE, free=FREE) as folder:
        folder.bind_data(RECORD)
        checkpoint(folder, 2, 1)
    with open_run(tmp_path, moved(MOVABLE), free=FREE) as folder:
        assert folder.find_newest() is not None
        folder.bind_data(RECORD)
        with pytest.raises(CheckpointMismatch, match="weights was '1', is '9'"):
            folder.bind_data(RECORD | {"weights": "9"})
    other = moved(MOVABLE)
    other["data"]["source"][1] |= {"files": ["elsewhere/h"]}
    said = refuse(CheckpointMismatch, r"data\.source was .*'h'.*elsewhere/h", tmp_path, other)
    assert "model.path" not in said, "only what isn't bound is named"
    other = moved(MOVABLE)
    other["data"]["source"][0] |= {"split": 2}
    refuse(CheckpointMismatch, r"data\.source was .*'split': 1", tmp_path, other)


@pytest.mark.parametrize(
    ("fact", "key"),
    [
        ("weights", r"model\.path"),  # on a hub
        ("tokenizer", r"model\.path"),
        ("chat_template", r"model\.chat_template"),
        ("sources", r"data\.source"),
    ],
)
def test_what_the_record_has_no_digest_of_stays_where_it_is(
    tmp_path: Path, fact: str, key: str
) -> None:
    measured = MOVABLE | {"data": MOVABLE["data"] | {"length_tokenizer": "gpt2"}}
    with open_run(tmp_path, measured, free=FREE) as folder:
        folder.bind_data(RECORD | {fact: "", "length_tokenizer": "gpt2"})
        checkpoint(folder, 2, 1)
    now = moved(measured)
    now["data"]["length_tokenizer"] = "gpt2"
    refuse(CheckpointMismatch, f"{key} was ", tmp_path, now)


def test_a_tokenizer_that_measures_lengths_is_in_the_record_of_earlier_versions(
    tmp_path: Path,
) -> None:
    with open_run(tmp_path, changed("model", tokenizer="t"), free=FREE) as folder:
        folder.bind_data({"weights": "1", "length_tokenizer": "tokenizer.json:2"})
        checkpoint(folder, 2, 1)
    with open_run(tmp_path, changed("model", path="x", tokenizer="y"), free=FREE) as folder:
        assert folder.find_newest() is not None


def test_free_settings_may_change_and_are_written_anew(tmp_path: Path) -> None:
    begun(tmp_path)
    now = changed("optimizer", steps=9) | {"evaluation": {"lengths": [32], "n": 4}}
    with open_run(tmp_path, now, free=FREE) as folder:
        assert read_toml(folder.settings) == now


def test_fewer_steps_than_were_trained_are_refused(tmp_path: Path) -> None:
    """Else the newest checkpoint would be evaluated and recorded under the smaller number."""
    with open_run(tmp_path, SETTINGS, free=FREE) as folder:
        checkpoint(folder, 6, 3)
    refuse(
        ConfigError,
        r"optimizer\.steps = 2, but .* is trained for 3 steps",
        tmp_path,
        changed("optimizer", steps=2),
    )
    assert read_toml(RunFolder(tmp_path).settings) == SETTINGS


def test_a_second_process_is_told(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom memagent_train.runs.folder import open_run\n"
        "with open_run(Path(sys.argv[1]), {}, free=()):\n  print('in', flush=True)\n  sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with (
            pytest.raises(RunBusy, match=r"another process is writing to .* use another --out"),
            open_run(tmp_path, {}, free=()),
        ):
            pass
        other.kill()
    with open_run(tmp_path, {}, free=()):
        pass


def test_it_goes_back_to_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS, free=FREE) as folder:
        checkpoint(folder, 4, 2)
        checkpoint(folder, 6, None)
        for step in (1, 2, 3):
            metrics.append(folder.metrics, step, {})
            folder.rollouts.mkdir(exist_ok=True)
            (folder.rollouts / f"step-{step:05d}.parquet").touch()
        names = [rollout_id(group_id(step, 0), 0) for step in (2, 3)]
        names += [evaluation_id(step, 8, 0) for step in (0, 2)]
        store_runs(folder, *names, "mine")
    with open_run(tmp_path, SETTINGS, free=FREE) as folder:
        newest = folder.find_newest()
        assert newest is not None
        assert (newest.step, newest.updates) == (2, 4)
        assert [path.name for path in folder.checkpoints.iterdir()] == ["checkpoint-4"]
        assert [line["step"] for line in metrics.read(folder.metrics)] == [1, 2]
        assert len(list(folder.rollouts.iterdir())) == 2
        assert stored_runs(folder) == {names[0], names[2], "mine"}


def test_runs_of_a_complete_evaluation_stay(tmp_path: Path) -> None:
    last = evaluation_id(3, 8, 0)
    with open_run(tmp_path, SETTINGS, free=FREE) as folder:
        checkpoint(folder, 6, 3)
        store_runs(folder, last)
        metrics.append(folder.metrics, 3, {metrics.EVALUATION: {}})
    with open_run(tmp_path, SETTINGS, free=FREE) as folder:
        assert metrics.list_evaluated(folder.metrics) == {3}, "it is not repeated"
        assert stored_runs(folder) == {last}


def test_runs_of_an_evaluation_with_other_data_go(tmp_path: Path) -> None:
    with open_run(tmp_path, SETTINGS, free=FREE) as folder:
        folder.bind_data({"rows": 3})
        store_runs(folder, evaluation_id(0, 8, 0), "mine")
        metrics.append(folder.metrics, 0, {metrics.EVALUATION: {}})
    with open_run(tmp_path, SETTINGS, free=FREE) as folder:
        folder.bind_data({"rows": 4})
        assert not metrics.list_evaluated(folder.metrics), "it is repeated"
        assert stored_runs(folder) == {"mine"}


def test_damaged_settings_are_named(tmp_path: Path) -> None:
    begun(tmp_path)
    (tmp_path / "config.toml").write_text("steps = ")
    refuse(ConfigError, "is not TOML", tmp_path)


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refuse(StoreReadOnly, "cannot create the folder", tmp_path / "file" / "x")
