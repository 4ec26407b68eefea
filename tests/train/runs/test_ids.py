"""Names say which step a rollout belongs to."""

from __future__ import annotations

from memagent_train.runs.ids import evaluation_id, group_id, is_repeated, rollout_id, seed_of


def test_names_sort_as_steps_do() -> None:
    assert rollout_id(group_id(2, 3), 7) < rollout_id(group_id(10, 0), 0)


def test_a_rollout_is_done_again_after_its_step() -> None:
    name = rollout_id(group_id(12, 3), 7)
    assert [is_repeated(name, step, ()) for step in (11, 12, 13)] == [True, False, False]


def test_an_evaluation_is_done_again_from_its_own_step_unless_complete() -> None:
    name = evaluation_id(12, 8192, 3)
    assert [is_repeated(name, step, ()) for step in (11, 12, 13)] == [True, True, False]
    assert [is_repeated(name, step, {12}) for step in (11, 12, 13)] == [True, False, False]


def test_other_runs_are_left_alone() -> None:
    assert not is_repeated("my-run", 0, ())
    assert not is_repeated("step-x", 0, ())


def test_seeds_differ_by_name_and_by_run() -> None:
    seeds = {seed_of(seed, name) for seed in (0, 1) for name in ("a", "b")}
    assert len(seeds) == 4
    assert seed_of(0, "a") == seed_of(0, "a")
    assert all(0 <= seed < 2**31 for seed in seeds)
