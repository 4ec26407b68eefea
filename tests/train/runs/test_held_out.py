"""When held-out samples are answered, and by whom."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.train.runs.tiny import write_run

from memagent_train.config.train import TrainConfig, load_train
from memagent_train.runs import metrics
from memagent_train.runs.folder import RunFolder, open_run
from memagent_train.runs.processes import Process
from memagent_train.runs.training import Training


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("held-out"), evaluation={"as_they_are": True, "n": 3})


def session(config: TrainConfig, folder: RunFolder, process: Process) -> Training:
    return Training(config, folder, process=process)


@pytest.mark.parametrize(
    ("overrides", "due"),
    [
        ((), [0, 3]),
        (("evaluation.every=2",), [0, 2, 3]),
        (("evaluation.at_start=false", "evaluation.every=1"), [1, 2, 3]),
        (("evaluation.as_they_are=false",), []),
    ],
)
def test_it_is_due_as_the_settings_say(
    settings: Path, tmp_path: Path, overrides: Sequence[str], due: list[int]
) -> None:
    with open_run(tmp_path, {}, free=()) as folder:
        training = session(load_train(settings, overrides), folder, Process())
        try:
            assert [step for step in range(4) if training.held_out.is_due(step)] == due
        finally:
            training.close()


def test_a_step_is_evaluated_once_in_this_session_and_in_the_next(
    settings: Path, tmp_path: Path
) -> None:
    config = load_train(settings)
    with open_run(tmp_path, {}, free=()) as folder:
        training = session(config, folder, Process())
        try:
            found = training.held_out.evaluate(
                3, training.rolling, kept=False, watch=training.watch
            )
            assert not training.held_out.is_due(3)
        finally:
            training.close()
        (line,) = metrics.read(folder.metrics)
        assert line["step"] == 3
        assert line["evaluation"]["0"]["mean"] == found[0].mean
        assert training.watch.board.said.startswith("evaluated after step 3:  natural ")
        again = session(config, folder, Process())
        try:
            assert not again.held_out.is_due(3)
        finally:
            again.close()


def test_a_process_answers_its_part_and_only_the_first_notes_it(
    settings: Path, tmp_path: Path
) -> None:
    config = load_train(settings, ["resources.processes=2"])
    with open_run(tmp_path, {}, free=()) as folder:
        training = session(config, folder, Process(1, 2))
        try:
            found = training.held_out.evaluate(
                0, training.rolling, kept=False, watch=training.watch
            )
        finally:
            training.close()
        assert found[0].n == 1, "of three samples the second; alone there is nobody to gather from"
        assert not folder.metrics.exists()
