"""A whole training: what it leaves behind, and that whatever ends it early changes nothing in the end."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.train.launch import run_two, variables
from tests.train.runs.tiny import PROMPTS, write_model, write_run

from memagent.cli.show import show
from memagent.errors import ConfigError, RunBusy
from memagent_train.config.train import dump_config, load_train
from memagent_train.errors import CheckpointMismatch, RewardFailed
from memagent_train.runs import metrics
from memagent_train.runs.checkpoints import list_checkpoints
from memagent_train.runs.export import export
from memagent_train.runs.folder import RunFolder, open_run
from memagent_train.runs.grpo import TrainingResult, train
from memagent_train.runs.rollout_log import read_rollouts
from memagent_train.runs.target import run_target
from memagent_train.smoke.tokenizer import word_tokenizer

STEPS = 3


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three steps of two updates, with held-out samples before, between and after."""
    return write_run(
        tmp_path_factory.mktemp("grpo"), evaluation={"as_they_are": True, "n": 3, "every": 2}
    )


@pytest.fixture(scope="module")
def whole(settings: Path) -> TrainingResult:
    """A training that nothing interrupts."""
    return train(load_train(settings), settings.parent / "whole")


def command(settings: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "memagent_train", "grpo", str(settings), "--out", str(out)]


def run(settings: Path, out: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(settings, out),
        env=variables(**environment),
        capture_output=True,
        text=True,
        check=False,
    )


def rolled_out(out: Path) -> list[dict[str, Any]]:
    """What was rolled out, without what differs from session to session: log-probabilities in their last digits,
    because rollouts meet in other batches."""
    rows = list(read_rollouts(RunFolder(out).rollouts))
    varying = ("seconds", "logprobs")
    return [{name: one for name, one in row.items() if name not in varying} for row in rows]


def test_it_leaves_a_line_a_step_and_an_evaluation(whole: TrainingResult) -> None:
    lines = metrics.read(RunFolder(whole.out).metrics)
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3]
    assert [line["step"] for line in lines if "evaluation" in line] == [0, 2, 3]
    step = next(line for line in lines if "loss" in line)
    assert step["engine/calls"] == step["rows"] >= 20
    assert 0 <= step["engine/idle_share"] <= 1
    assert list(whole.evaluations) == [0, 2, 3]
    assert whole.evaluations[0]["0"]["n"] == 3
    assert whole.reward is not None


def test_it_leaves_the_rollouts_of_every_step(whole: TrainingResult) -> None:
    rows = rolled_out(whole.out)
    assert {row["step"] for row in rows} == {1, 2, 3}
    assert len({row["rollout_id"] for row in rows}) == STEPS * 2 * 2
    assert len({(row["rollout_id"], row["traj_idx"]) for row in rows}) == len(rows)
    groups = {row["group_id"] for row in rows if row["step"] == 1}
    for group in groups:
        advantages = {
            row["rollout_id"]: row["advantage"] for row in rows if row["group_id"] == group
        }
        assert sum(advantages.values()) == pytest.approx(0)
    assert all(row["kind"] == "answer" for row in rows if row["is_final"])


def test_it_leaves_the_newest_checkpoints_whole(whole: TrainingResult) -> None:
    folder = RunFolder(whole.out)
    assert [(one.step, one.updates) for one in list_checkpoints(folder.checkpoints)] == [
        (2, 4),
        (3, 6),
    ]
    assert len(list(folder.checkpoints.iterdir())) == 2, "no card of TRL's"


def test_memagent_show_opens_a_rollout(
    whole: TrainingResult, capsys: pytest.CaptureFixture[str]
) -> None:
    row = next(row for row in rolled_out(whole.out) if row["answer"])
    show(row["rollout_id"], store=RunFolder(whole.out).runs)
    shown = capsys.readouterr().out
    assert f"answer: {row['answer']}" in shown
    assert "read        4 chunks" in shown
    assert not list(RunFolder(whole.out).runs.with_name("runs.sqlite.locks").iterdir())


def test_the_same_command_again_does_nothing_more(settings: Path, whole: TrainingResult) -> None:
    before = RunFolder(whole.out).metrics.read_bytes()
    assert train(load_train(settings), whole.out) == whole
    assert RunFolder(whole.out).metrics.read_bytes() == before


