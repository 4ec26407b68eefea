from pathlib import Path

import pytest

from memagent import MemoryAgent, Retry
from memagent.errors import ConfigError, PromptSetError
from memagent.messages import Sampling
from memagent.models.policy import FILE, Policy, policy_of
from memagent.prompts import PromptSet
from memagent_engines.extractive import ExtractiveModel

WHOLE = """
prompts = "mine.toml"
window = 3000
chunk_tokens = 700
memory_tokens = 300
cuts = "exact"
gate = "update"
trust = "exact"
[sampling]
temperature = 0
"""


class Trained(ExtractiveModel):
    """A model with settings of its own."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(window=4000)
        self.policy = policy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / FILE).write_text(WHOLE)
    (tmp_path / "mine.toml").write_text(PromptSet.load("boxed").source)
    return tmp_path


def trained(folder: Path) -> Trained:
    policy = Policy.load(folder)
    assert policy is not None
    return Trained(policy)


def test_an_agent_takes_what_the_policy_wants(folder: Path) -> None:
    agent = MemoryAgent(Retry(trained(folder)), store=None)  # through wrappers too
    settings = agent.settings
    assert (settings.window, settings.chunk_tokens, settings.memory_tokens) == (3000, 700, 300)
    assert (settings.cuts, settings.gate) == ("exact", "update")
    assert (settings.trust, settings.sampling) == ("exact", Sampling(temperature=0))
    assert agent.prompts.hash == PromptSet.load("boxed").hash


def test_what_the_user_says_wins(folder: Path) -> None:
    agent = MemoryAgent(
        trained(folder),
        prompts="plain",
        window=2000,
        cuts="sentence",
        gate="off",
        trust="neutral",
        sampling=Sampling(temperature=0.3),
        store=None,
    )
    settings = agent.settings
    assert (settings.window, settings.chunk_tokens) == (2000, 700)
    assert (settings.cuts, settings.gate) == ("sentence", "off")
    assert (settings.trust, settings.sampling.temperature) == ("neutral", 0.3)
    assert agent.prompts.name == "plain"


def test_sizes_that_cannot_fit_the_users_window_are_left_out(folder: Path) -> None:
    agent = MemoryAgent(trained(folder), window=1300, store=None)
    assert (agent.settings.chunk_tokens, agent.settings.memory_tokens) == (None, None)
    assert agent.estimate("A short text.", "What is it?").chunks == 1
    assert MemoryAgent(trained(folder), window=1301, store=None).settings.chunk_tokens == 700


def test_a_run_is_bound_to_what_was_used(folder: Path) -> None:
    with MemoryAgent(trained(folder), store=None) as agent:
        result = agent.ask("The prince left. " * 300, "Who left?")
        record = agent.store.get(result.run_id)
        estimate = agent.estimate("The prince left. " * 300, "Who left?")
    bound = record.binding
    assert bound["budget"]["window"] == record.settings["window"] == estimate.window == 3000
    assert (bound["budget"]["chunk"], bound["budget"]["memory"]) == (700, 300)
    assert (bound["gate"], bound["cuts"], bound["trust"]) == ("update", "exact", "exact")
    assert bound["prompts"].startswith("boxed:")
    assert bound["sampling"]["temperature"] == 0
    assert record.settings["prompts"] == agent.prompts.source


def test_other_models_say_nothing() -> None:
    assert policy_of(ExtractiveModel()) == Policy()
    assert policy_of(Retry(ExtractiveModel())).reading() == {}
    agent = MemoryAgent(ExtractiveModel(), store=None)
    assert (agent.settings.cuts, agent.settings.gate) == ("sentence", "off")
    assert agent.prompts.name == "plain"


def test_a_folder_without_the_file_says_nothing(tmp_path: Path) -> None:
    assert Policy.load(tmp_path) is None
    (tmp_path / FILE).touch()
    assert Policy.load(tmp_path) == Policy()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("window = 0", ("window must be greater than 0, got 0",)),
        ("window = 'large'", ("window must be a valid integer, got 'large'",)),
        ("widnow = 9", ("no setting 'widnow'; did you mean 'window'?",)),
        ("gate = 'ajar'", ("gate must be 'off', 'update', ", "got 'ajar'")),
        ("[sampling]\ntemperature = nan", ("sampling.temperature must be ", "got nan")),
        ("window =", ("cannot be read",)),
        ("window = '\xff'", ("cannot be read",)),
        ("prompts = 3", ("prompts = 3",)),
        ("prompts = '../other.toml'", ("prompts = '../other.toml'", "same folder")),
    ],
)
def test_a_wrong_file_is_named_with_its_key(
    tmp_path: Path, text: str, words: tuple[str, ...]
) -> None:
    (tmp_path / FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError) as caught:
        Policy.load(tmp_path)
    assert [word for word in (FILE, *words) if word not in str(caught.value)] == []


def test_a_missing_prompt_set_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("prompts = 'gone.toml'")
    with pytest.raises(PromptSetError, match=r"gone\.toml"):
        Policy.load(tmp_path)
