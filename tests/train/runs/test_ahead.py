"""Rollouts made one step ahead: whose weights they come from, and what an interruption leaves."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from tests.train.runs.sampling_server import SamplingServer, sampling_server
from tests.train.runs.tiny import write_run

from memagent.errors import ConfigError, RequestRefused
from memagent.tasks import Sample
from memagent_train.config.train import FREE, TrainConfig, dump_config, load_train
from memagent_train.rollouts import Rollout
from memagent_train.runs.ahead import Ahead
from memagent_train.runs.checkpoints import mark_complete
from memagent_train.runs.folder import open_run
from memagent_train.runs.grpo import train
from memagent_train.runs.rolling import Rolling
from memagent_train.runs.training import Training
from memagent_train.trainer import RolloutTrainer

STEPS = 3


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    return write_run(tmp_path / "settings", optimizer={"steps": STEPS, "learning_rate": 3e-4})


@pytest.fixture
def server(settings: Path) -> Iterator[tuple[SamplingServer, str]]:
    with sampling_server(settings.parent / "model") as started:
        yield started


def overrides(url: str, *more: str) -> list[str]:
    return ["rollout.engine=vllm", f"rollout.base_url={url}", *more]


def figures(out: Path) -> list[dict[str, Any]]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if "reward" in row]


def drawn_with(server: SamplingServer) -> list[int]:
    """The versions of the weights, one for each run of replies between two loads."""
    return [version for version, _ in groupby(one for one in server.history if one != "load")]  # pyright: ignore[reportReturnType]


async def seldom(answer: str | None, sample: Sample) -> float:
    """Nothing for three of four samples, so that their groups are replaced."""
    return 0.0 if sample.index % 4 else float(len(answer or ""))


def test_each_step_but_the_first_two_trains_on_weights_that_are_one_step_older(
    settings: Path, server: tuple[SamplingServer, str], tmp_path: Path
) -> None:
    sampler, url = server
    train(load_train(settings, overrides(url, "rollout.ahead=true")), tmp_path / "out")
    rows = figures(tmp_path / "out")
    assert [row["rollouts/steps_behind"] for row in rows] == [0, 1, 1]
    assert all(row["rollouts/waited_s"] >= 0 for row in rows)
    # Steps 1 and 2 are drawn with the first weights sent, step 3 with those after step 1.
    assert drawn_with(sampler) == [1, 2]
    assert sampler.disturbed == 0
    gaps = [row["logprob_gap/mean"] for row in rows]
    assert gaps[0] < 1e-4 < min(gaps[1:])
    assert load_train(tmp_path / "out/config.toml").algorithm.ratio == "truncated"
    assert all(math.isfinite(row[name]) for row in rows for name in ("loss", "grad_norm"))


def test_truncated_importance_sampling_is_the_default_ratio(settings: Path) -> None:
    ahead = overrides("http://x", "rollout.ahead=true")
    assert load_train(settings, ahead).algorithm.ratio == "truncated"
    assert load_train(settings, [*ahead, "algorithm.ratio=rollout"]).algorithm.ratio == "rollout"
    assert load_train(settings, overrides("http://x")).algorithm.ratio == "rollout"


def test_no_rollout_is_two_steps_old_also_where_groups_are_replaced_and_after_a_resume(
    settings: Path,
    server: tuple[SamplingServer, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sampler, url = server
    ages: dict[int, list[int]] = {}
    log = Training.log_rollouts

    def look(
        training: Training, step: int, rollouts: Sequence[Rollout], advantages: Sequence[float]
    ) -> None:
        rows = [row for rollout in rollouts for row in rollout.rows]
        drawn = [sampler.drawn[row.response_ids, row.logprobs] for row in rows]
        # The server has the weights that this step begins with.
        ages[step] = sorted({sampler.version - version for version in drawn})
        log(training, step, rollouts, advantages)

    monkeypatch.setattr(Training, "log_rollouts", look)
    more = ["rollout.ahead=true", "algorithm.dynamic_sampling=true"]
    more.append("reward.use=tests.train.runs.test_ahead:seldom")
    for steps in (2, 4):
        given = overrides(url, *more, f"optimizer.steps={steps}")
        train(load_train(settings, given), tmp_path / "out")
    assert ages == {1: [0], 2: [0, 1], 3: [0], 4: [0, 1]}
    assert [row["rollouts/steps_behind"] for row in figures(tmp_path / "out")] == [0, 1, 0, 1]
    assert sampler.disturbed == 0


def test_evaluations_do_not_enter_the_figures_of_the_step_after(
    settings: Path, server: tuple[SamplingServer, str], tmp_path: Path
) -> None:
    ahead, evaluated = "rollout.ahead=true", "evaluation={as_they_are=true, n=4, every=1}"
    for out, more in (("plain", [ahead]), ("evaluated", [ahead, evaluated])):
        train(load_train(settings, overrides(server[1], *more)), tmp_path / out)
    plain, rows = figures(tmp_path / "plain"), figures(tmp_path / "evaluated")
    assert [row["rollouts/steps_behind"] for row in rows] == [0, 1, 1]
    assert all("rollouts/waited_s" in row for row in rows)
    assert [row["engine/calls"] for row in rows] == [row["engine/calls"] for row in plain]


def test_without_it_each_step_trains_on_its_own_weights(
    settings: Path, server: tuple[SamplingServer, str], tmp_path: Path
) -> None:
    sampler, url = server
    train(load_train(settings, overrides(url)), tmp_path / "out")
    rows = figures(tmp_path / "out")
    assert drawn_with(sampler) == [1, 2, 3]
    assert "rollouts/steps_behind" not in rows[0]
    assert max(row["logprob_gap/mean"] for row in rows) < 1e-4


def test_replacements_of_dropped_groups_come_from_the_newest_weights(
    settings: Path, server: tuple[SamplingServer, str], tmp_path: Path
) -> None:
    sampler, url = server
    more = ["rollout.ahead=true", "algorithm.dynamic_sampling=true", "batch.group_size=2"]
    train(load_train(settings, overrides(url, *more)), tmp_path / "out")
    assert len(figures(tmp_path / "out")) == STEPS
    assert sampler.disturbed == 0


def test_a_server_that_refuses_weights_ends_the_training_with_its_error_and_no_thread(
    settings: Path, server: tuple[SamplingServer, str], tmp_path: Path
) -> None:
    sampler, url = server
    sampler.most = 1
    with pytest.raises(RequestRefused):
        train(load_train(settings, overrides(url, "rollout.ahead=true")), tmp_path / "out")
    assert not [one for one in threading.enumerate() if one.name.startswith("rollouts-ahead")]


def test_an_error_in_training_cancels_the_rollouts_that_are_being_made(
    settings: Path,
    server: tuple[SamplingServer, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    config = load_train(settings, overrides(server[1], "rollout.ahead=true"))
    with monkeypatch.context() as patched:
        patched.setattr(RolloutTrainer, "training_step", fail)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "out")
    assert not [one for one in threading.enumerate() if one.name.startswith("rollouts-ahead")]
    train(config, tmp_path / "out")
    assert [row["rollouts/steps_behind"] for row in figures(tmp_path / "out")] == [0, 1, 1]


@pytest.mark.parametrize("before", [False, True])
def test_rollouts_that_have_only_just_been_begun_are_cancelled_too(
    settings: Path, before: bool
) -> None:
    with closing(Rolling(load_train(settings), None)) as rolling:
        if before:
            rolling.drive(asyncio.sleep(0))
        begun, ended = threading.Event(), list[str]()

        async def draw() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.05)
                ended.append("in order")

        def work() -> list[Rollout]:
            begun.set()
            time.sleep(0.1)
            rolling.drive(draw())
            return []

        ahead = Ahead(rolling.cancel)
        ahead.start(1, [0], work)
        begun.wait()
        since = time.monotonic()
        ahead.close()
        assert time.monotonic() - since < 30
        assert ended == ["in order"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["rollout.ahead=true"], "ahead=true needs weights of its own"),
        (
            overrides("http://x", "rollout.ahead=true", "algorithm.ratio=recomputed"),
            "use 'truncated' or 'rollout'",
        ),
        (
            ["rollout.engine=vllm-engine", "resources.processes=2"],
            "runs beside a single trainer",
        ),
        (
            ["rollout.engine_settings={max_loras=2}"],
            "engine_settings=.* is not used by engine='padded'",
        ),
    ],
)
def test_settings_that_would_train_on_the_wrong_weights_are_refused(
    settings: Path, more: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_train(settings, more)


def test_runs_of_earlier_versions_resume(settings: Path, tmp_path: Path) -> None:
    now = dump_config(load_train(settings))
    older = copy.deepcopy(now)
    for section, added in [
        ("rollout", "ahead"),
        ("rollout", "engine_settings"),
        ("algorithm", "rejected"),
    ]:
        del older[section][added]
    with open_run(tmp_path, older, free=FREE, kind=TrainConfig) as folder:
        (folder.checkpoints / "checkpoint-1").mkdir(parents=True)
        mark_complete(folder.checkpoints / "checkpoint-1", 1)
    with open_run(tmp_path, now, free=FREE, kind=TrainConfig) as folder:
        assert folder.find_newest() is not None