def test_changed_code_and_weights_are_refused(
    settings: Path,
    whole: TrainingResult,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As a flipped sign of the reward: the settings name the function, and don't see what it does."""
    monkeypatch.chdir(tmp_path)
    text = "def reward(answer, sample):\n    return {} * len(answer or '')\n"
    (tmp_path / "own_reward.py").write_text(text.format(1))
    file = write_run(tmp_path / "run", reward={"use": "own_reward:reward"})
    options = ["optimizer.steps=1"]
    train(load_train(file, options), tmp_path / "out")
    (tmp_path / "own_reward.py").write_text(text.format(-1))
    sys.modules.pop("own_reward")
    more = ["optimizer.steps=2"]
    with pytest.raises(CheckpointMismatch, match="reward_code was"):
        train(load_train(file, more), tmp_path / "out")
    write_model(file.parent / "model", seed=1)
    with pytest.raises(CheckpointMismatch, match="weights was"):
        train(load_train(file, more), tmp_path / "out")
    accepted = [*more, "checkpoints.accept_changes=true"]
    assert train(load_train(file, accepted), tmp_path / "out").steps == 2
    assert "the run continues with other data, code or weights" in caplog.text


@pytest.mark.parametrize("sections", [{}, {"lora": {"rank": 4, "alpha": 8}}], ids=["all", "lora"])
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of peft's
def test_a_folder_that_was_moved_goes_on(tmp_path: Path, sections: dict[str, Any]) -> None:
    """With its run, model, prompts and template; but not with another model at the new place."""
    (old := tmp_path / "old").mkdir()
    file = write_run(
        old, agent={"prompts": "mine.toml"}, model={"chat_template": "mine.jinja"}, **sections
    )
    (old / "mine.toml").write_text(PROMPTS.read_text())
    (old / "mine.jinja").write_text(str(word_tokenizer().chat_template))
    train(load_train(file, ["optimizer.steps=1"]), old / "run")
    new = old.rename(tmp_path / "new")
    config = load_train(new / file.name, ["optimizer.steps=2"])
    write_model(new / "model", seed=1)
    with pytest.raises(CheckpointMismatch, match=r"other data, code or weights: weights was"):
        train(config, new / "run")
    write_model(new / "model")
    assert train(config, new / "run").steps == 2
    assert run_target(new / "run").model.path == str(new / "model")
    shutil.rmtree(new / "model")
    if sections:
        with pytest.raises(ConfigError, match=r"model\.path = '.*new/model' cannot be loaded"):
            export(new / "run", tmp_path / "out")
    else:
        assert export(new / "run", tmp_path / "out").step == 2
        assert "Trained from model in 2 steps" in (tmp_path / "out" / "README.md").read_text()


def test_more_steps_go_on_from_the_last(
    settings: Path, whole: TrainingResult, tmp_path: Path
) -> None:
    out = tmp_path / "more"
    shutil.copytree(whole.out, out)
    longer = train(load_train(settings, ["optimizer.steps=4"]), out)
    assert list(longer.evaluations) == [0, 2, 3, 4]
    again = [row for row in rolled_out(out) if row["step"] <= STEPS]
    assert again == rolled_out(whole.out)
    assert len(rolled_out(out)) > len(again)


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("reward:9", [1]),  # 3 held-out samples, 4 rollouts of step 1, and in the midst of step 2
        ("checkpoint:2", [1]),
    ],
)
def test_after_kill_9_it_goes_on_with_the_next_batch(
    where: str, left: list[int], settings: Path, whole: TrainingResult, tmp_path: Path
) -> None:
    out = tmp_path / "killed"
    killed = run(settings, out, KILL=where)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [one.step for one in list_checkpoints(RunFolder(out).checkpoints)] == left
    assert train(load_train(settings), out).evaluations == whole.evaluations
    assert rolled_out(out) == rolled_out(whole.out)
    lines, expected = (metrics.read(RunFolder(one).metrics) for one in (out, whole.out))
    for line, other in zip(lines, expected, strict=True):
        assert line["step"] == other["step"]
        assert line.get("loss", 0) == pytest.approx(other.get("loss", 0), abs=1e-5)


def test_more_micro_batches_change_nothing_but_memory(
    settings: Path, whole: TrainingResult, tmp_path: Path
) -> None:
    out = tmp_path / "smaller"
    train(load_train(settings, ["optimizer.steps=2"]), out)
    train(load_train(settings, ["batch.micro_batches=4"]), out)
    assert rolled_out(out) == rolled_out(whole.out)


