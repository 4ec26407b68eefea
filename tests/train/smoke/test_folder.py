import filecmp
import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from memagent.errors import ConfigError
from memagent.tokens import load_counter
from memagent_train.config.sft import load_sft
from memagent_train.config.train import load_train
from memagent_train.smoke.folder import GRPO, SFT, START, TRACES, lay_out


def test_traces_are_conversations_that_end_with_a_reply(laid_out: Path) -> None:
    lines = [json.loads(line)["messages"] for line in (laid_out / TRACES).read_text().splitlines()]
    assert len(lines) == 10 * 6
    assert {tuple(message["role"] for message in line) for line in lines} == {("user", "assistant")}
    counter = load_counter(laid_out / START)
    window = load_sft(laid_out / SFT).traces.window
    assert max(counter.count(line[0]["content"]) for line in lines) < window
    asked = [line[0]["content"].split()[-1] for line in lines]
    assert asked == ["write", "write", "write", "write", "write", "answer"] * 10


def test_settings_name_what_lies_beside_them(laid_out: Path) -> None:
    assert load_sft(laid_out / SFT).model.path == str(laid_out / START)
    grpo = load_train(laid_out / GRPO)
    assert grpo.agent.prompts == str(laid_out / "prompts.toml")
    assert grpo.agent.window == load_sft(laid_out / SFT).traces.window
    AutoModelForCausalLM.from_pretrained(laid_out / START)


def test_a_seed_writes_the_same_files(laid_out: Path, tmp_path: Path) -> None:
    again, other = tmp_path / "again", tmp_path / "other"
    lay_out(again, seed=0, documents=10)
    lay_out(other, seed=1, documents=10)
    for name in (TRACES, f"{START}/model.safetensors"):
        assert filecmp.cmp(laid_out / name, again / name, shallow=False)
        assert not filecmp.cmp(laid_out / name, other / name, shallow=False)


def test_what_a_folder_holds_is_not_touched(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    for taken in (tmp_path, mine):
        with pytest.raises(ConfigError, match="is not empty"):
            lay_out(taken, seed=0)
    assert [*tmp_path.iterdir()] == [mine]
