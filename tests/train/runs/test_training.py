"""What happens between the parts of a session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.train.runs.tiny import PROMPTS, write_model, write_run

from memagent.errors import ConfigError
from memagent.runstore import RunStore
from memagent_train.config.train import TrainConfig, dump_config, load_train
from memagent_train.errors import CheckpointMismatch
from memagent_train.rollouts import Rollout, Status
from memagent_train.runs.checkpoints import mark_complete
from memagent_train.runs.folder import RunFolder, open_run
from memagent_train.runs.identity import digest_code, identify
from memagent_train.runs.processes import Process
from memagent_train.runs.progress import Board, SilentWatcher
from memagent_train.runs.training import Training
from memagent_train.smoke.task import Relay
from memagent_train.smoke.tokenizer import word_tokenizer

ALONE = Process()


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("training"))


def load(settings: Path, *overrides: str) -> TrainConfig:
    return load_train(settings, overrides)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    with open_run(tmp_path, {}, free=()) as opened:
        yield opened


def session(config: TrainConfig, folder: RunFolder, process: Process = ALONE) -> Training:
    return Training(config, folder, process=process)


class Watched(SilentWatcher):
    """Counts what it is told."""

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self.expected: list[int] = []
        self.ended = 0

    def begin_rolling(self, expected: int) -> None:
        self.expected.append(expected)

    def note_rollout(self) -> None:
        self.ended += 1


def test_groups_stand_side_by_side_with_names_and_seeds_of_their_own(
    settings: Path, folder: RunFolder
) -> None:
    with closing(session(load(settings), folder)) as training:
        training.watch = watch = Watched(Board(3))
        rollouts = training.generate([4, 7], 2)
        again = training.generate([5], 2)
    assert [one.rollout_id for one in (*rollouts, *again)] == [
        f"step-00001-group-000{group}-rollout-0{place}" for group in range(3) for place in range(2)
    ]
    assert len({one.group_id for one in rollouts}) == 2
    assert rollouts[0].sample == rollouts[1].sample != rollouts[2].sample
    assert rollouts[0].rows != rollouts[1].rows
    assert all(one.status is Status.SCORED for one in rollouts)
    assert (watch.expected, watch.ended) == ([4, 2], 6)


def test_no_sample_of_few_comes_twice_in_a_step(settings: Path, folder: RunFolder) -> None:
    source = '{kind="task", use="memagent_train.smoke.task:Relay", count=3}'
    config = load(settings, f"data.source=[{source}]", "batch.groups=8")
    with closing(session(config, folder)) as training:
        drawn = training.generate(training.trainer.order.batch(0), 2)
        again = training.generate(training.trainer.order.draw_further(0), 2)
    samples = [one.sample.index for one in (*drawn, *again)][::2]
    assert len(set(samples)) == 8 + 3


def test_groups_that_replace_others_take_rows_that_the_step_lacks(
    settings: Path, folder: RunFolder, tmp_path: Path
) -> None:
    task, file = Relay(seed=5), tmp_path / "rows.jsonl"
    samples = [task.sample(index) for index in range(8)]
    rows = [{"document": s.context, "question": s.question, "answers": "sun"} for s in samples]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = f'{{kind="jsonl", files=["{file}"]}}'
    config = load(settings, f"data.source=[{source}]", "batch.groups=4")
    with closing(session(config, folder)) as training:
        order = training.trainer.order
        drawn = training.generate(order.batch(0), 2)
        again = training.generate(order.draw_further(0)[:4], 2)
    assert len({one.sample.index for one in (*drawn, *again)}) == 8


def test_processes_take_turns_at_names_of_groups(settings: Path, folder: RunFolder) -> None:
    config = load(settings, "resources.processes=2")
    with closing(session(config, folder, Process(1, 2))) as training:
        groups = {one.group_id for one in training.generate([0, 1], 2)}
    assert groups == {"step-00001-group-0001", "step-00001-group-0003"}
    assert not (folder.path / "data.json").exists(), "the first process writes it"


def test_runs_and_rollouts_are_kept_of_every_nth_step(settings: Path, tmp_path: Path) -> None:
    config = load(
        settings, "logging.runs=2", "logging.rollouts=3", "optimizer.steps=3", "checkpoints.every=3"
    )
    with (
        open_run(tmp_path, dump_config(config), free=()) as folder,
        closing(session(config, folder)) as training,
    ):
        training.run()
    assert [path.name for path in folder.rollouts.iterdir()] == ["step-00003.parquet"]
    store = RunStore(folder.runs)
    assert {record.id[:10] for record in store.runs()} == {"step-00002"}
    store.close()


def test_without_runs_there_is_no_store(settings: Path, folder: RunFolder) -> None:
    with closing(session(load(settings, "logging.runs=0"), folder)) as training:
        training.generate([0], 2)
    assert not folder.runs.exists()


def test_held_out_samples_are_not_trained_on(settings: Path, folder: RunFolder) -> None:
    config = load(settings, "evaluation.as_they_are=true", "evaluation.n=5")
    with closing(session(config, folder)) as training:
        trained = {training.data.sample(index).index for index in range(len(training.data))}
        held = {training.held_out.data[0].sample(index).index for index in range(5)}
    assert (len(trained), len(held)) == (15, 5)
    assert not trained & held


def test_the_wording_is_kept_with_the_run_and_may_not_change(
    settings: Path, folder: RunFolder, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(PROMPTS.read_text())
    config = load(settings, f"agent.prompts={mine}")
    session(config, folder).close()
    assert folder.prompts.read_text() == PROMPTS.read_text()
    mine.write_text(PROMPTS.read_text().replace(" write", ""))
    path = folder.checkpoints / "checkpoint-2"
    path.mkdir()
    mark_complete(path, 1)
    with pytest.raises(CheckpointMismatch, match="prompts was 'relay:"):
        session(config, folder)
    assert folder.prompts.read_text() == PROMPTS.read_text()


def test_other_code_of_own_data_and_another_template_are_refused(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, template = tmp_path / "own_data.py", tmp_path / "own.jinja"
    code.write_text("from memagent_train.smoke.task import Relay\n")
    template.write_text("{% for one in messages %}{{ one.content }} {% endfor %}")
    own = {"kind": "task", "use": "own_data:Relay", "count": 20}
    file = write_run(
        tmp_path / "run", data={"source": [own]}, model={"chat_template": str(template)}
    )
    config = load(file)
    session(config, folder).close()
    mark_complete(write_model(folder.checkpoints / "checkpoint-2"), 1)
    code.write_text(f"{code.read_text()}# Other answers\n")
    with pytest.raises(CheckpointMismatch, match=r"weights: data_code was '\w+', is '\w+'\."):
        session(config, folder)
    template.write_text(f"{template.read_text()} now:")
    with pytest.raises(CheckpointMismatch, match=r"chat_template was '.*; data_code was"):
        session(config, folder)


def test_own_games_are_own_code(tmp_path: Path) -> None:
    games = {"kind": "game", "games": ["deck", "memagent_train.smoke.task:Relay"]}
    file = write_run(
        tmp_path, data={"source": [games]}, agent={"use": "tools"}, reward={"use": None}
    )
    found = identify(load(file), word_tokenizer())
    assert found["data_code"] == digest_code("memagent_train.smoke.task:Relay", "game") != ""


@pytest.mark.parametrize("trained", [False, True])
def test_a_changed_wording_is_kept_too(
    settings: Path, folder: RunFolder, tmp_path: Path, *, trained: bool
) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(PROMPTS.read_text())
    config = load(settings, f"agent.prompts={mine}", "checkpoints.accept_changes=true")
    session(config, folder).close()
    if trained:
        path = folder.checkpoints / "checkpoint-2"
        write_model(path)
        mark_complete(path, 1)
    mine.write_text(PROMPTS.read_text().replace(" write", ""))
    session(config, folder).close()
    assert folder.prompts.read_text() == mine.read_text()


def test_a_missing_prompt_of_the_judge_is_named(settings: Path, folder: RunFolder) -> None:
    config = load(settings, "reward.use=judge", "reward.judge.prompt=nowhere.toml")
    with pytest.raises(ConfigError, match=r"no judge's prompt '.*nowhere\.toml': .*\(No such"):
        session(config, folder)


def test_a_failed_rollout_has_no_advantage_in_the_log(settings: Path, folder: RunFolder) -> None:
    with closing(session(load(settings), folder)) as training:
        rollouts = training.generate([0], 2)
        failed = Rollout("g", "failed", rollouts[0].sample, (), None, Status.FAILED, error="boom")
        training.log_rollouts(1, [*rollouts, failed], [0.5, -0.5, None])
    from memagent_train.runs.rollout_log import read_rollouts

    logged: dict[str, Any] = {
        row["rollout_id"]: row["advantage"] for row in read_rollouts(folder.rollouts)
    }
    assert list(logged.values()) == [0.5, -0.5, None]
