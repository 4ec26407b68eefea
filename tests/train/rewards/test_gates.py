"""Rewards of single gates."""

import pytest
from tests.train.rewards.made import rollout, row, sample

from memagent.tasks import Evidence
from memagent_train.rewards.gates import gate_rewards

EVIDENCE = (Evidence(start=10, end=20), Evidence(start=30, end=40))


def of(*rows: tuple[tuple[int, int] | None, bool | None]) -> tuple[float | None, ...] | None:
    made = tuple(row(kind="update", span=span, kept=kept) for span, kept in rows)
    return gate_rewards(rollout(sample=sample(evidence=EVIDENCE), rows=made))


def test_keeping_pays_where_there_is_nothing_and_only_there() -> None:
    assert of(((0, 10), True), ((0, 10), False)) == (1.0, 0.0)
    assert of(((10, 20), True), ((10, 20), False)) == (0.0, 1.0)
    assert of(((0, 50), True), ((20, 30), True), ((40, 50), False)) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize("span", [(0, 11), (19, 30), (12, 15)])
def test_a_part_of_a_piece_decides_nothing(span: tuple[int, int]) -> None:
    assert of((span, True), ((0, 5), True)) == (None, 1.0)


def test_a_competing_note_decides_nothing() -> None:
    """A counter's first value is no evidence for its last, but is needed where the next note adds to it."""
    spans = (0, 6), (6, 9), (6, 20)
    made = tuple(row(kind="update", span=span, kept=False) for span in spans)
    noted = sample(evidence=EVIDENCE, competing=(0, 5, 22))
    assert gate_rewards(rollout(sample=noted, rows=made)) == (None, 0.0, 1.0)


def test_a_whole_piece_decides_though_another_is_cut() -> None:
    assert of(((5, 35), False)) == (1.0,)


def test_other_conversations_get_none() -> None:
    assert of((None, None), ((0, 10), True), ((0, 10), None), (None, True)) == (
        None,
        1.0,
        None,
        None,
    )
    assert of((None, None)) is None


def test_without_known_evidence_there_are_none() -> None:
    made = (row(kind="update", span=(0, 10), kept=True),)
    assert gate_rewards(rollout(sample=sample(), rows=made)) is None
