import argparse
from pathlib import Path

import numpy as np
import pytest
from tests.train.dialogues import Pair, Reading, Setting, keep, kept
from tests.train.measure_dialogues import bound, settings, tools

READING = Reading(seconds=2.0, idle=0.5, call=0.1, client=1.0, front=0.25)


def test_what_is_kept_is_not_measured_again(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    given = argparse.Namespace(
        turns=(50, 12), spreads=(1.5, 0.0), latency=2.0, verify=0.0, rounds=1, kept=file
    )
    asked = [Setting(50, 1.5), Setting(12, 1.5), Setting(50, 0.0), Setting(12, 0.0)]
    assert settings(given) == asked
    pairs = [Pair(one, 1.5, READING, READING, "here") for one in asked[:2]]
    keep(pairs, file)
    assert kept(file) == pairs
    assert settings(given) == asked[2:]
    given.rounds = 2
    assert settings(given) == [*asked[2:], *(one._replace(number=1) for one in asked)]
    given.latency = 0.5
    assert len(settings(given)) == 8


def test_the_bound_is_of_tools_and_verifiers() -> None:
    seconds = np.array([[1.0, 3.0], [2.0, 1.0]])
    assert bound(seconds, 0.0, 2) == 5 / 4
    # Two verifiers at once, and one after the other, from when the first dialogue ends.
    assert bound(seconds, 2.0, 2) == (5 + 2) / (4 + 2)
    assert bound(seconds, 2.0, 1) == (5 + 4) / (3 + 4)


def test_tools_have_the_mean_asked_for() -> None:
    assert tools(Setting(50, 1.0, latency=0.5)).mean() == pytest.approx(0.5, rel=0.1)
    assert (tools(Setting(12, 0.0)) == 2.0).all()
    assert (tools(Setting(12, 1.0)) != tools(Setting(12, 1.0, number=1))).all()
