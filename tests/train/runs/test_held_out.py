"""When held-out samples are answered, and by whom."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from tests.train.runs.tiny import write_run

from memagent_train.config.train import load_train
from memagent_train.errors import RewardFailed
from memagent_train.runs import metrics
from memagent_train.runs.folder import open_run
from memagent_train.runs.processes import Process
from memagent_train.runs.training import Training


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("held-out"), evaluation={"as_they_are": True, "n": 3})


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
        config = load_train(settings, overrides)
        with closing(Training(config, folder, process=Process())) as training:
            assert [step for step in range(4) if training.held_out.is_due(step)] == due


def test_a_step_is_evaluated_once_in_this_session_and_in_the_next(
    settings: Path, tmp_path: Path
) -> None:
    config = load_train(settings)
    with open_run(tmp_path, {}, free=()) as folder:
        with closing(Training(config, folder, process=Process())) as training:
            found = training.held_out.evaluate(
                3, training.rolling, kept=False, watch=training.watch
            )
            assert not training.held_out.is_due(3)
        (line,) = metrics.read(folder.metrics)
        assert line["step"] == 3
        assert line["evaluation"]["0"]["mean"] == found["0"]["mean"]
        assert training.watch.board.said.startswith("evaluated after step 3:  natural ")
        with closing(Training(config, folder, process=Process())) as again:
            assert not again.held_out.is_due(3)


def test_a_process_answers_its_part_and_only_the_first_notes_it(
    settings: Path, tmp_path: Path
) -> None:
    config = load_train(settings, ["resources.processes=2"])
    with open_run(tmp_path, {}, free=()) as folder:
        with closing(Training(config, folder, process=Process(1, 2))) as training:
            found = training.held_out.evaluate(
                0, training.rolling, kept=False, watch=training.watch
            )
        assert found["0"]["n"] == 1, (
            "of three samples the second; alone there is nobody to gather from"
        )
        assert not folder.metrics.exists()


def test_an_evaluation_without_any_reward_measures_nothing(settings: Path, tmp_path: Path) -> None:
    config = load_train(settings, ["reward.use=tests.train.runs.tiny:broken"])
    with open_run(tmp_path, {}, free=()) as folder:
        with closing(Training(config, folder, process=Process())) as training:
            with pytest.raises(RewardFailed, match=r"none of the 3 .* of this evaluation .*boom"):
                training.held_out.evaluate(0, training.rolling, kept=False, watch=training.watch)
            assert training.held_out.is_due(0)
        assert not folder.metrics.exists()
