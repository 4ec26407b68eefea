"""A course of a few updates: what policies learn is the experiment's own matter."""

import json
import shutil
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent import MemoryAgent
from memagent.errors import ConfigError
from memagent.models.policy import Policy
from memagent_nano import direct, lessons, processes, sampling, stages
from memagent_nano.errors import StageFailed
from memagent_nano.measure import Cell, answers, measure
from memagent_nano.ship import ship
from memagent_nano.sizes import Size
from memagent_nano.stages import (
    GATE,
    GATED,
    LOG,
    MADE,
    ROLLOUTS,
    TRACES,
    Place,
    Stage,
    is_done,
    perform,
)
from memagent_train.runs import metrics
from memagent_train.runs.rollout_log import SCHEMA

FEW = ("batch.rows=4", "checkpoints.every=1", "optimizer.warmup_steps=0")
NEW = Stage("new", "new")
COPY = Stage("copy", "sft", "new", "copies", 2, FEW)
REWARDED = Stage(
    "rewarded",
    "grpo",
    "copy",
    steps=1,
    settings=("batch.groups=1", "batch.group_size=2", "batch.micro_batches=1", "evaluation.n=2"),
)
RIGHT = Stage("right", "sft", "copy", ROLLOUTS, 2, FEW)
DIRECT = Stage(
    direct.DIRECT, "sft", "copy", "direct", 2, (*FEW, f"traces.window={direct.WINDOW}"), 1536
)


@pytest.fixture
def place(tiny: Size, tmp_path: Path, in_process: list[str]) -> Place:
    """A course of which the first policy is there, and some lessons."""
    place = Place(tmp_path, tiny, 3)
    place.lessons.mkdir()
    lessons.write(lessons.copies(tiny, 40, 0), place.lessons / "copies.jsonl")
    lessons.write(direct.lessons(tiny, 8, 0), place.lessons / "direct.jsonl")
    perform(place, NEW)
    return place


def steps(place: Place, stage: Stage) -> list[int]:
    lines = metrics.read(place.run(stage.name) / "metrics.jsonl")
    return [line["step"] for line in lines if "loss" in line]


def weights(place: Place, stage: Stage) -> bytes:
    return (place.policy(stage.name) / "model.safetensors").read_bytes()


def test_a_policy_goes_through_imitation_and_rewards_and_is_measured(
    place: Place, in_process: list[str]
) -> None:
    assert not is_done(place, COPY)
    perform(place, COPY)
    perform(place, REWARDED)
    assert in_process == ["sft", "export", "grpo", "export"]
    assert steps(place, COPY) == [1, 2]
    assert weights(place, NEW) != weights(place, COPY)
    # So new a policy is never right, and nothing is learnt from that.
    assert weights(place, COPY) == weights(place, REWARDED)
    assert Policy.load(place.policy("rewarded")) is not None
    for stage in (NEW, COPY, REWARDED):
        assert is_done(place, stage)
        assert not (place.of(stage.name) / MADE).exists()
        perform(place, stage)
    assert len(in_process) == 4

    cell = Cell("once", 448, 2, "names")
    file = measure(place, "rewarded", cell)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["task"] for line in lines] == ["once", "once"]
    assert {line["length"] for line in lines} == {448}
    assert [line["error"] for line in lines] == ["", ""]
    assert {line["reward"] for line in lines} <= {0.0, 1.0}
    # Replies that no agent can use end a rollout early: so new a policy has them.
    assert all(line["conversations"] > 1 for line in lines)
    file.write_text("mine")
    assert measure(place, "rewarded", cell) == file
    assert file.read_text() == "mine"
    with pytest.raises(ConfigError, match="train it first"):
        measure(place, "shown", cell)


