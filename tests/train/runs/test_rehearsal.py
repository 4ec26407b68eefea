"""A dry run finds what would stop every rollout before its first call."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w
from tests.train.runs.tiny import give_own_code, write_run

from memagent.errors import ConfigError, WindowTooSmall
from memagent.models.base import ChatModel
from memagent.tasks import Sample
from memagent_bench.games.streams import Deck
from memagent_train.config.train import TrainConfig, load_train
from memagent_train.runs.evaluate import evaluate
from memagent_train.runs.grpo import train
from memagent_train.runs.rehearsal import _window, rehearse_offline
from memagent_train.runs.target import target_of

FITS = "fits the window"
GAME = {"source": [{"kind": "game", "games": ["deck"], "count": 8}]}


def tools(tmp_path: Path, window: int) -> TrainConfig:
    agent = {"use": "tools", "tools": {"protocol": "compact", "working_context": window}}
    file = write_run(tmp_path, data=GAME, rollout={"window": 8192})
    tables = tomllib.loads(file.read_text()) | {"agent": agent}
    file.write_text(tomli_w.dumps(tables))
    return load_train(file)


def test_an_agent_that_gets_to_its_first_call_is_fine(tmp_path: Path) -> None:
    assert rehearse_offline(load_train(write_run(tmp_path))) == FITS


def test_a_window_without_room_for_a_chunk_is_found(tmp_path: Path) -> None:
    config = load_train(write_run(tmp_path), ["agent.window=60"])
    with pytest.raises(WindowTooSmall, match="60"):
        rehearse_offline(config)


def test_and_a_working_context_without_room_for_a_turn(tmp_path: Path) -> None:
    assert rehearse_offline(tools(tmp_path, 4096)) == FITS
    with pytest.raises(WindowTooSmall):
        rehearse_offline(tools(tmp_path, 64))


def test_a_training_and_an_evaluation_find_it_before_their_first_rollout(tmp_path: Path) -> None:
    config = tools(tmp_path, 64)
    with pytest.raises(WindowTooSmall):
        train(config, tmp_path / "run")
    target = target_of(config.model.path, None, config.model)
    with pytest.raises(WindowTooSmall):
        evaluate(target, config, lengths=[0], n=1)


def test_without_the_tokenizer_nothing_is_checked_nor_fetched(tmp_path: Path) -> None:
    config = load_train(write_run(tmp_path), ["model.path=nobody/nothing"])
    assert re.match("not checked: there is no folder 'nobody/nothing'", rehearse_offline(config))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model.path=./nothing", "no tokenizer can be loaded from './nothing'"),
        (
            f"model.path={Path(__file__).parent}",
            r"a folder without a model \(it has no config.json",
        ),
        ("agent.use=tests.train.runs.test_rehearsal:no_agent", "has no function 'no_agent'"),
    ],
)
def test_what_a_setting_names_must_be_there(tmp_path: Path, override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_and_rehearse(tmp_path, override)


async def own(model: ChatModel, sample: Sample) -> None:
    """An agent of one's own."""


class Refused(Deck):
    """A game with a verdict that is none."""

    def verdict(self) -> float:
        raise KeyError("oops")


OWN = f"{__name__}:own"
GAMES = f"data.source=[{{kind='game', games=['{__name__}:%s']}}]"


def load_and_rehearse(tmp_path: Path, *overrides: str) -> str:
    file = write_run(tmp_path)
    tables = tomllib.loads(file.read_text()) | {"agent": {}}
    file.write_text(tomli_w.dumps(tables))
    return rehearse_offline(load_train(file, overrides))


def test_games_are_dealt_for_agents_of_ones_own_too(tmp_path: Path) -> None:
    own = f"agent.use={OWN}"
    assert load_and_rehearse(tmp_path, own) == "not checked: the agent is your own"
    with pytest.raises(ConfigError, match="has no function 'Nothing'"):
        load_and_rehearse(tmp_path, own, GAMES % "Nothing")


def test_the_verdict_of_a_game_is_tried(tmp_path: Path) -> None:
    game = GAMES % "Refused"
    tools = "agent={use='tools', tools={protocol='compact'}}"
    with pytest.raises(ConfigError, match=r"of the game 'Refused' failed: KeyError: 'oops'"):
        load_and_rehearse(tmp_path, tools, game, "rollout.window=8192")


def test_the_window_of_a_policy_with_code_of_its_own_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", tmp_path / "modules")
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = write_run(tmp_path, model={"trust_remote_code": True}, rollout={"window": None})
    give_own_code(tmp_path / "model")
    assert _window(load_train(file)) == 128
