"""A dry run finds what would stop every rollout before its first call."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w
from tests.train.runs.tiny import give_own_code, write_run

from memagent.errors import WindowTooSmall
from memagent_train.config.train import TrainConfig, load_train
from memagent_train.runs.rehearsal import _window, rehearse

GAME = {"source": [{"kind": "game", "games": ["deck"], "count": 8}]}


def tools(tmp_path: Path, window: int) -> TrainConfig:
    agent = {"use": "tools", "tools": {"protocol": "compact", "working_context": window}}
    file = write_run(tmp_path, data=GAME, rollout={"window": 8192})
    tables = tomllib.loads(file.read_text()) | {"agent": agent}
    file.write_text(tomli_w.dumps(tables))
    return load_train(file)


def test_an_agent_that_gets_to_its_first_call_is_fine(tmp_path: Path) -> None:
    assert rehearse(load_train(write_run(tmp_path)))


def test_a_window_without_room_for_a_chunk_is_found(tmp_path: Path) -> None:
    config = load_train(write_run(tmp_path), ["agent.window=60"])
    with pytest.raises(WindowTooSmall, match="60"):
        rehearse(config)


def test_and_a_working_context_without_room_for_a_turn(tmp_path: Path) -> None:
    assert rehearse(tools(tmp_path, 4096))
    with pytest.raises(WindowTooSmall):
        rehearse(tools(tmp_path, 64))


def test_without_the_tokenizer_nothing_is_checked_nor_fetched(tmp_path: Path) -> None:
    config = load_train(write_run(tmp_path), ["model.path=nobody/nothing"])
    assert not rehearse(config)


def test_the_window_of_a_policy_with_code_of_its_own_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", tmp_path / "modules")
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = write_run(tmp_path, model={"trust_remote_code": True}, rollout={"window": None})
    give_own_code(tmp_path / "model")
    assert _window(load_train(file)) == 128
