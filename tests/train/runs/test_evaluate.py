"""A policy on held-out samples, outside of its training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.train.runs.test_rollout_log import SAMPLE
from tests.train.runs.tiny import write_run

from memagent_train.config.sections import ModelSettings
from memagent_train.config.sft import RolloutSource, TraceSettings
from memagent_train.config.train import TrainConfig, load_train
from memagent_train.data.settings import DataSettings
from memagent_train.errors import RolloutsFailed
from memagent_train.rollout.template import Template
from memagent_train.rollouts import Rollout, Status
from memagent_train.runs.evaluate import _warn_of_seen, cells, evaluate
from memagent_train.runs.folder import RunFolder
from memagent_train.runs.grpo import TrainingResult, train
from memagent_train.runs.policy import load_tokenizer
from memagent_train.runs.target import Target, run_target
from memagent_train.runs.traces import read_traces


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    file = write_run(
        tmp_path_factory.mktemp("evaluate"),
        optimizer={"steps": 1},
        evaluation={"as_they_are": True, "n": 3},
    )
    return load_train(file)


@pytest.fixture(scope="module")
def trained(config: TrainConfig) -> TrainingResult:
    return train(config, Path(config.model.path).parent / "run")


def test_a_checkpoint_does_as_well_as_its_training_said(
    config: TrainConfig, trained: TrainingResult, tmp_path: Path
) -> None:
    out = tmp_path / "results.jsonl"
    seen: list[Rollout] = []
    found = evaluate(
        run_target(trained.out), config, lengths=[0], n=3, out=out, on_done=seen.append
    )
    (cell,) = found
    assert (cell.task, cell.length, cell.estimate.n) == ("relay", 0, 3)
    assert cell.estimate.mean == pytest.approx(trained.evaluations[1]["0"]["mean"])
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(lines) == len(seen) == 3
    assert sum(line["reward"] for line in lines) / 3 == pytest.approx(cell.estimate.mean)
    assert lines[0]["step"] == 1
    assert lines[0]["conversations"] >= 5
    assert lines[0]["scores"].keys() == {"words"}


def test_its_conversations_can_be_imitated(
    config: TrainConfig, trained: TrainingResult, tmp_path: Path
) -> None:
    out = tmp_path / "rollouts.parquet"
    seen: list[Rollout] = []
    evaluate(run_target(trained.out), config, lengths=[0], n=3, out=out, on_done=seen.append)
    tokenizer = load_tokenizer(config.model)
    for least in (0.0, max(one.reward or 0.0 for one in seen)):
        source = RolloutSource(kind="rollouts", path=out, min_reward=least)
        settings = TraceSettings(source=(source,), window=10_000)
        right = [one for one in seen if one.reward is not None and one.reward >= least]
        conversations = sum(len(one.rows) for one in right)
        if conversations:
            found = read_traces(settings, Template(tokenizer), tokenizer.eos_token_id)
            assert len(found.rows) == conversations
    assert conversations < sum(len(one.rows) for one in seen)


def test_a_model_that_no_run_made(config: TrainConfig, trained: TrainingResult) -> None:
    (cell,) = evaluate(Target(config.model), config, lengths=[0], n=3)
    assert cell.estimate.mean == pytest.approx(trained.evaluations[0]["0"]["mean"])


def test_at_a_length_sources_that_vary_theirs_are_answered(
    config: TrainConfig, tmp_path: Path
) -> None:
    """Of three samples one is a row, whose document has the length that it has."""
    row = {"document": "sun", "question": "number", "answers": "rain"}
    rows = [json.dumps(row | {"question": "number " * n}) + "\n" for n in (1, 2)]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    source = [
        {"kind": "jsonl", "files": [str(tmp_path / "rows.jsonl")], "weight": 1},
        {
            "kind": "task",
            "use": "memagent_train.smoke.task:Relay",
            "lengths": [160],
            "count": 20,
            "weight": 2,
        },
    ]
    data = DataSettings.model_validate({"source": source})
    seen: list[Any] = []
    (cell,) = evaluate(
        Target(config.model),
        config.model_copy(update={"data": data}),
        lengths=[160],
        n=3,
        on_begin=seen.append,
        on_done=seen.append,
    )
    assert (cell.task, cell.estimate.n) == ("relay", 2)
    assert (seen[0], len(seen[1:])) == (2, 2)


def test_tasks_have_a_line_each_and_one_for_all() -> None:
    def scored(task: str, reward: float) -> Rollout:
        sample = SAMPLE.model_copy(update={"task": task})
        return Rollout("g", "r", sample, (), "a", Status.SCORED, reward=reward)

    found = cells({8192: [scored("a", 1.0), scored("b", 0.0), scored("b", 0.0)]})
    means = [(cell.task, cell.length, cell.estimate.mean) for cell in found]
    assert means == [("a", 8192, 1.0), ("b", 8192, 0.0), ("all", 8192, 0.5)]


def test_other_data_than_the_runs_is_cautioned_of(
    config: TrainConfig,
    trained: TrainingResult,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One row more, or another seed, and the split holds out samples that were trained on."""
    target = run_target(trained.out)
    evaluate(target, config, lengths=[0], n=3)
    assert not caplog.text
    (source,) = config.data.source
    grown = config.data.model_copy(update={"source": (source.model_copy(update={"count": 21}),)})
    for data in (grown, config.data.model_copy(update={"seed": 7})):
        caplog.clear()
        evaluate(target, config.model_copy(update={"data": data}), lengths=[0], n=3)
        assert "isn't the data that the run was trained with" in caplog.text


@pytest.mark.parametrize(("n", "sources", "said"), [(2, 1, ""), (3, 2, ""), (2, 2, "held out 3")])
def test_fewer_samples_of_several_sources_may_be_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, n: int, sources: int, said: str
) -> None:
    """With weights 3:3:1, 11 samples are 5, 5 and 1, and 10 are 4, 4 and 2."""
    facts = {"sources": [{"kind": "jsonl"}] * sources, "seed": 0, "part": "all but 3"}
    folder = RunFolder(tmp_path)
    folder.bind_data(facts)
    _warn_of_seen(Target(ModelSettings(path=str(folder.checkpoints / "x"))), facts, n)
    assert said in caplog.text
    assert bool(said) == bool(caplog.text)


def test_generated_samples_that_the_run_has_not_seen_need_no_caution(
    config: TrainConfig, trained: TrainingResult, caplog: pytest.LogCaptureFixture
) -> None:
    source = [{"kind": "tracking", "tasks": ["ledger"], "lengths": [1024], "count": 4}]
    data = DataSettings.model_validate({"source": source})
    config = config.model_copy(update={"data": data})
    with pytest.raises(RolloutsFailed, match="QuestionTooLong"):  # for so small a window
        evaluate(run_target(trained.out), config, lengths=[1024], n=1)
    assert not caplog.text