def test_two_processes_share_a_training(settings: Path, tmp_path: Path) -> None:
    out = tmp_path / "two"
    more = ("--set", "resources.processes=2", "--set", "optimizer.steps=1")
    said = run_two(*command(settings, out)[1:], *more)
    lines = metrics.read(RunFolder(out).metrics)
    assert [line["evaluation"]["0"]["n"] for line in lines if "evaluation" in line] == [3, 3]
    assert said.count("trained  1 steps") == 1
    rows = rolled_out(out)
    assert {path.name for path in RunFolder(out).rollouts.iterdir()} == {
        "step-00001.parquet",
        "step-00001-part1.parquet",
    }
    assert len({row["group_id"] for row in rows}) == 4
    step = next(line for line in lines if "loss" in line)
    assert step["rows"] == len(rows)


def test_a_signal_ends_it_at_once_and_says_how_to_go_on(settings: Path, tmp_path: Path) -> None:
    out = tmp_path / "stopped"
    with subprocess.Popen(
        command(settings, out),
        env=variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        while not running.stdout.readline().startswith("1/3"):
            assert running.poll() is None, running.stderr.read()
        with pytest.raises(RunBusy), open_run(out, {}, free=()):
            pass
        running.send_signal(signal.SIGTERM)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGTERM
    assert f"memagent-train grpo {settings} --out {out}" in errors
    assert len(errors.splitlines()) == 1
    with open_run(out, dump_config(load_train(settings)), free=()):
        pass


def test_other_settings_and_other_data_are_refused(settings: Path, whole: TrainingResult) -> None:
    with pytest.raises(CheckpointMismatch, match=r"optimizer.learning_rate was 0.001, is 0.1"):
        train(load_train(settings, ["optimizer.learning_rate=0.1"]), whole.out)
    with pytest.raises(CheckpointMismatch, match=r"or weights: .*3.*4"):
        train(load_train(settings, ["evaluation.n=4"]), whole.out)


def test_a_reward_that_never_scores_stops_it(settings: Path, tmp_path: Path) -> None:
    config = load_train(
        settings, ["reward.use=tests.train.runs.tiny:broken", "evaluation.at_start=false"]
    )
    with pytest.raises(RewardFailed, match="boom"):
        train(config, tmp_path / "out")
    assert RunFolder(tmp_path / "out").find_newest() is None


def test_a_full_disk_leaves_the_last_checkpoint_whole(
    settings: Path, whole: TrainingResult, tmp_path: Path
) -> None:
    out = tmp_path / "full"
    full = run(settings, out, FULL="2")
    assert full.returncode == 1
    assert "disk is full" in full.stderr
    assert f"resume with: memagent-train grpo {settings}" in full.stderr
    assert [one.step for one in list_checkpoints(RunFolder(out).checkpoints)] == [1]
    train(load_train(settings), out)
    assert rolled_out(out) == rolled_out(whole.out)


def test_a_missing_package_is_told_before_anything_is_begun(settings: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pip install trackio"):
        train(load_train(settings, ["logging.trackio=true"]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(find_spec("deepspeed") is not None, reason="it is installed")
def test_deepspeed_is_asked_for_by_name(settings: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pip install deepspeed"):
        train(load_train(settings, ["resources.sharding=zero2"]), tmp_path / "out")


def test_evaluations_of_nothing_are_refused(settings: Path, tmp_path: Path) -> None:
    nothing = ["evaluation.as_they_are=false", "evaluation.every=1"]
    with pytest.raises(ConfigError, match=r"every = 1 has nothing to evaluate"):
        train(load_train(settings, nothing), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("sharding", "launcher"),
    [
        ("fsdp", {}),
        ("none", {"ACCELERATE_USE_FSDP": "true"}),
        ("none", {"ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}),
    ],
)
def test_weights_that_are_divided_cannot_generate(
    settings: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sharding: str,
    launcher: dict[str, str],
) -> None:
    """Whoever divides them: the launcher's settings count too."""
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"set rollout.engine to 'vllm'"):
        train(load_train(settings, [f"resources.sharding={sharding}"]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_update_of_padding_has_no_entropy(tmp_path: Path) -> None:
    """Half of these updates have none of the 20 rows; as zeros they would halve the mean."""
    batch = {"updates": 40, "micro_batches": 1}
    file = write_run(tmp_path, batch=batch, optimizer={"steps": 1, "learning_rate": 1e-9})
    (line,) = metrics.read(RunFolder(train(load_train(file), tmp_path / "run").out).metrics)
    assert line["rows"] == 20
    assert line["entropy"] == pytest.approx(4.02, abs=0.02)
