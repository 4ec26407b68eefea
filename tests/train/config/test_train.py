"""The settings of a training: whole, from a file, and back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomli_w

from memagent.errors import ConfigError
from memagent_train.config.keys import list_keys
from memagent_train.config.train import FREE, TrainConfig, dump_config, load_train
from memagent_train.data.settings import HubSettings

LEAST = '[model]\npath = "m"\n[[data.source]]\nkind = "jsonl"\nfiles = ["d.jsonl"]\n'
PLAYED = ["data.source=[{kind = 'game'}]", "agent.use=tools"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "train.toml"
    path.write_text(LEAST)
    return path


def test_a_model_and_data_are_enough(file: Path) -> None:
    config = load_train(file)
    assert config.batch.group_size == 16
    assert config.data.source[0].files == (file.parent / "d.jsonl",)  # pyright: ignore[reportAttributeAccessIssue]


def test_what_is_written_reads_back_the_same(file: Path, tmp_path: Path) -> None:
    config = load_train(file, ["lora.rank=8", "evaluation.lengths=8k,16k", "agent.window=4096"])
    again = tmp_path / "elsewhere" / "config.toml"
    again.parent.mkdir()
    again.write_text(tomli_w.dumps(dump_config(config)))
    assert load_train(again) == config


def test_an_agent_of_ones_own_reads_back_without_settings_of_the_memory_agent(
    file: Path, tmp_path: Path
) -> None:
    config = load_train(file, ["agent.use=mine:agent"])
    assert dump_config(config)["agent"] == {"use": "mine:agent"}
    again = tmp_path / "config.toml"
    again.write_text(tomli_w.dumps(dump_config(config)))
    assert load_train(again).agent.model_fields_set == {"use"}


def test_settings_of_the_tool_agent_read_back_the_same(file: Path, tmp_path: Path) -> None:
    given = ["agent.use=tools", "agent.tools={working_context=256, prompts='mine.toml'}"]
    config = load_train(file, [*given, "algorithm.weights={summary=0.5}"])
    assert config.agent.tools is not None
    assert config.agent.tools.prompts == file.parent / "mine.toml"
    again = tmp_path / "config.toml"
    again.write_text(tomli_w.dumps(dump_config(config)))
    assert load_train(again) == config
    assert dump_config(config)["algorithm"]["weights"] == {"summary": 0.5}


def test_names_of_what_lies_beside_the_file_are_its_paths(file: Path) -> None:
    folder = file.parent
    (folder / "m").mkdir()
    (folder / "m" / "config.json").touch()
    (folder / "mine.toml").touch()
    config = load_train(file, ["agent.prompts=mine.toml", "model.tokenizer=gpt2"])
    assert config.model.path == str(folder / "m")
    assert config.agent.prompts == str(folder / "mine.toml")
    assert config.model.tokenizer == "gpt2"


@pytest.mark.parametrize("marked", ["config.json", "tokenizer.json", "adapter_config.json"])
def test_tokenizers_and_judges_may_lie_beside_the_file(file: Path, marked: str) -> None:
    folder = file.parent / "beside"
    folder.mkdir()
    (folder / marked).touch()
    named = ["data.length_tokenizer=beside", "model.tokenizer=beside"]
    config = load_train(file, [*named, "reward.judge.model=transformers:beside"])
    assert config.data.length_tokenizer == config.model.tokenizer == str(folder)
    assert config.reward.judge.model == f"transformers:{folder}"
    for name in ("vllm:beside", "transformers:elsewhere", "nano", ""):
        assert load_train(file, [f"reward.judge.model={name}"]).reward.judge.model == name


def test_a_data_set_beside_the_file_is_not_the_hubs(file: Path) -> None:
    (file.parent / "mine.parquet").touch()
    sources = (
        "data.source=[{kind = 'hub', path = 'mine.parquet'}, {kind = 'hub', path = 'someone/set'}]"
    )
    first, second = load_train(file, [sources]).data.source
    assert isinstance(first, HubSettings)
    assert isinstance(second, HubSettings)
    assert (first.path, second.path) == (str(file.parent / "mine.parquet"), "someone/set")


def test_a_folder_with_the_name_of_a_model_is_not_one(file: Path) -> None:
    (file.parent / "m").mkdir()
    (file.parent / "plain").mkdir()
    config = load_train(file, ["agent.prompts=plain"])
    assert (config.model.path, config.agent.prompts) == ("m", "plain")


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("kind = 'jsonl', fils = ['d.jsonl']", "did you mean data.source.0.files?"),
        ("kind = 'squad', files = ['d.json']", "did you mean data.source.0.file?"),
        (
            "kind = 'jsonl', files = ['d.jsonl'], split = 'x'",
            "'data.source.0.split'; it is a setting of kind = 'hub'",
        ),
        (
            "kind = 'jsonl', files = ['d.jsonl'], games = ['deck']",
            "'data.source.0.games'; it is a setting of kind = 'game'",
        ),
        (
            "kind = 'jsonl', files = ['d.jsonl'], difficulty = 3",
            "did you mean data.source.0.difficulties? (It is a setting of kind = 'game'.)",
        ),
        (
            "kind = 'jsonl', columns = {docment = 'x'}",
            "did you mean data.source.0.columns.document?",
        ),
    ],
)
def test_an_unknown_key_of_a_source_names_one_of_its_kind(
    file: Path, source: str, hint: str
) -> None:
    """Else the kind that has such a key."""
    with pytest.raises(ConfigError) as caught:
        load_train(file, [f"data.source=[{{{source}}}]"])
    assert hint in str(caught.value)
    assert "at least 1 item" not in str(caught.value)


def test_a_single_source_says_how_to_write_a_list(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"write each as \[\[data\.source\]\] in the file"):
        load_train(file, ["data.source={kind = 'jsonl', files = ['d.jsonl']}"])
    with pytest.raises(ConfigError, match=r"files = .*Input should be a valid array"):
        load_train(file, ["data.source=[{kind = 'jsonl', files = {a = 1}}]"])


def test_an_abbreviated_key_is_told_the_keys_of_its_section(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"'optimizer\.lr'; optimizer has .*learning_rate, "):
        load_train(file, ["optimizer.lr=3"])


def test_settings_that_may_change_exist() -> None:
    known = list_keys(TrainConfig)
    assert set(FREE) <= set(known)


def test_settings_that_do_not_fit_together_name_the_file(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"train\.toml: .*base_url"):
        load_train(file, ["rollout.engine=vllm"])


def test_several_servers_are_a_list(file: Path) -> None:
    config = load_train(file, ["rollout.engine=vllm", 'rollout.base_url=["http://a", "http://b"]'])
    assert config.rollout.base_url == ("http://a", "http://b")
    assert dump_config(config)["rollout"]["base_url"] == ["http://a", "http://b"]


def test_an_adapter_can_be_sent_only_if_one_is_trained(file: Path) -> None:
    served = ["rollout.engine=vllm", "rollout.base_url=http://a", "rollout.weights=adapter"]
    with pytest.raises(ConfigError, match=r"add \[lora\]"):
        load_train(file, served)
    assert load_train(file, [*served, "lora.rank=8"]).rollout.weights == "adapter"


def test_a_key_of_one_kind_of_source_is_not_one_of_another(file: Path) -> None:
    file.write_text(LEAST + "lengths = [8]\n")
    with pytest.raises(
        ConfigError, match=r"train\.toml: there is no setting 'data.source.0.lengths'"
    ):
        load_train(file)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("data.source.0.count=0", "--set: data.source.0.count = 0: "),
        ("data.source=[{kind='jsonl'}]", "--set: data.source.0.files is missing"),
        ("data.source=[{kind='ruler', weight=inf}]", "--set: data.source.0.weight = inf: "),
        ("data.source.0.columns.answers=3", "--set: data.source.0.columns.answers = 3: "),
    ],
)
def test_a_wrong_setting_of_a_source_is_named_as_it_is_set(
    file: Path, override: str, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_train(file, [override])
    assert says in str(caught.value)


def test_weights_in_float16_are_not_trained(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.dtype='float16' .*\[lora\]"):
        load_train(file, ["model.dtype=float16"])
    assert load_train(file, ["model.dtype=float16", "lora.rank=8"]).model.dtype == "float16"


def test_a_game_is_not_scored_by_references(file: Path) -> None:
    for reward in ("reward.use=f1", "reward.use=judge", "reward.beside=['exact_match']"):
        with pytest.raises(ConfigError, match=r"which samples of kind='game' don't have"):
            load_train(file, [*PLAYED, reward])
    assert load_train(file, [*PLAYED, "reward.use=mine:reward"]).reward.use == "mine:reward"


def test_a_game_is_not_read(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"agent\.use='memory' reads documents: .* 'tools'"):
        load_train(file, PLAYED[:1])
    load_train(file, [PLAYED[0], "agent.use=mine:agent"])


def test_weights_are_of_calls_that_the_agent_makes(file: Path) -> None:
    tools, own = ["agent.use=tools"], ["agent.use=mine:agent"]
    for agent, kind in ((tools, "update"), ([], "act"), (tools, "other")):
        with pytest.raises(ConfigError, match=rf"algorithm\.weights names {kind}, but the calls"):
            load_train(file, [*agent, f"algorithm.weights.{kind}=0"])
    for agent, kind in ((tools, "summary"), ([], "answer"), (own, "other")):
        load_train(file, [*agent, f"algorithm.weights.{kind}=0"])


def test_some_call_has_a_weight(file: Path) -> None:
    zeros = ["algorithm.weights={update=0, answer=0.0}"]
    with pytest.raises(ConfigError, match=r"gives update, answer the weight 0, .* nothing would"):
        load_train(file, zeros)
    load_train(file, [*zeros, "agent.use=mine:agent"])
    load_train(file, [*zeros, "algorithm.weights.update=0.5"])


def test_a_reply_is_shorter_than_the_context(file: Path) -> None:
    for reply, context in ((192, 192), (500, 192)):
        sizes = f"agent={{use='tools', tools={{reply_tokens={reply}, working_context={context}}}}}"
        with pytest.raises(ConfigError, match=rf"reply_tokens={reply} must be below"):
            load_train(file, [sizes])


def test_an_answer_that_is_extracted_already_has_no_form(file: Path) -> None:
    for form in ("boxed", "sentence"):
        with pytest.raises(ConfigError, match=rf"answer_form='{form}' .* would all get 0"):
            load_train(file, [f"reward.answer_form={form}", "agent.prompts=boxed"])
        load_train(file, [f"reward.answer_form={form}", "agent.use=mine:agent"])
    # A game's instructions may ask for the form; its verdict needs none.
    load_train(file, ["reward.answer_form=boxed", "reward.use=mine:reward", "agent.use=tools"])


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (["algorithm.step_weight=0.5"], r"step_weight=0\.5 .* only reward\.gate_reward"),
        (["reward.gate_reward=true"], r"agent\.gate='off' doesn't have"),
        (["reward.gate_reward=true", "agent.gate=exit"], r"agent\.gate='exit' doesn't have"),
        (["reward.gate_reward=true", "agent.use=tools"], r"agent\.use='tools' .* doesn't have"),
    ],
)
def test_step_rewards_without_what_they_are_of_are_refused(
    file: Path, given: list[str], refused: str
) -> None:
    with pytest.raises(ConfigError, match=refused):
        load_train(file, given)


@pytest.mark.parametrize("agent", ["agent.gate=update", "agent.gate=both", "agent.use=mine:agent"])
def test_step_rewards_of_a_gate_are_weighed(file: Path, agent: str) -> None:
    load_train(file, [agent, "reward.gate_reward=true", "algorithm.step_weight=0.5"])