def test_a_stage_goes_on_where_it_was_stopped(
    place: Place, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    perform(place, COPY)
    whole = weights(place, COPY)
    again = Place(place.root / "again", place.size, place.seed)
    perform(again, NEW)
    place.lessons.rename(again.lessons)
    run = processes.python

    def stops(log: Path, module: str, *arguments: str) -> None:
        if arguments[0] == "export":
            raise StageFailed("stopped")
        run(log, module, *(a.replace("steps=2", "steps=1") for a in arguments))

    monkeypatch.setattr(processes, "python", stops)
    with pytest.raises(StageFailed, match="stopped"):
        perform(again, COPY)
    assert steps(again, COPY) == [1]
    assert not is_done(again, COPY)
    (again.of("copy") / MADE).mkdir()
    (again.of("copy") / MADE / "half").write_text("of an export")
    monkeypatch.setattr(processes, "python", run)
    perform(again, COPY)
    assert steps(again, COPY) == [1, 2]
    assert not (again.policy("copy") / "half").exists()
    kept = metrics.read(again.run("copy") / "metrics.jsonl")[0]
    assert kept["loss"] == metrics.read(place.run("copy") / "metrics.jsonl")[0]["loss"]
    assert len(weights(again, COPY)) == len(whole)


def test_right_rollouts_are_imitated(
    place: Place, in_process: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "DOCUMENTS", 4)
    monkeypatch.setattr(sampling, "GROUP", 2)
    perform(place, COPY)
    with pytest.raises(StageFailed):
        perform(place, RIGHT)  # so new a policy is never right
    logs = sorted((place.of("copy") / TRACES).glob("*.parquet"))
    assert len(logs) == 2
    rows = pq.read_table(logs[0]).to_pylist(maps_as_pydicts="strict")
    assert len({row["rollout_id"] for row in rows}) == 2
    for row in rows:
        row["reward"] = float(row["rollout_id"] == rows[0]["rollout_id"])
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), logs[0])
    before = [log.stat().st_mtime_ns for log in logs]
    perform(place, RIGHT)
    assert [log.stat().st_mtime_ns for log in logs] == before
    assert in_process[-4:] == ["sft", "sample-one", "sft", "export"]
    learnt = (place.of("right") / LOG).parent / "run" / "data.json"
    assert json.loads(learnt.read_text())["rows"] == sum(row["reward"] for row in rows)


def test_the_direct_policy_reads_all_at_once_when_it_is_measured(
    place: Place, in_process: list[str]
) -> None:
    perform(place, COPY)
    perform(place, DIRECT)
    config = json.loads((place.policy(direct.DIRECT) / "config.json").read_text())
    assert config["max_position_embeddings"] == direct.WINDOW
    for length in (448, 1792):
        file = measure(place, direct.DIRECT, Cell("once", length, 2))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert [line["conversations"] for line in lines] == [1, 1]
        assert [line["error"] for line in lines] == ["", ""]


def test_a_command_that_fails_says_why(tiny: Size, tmp_path: Path) -> None:
    place = Place(tmp_path, tiny, 0)
    with pytest.raises(StageFailed) as caught:
        perform(place, Stage("bad", "sft", "new", "copies", 2, ("batch.rowz=4",)))
    assert "`python -m memagent_train sft` failed with exit code 2" in str(caught.value)
    assert "rowz" in str(caught.value)
    assert str(place.log("bad")) in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert not is_done(place, COPY)


def test_lessons_of_a_stage_are_those_of_all_seeds(tiny: Size, tmp_path: Path) -> None:
    first, other = (stages.sft_settings(Place(tmp_path, tiny, seed), COPY) for seed in (0, 1))
    assert first == other
    assert list(islice(stages.grpo_settings(Place(tmp_path, tiny, 4)), 2))[1] == "data.seed=4"


def test_a_policy_is_shipped_with_all_that_it_reads_with(place: Place, tmp_path: Path) -> None:
    perform(place, COPY)
    out = tmp_path / "shipped"
    ship(place, "copy", out)
    policy = Policy.load(out)
    size = place.size
    assert policy is not None
    assert (policy.window, policy.chunk_tokens, policy.memory_tokens, policy.cuts, policy.gate) == (
        size.window, size.chunk_tokens, size.memory_tokens, "sentence", "off",
    )  # fmt: skip
    assert json.loads((out / "generation_config.json").read_text())["do_sample"] is False
    assert json.loads((out / "config.json").read_text())["dtype"] == "bfloat16"
    assert "cannot do" in (out / "README.md").read_text()
    with MemoryAgent(f"transformers:{out}", store=None) as agent:
        assert agent.settings.chunk_tokens == size.chunk_tokens
        assert agent.settings.sampling.temperature == 0
    with pytest.raises(ConfigError, match="shipped"):
        ship(place, "copy", out)
    (place.policy("copy") / "config.json").unlink()
    with pytest.raises(ConfigError, match="'copy' has left no policy"):
        ship(place, "copy", tmp_path / "other")


def test_a_policy_that_keeps_memories_in_a_word_is_shipped_so(
    place: Place, in_process: list[str], tmp_path: Path
) -> None:
    perform(place, replace(COPY, name=GATED))
    ship(place, GATED, tmp_path / "shipped")
    assert (policy := Policy.load(tmp_path / "shipped"))
    assert policy.gate == "update"


def test_what_was_measured_of_a_policy_goes_with_it(place: Place, in_process: list[str]) -> None:
    perform(place, COPY)
    cell, own = Cell("once", 448, 2), place.of("copy")
    measure(place, "copy", cell)
    (own / GATE).write_text("{}")
    shutil.rmtree(place.policy("copy"))
    perform(place, COPY)
    assert not (own / GATE).exists()
    assert not answers(place, "copy", cell).exists()
