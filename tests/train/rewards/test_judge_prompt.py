"""The wording of a judge, and what counts as a verdict."""

from pathlib import Path

import pytest

from memagent.errors import ConfigError
from memagent_train.rewards.judge_prompt import JudgePrompt

OWN = """
name = "own"
verdict = "score"
highest = 10
again = "A line such as score: 7, please."
[tags]
question = "q"
references = "r"
answer = "a"
[[turn]]
role = "system"
template = "Judge from 0 to 10. {{ question }}"
[[turn]]
role = "user"
template = "<{{ tags.answer }}>{{ answer }}</{{ tags.answer }}> {{ references }}"
"""


def own(tmp_path: Path, text: str = OWN) -> JudgePrompt:
    file = tmp_path / "own.toml"
    file.write_text(text, encoding="utf-8")
    return JudgePrompt.load(file)


def test_the_shipped_prompt_shows_each_field_in_its_tags() -> None:
    prompt = JudgePrompt.load(None)
    (message,) = prompt.render({"question": "Who?", "references": "A\nB", "answer": "C"})
    assert message.role == "user"
    for shown in (
        "<question>\nWho?\n</question>",
        "<references>\nA\nB\n</references>",
        "<answer>\nC\n</answer>",
    ):
        assert shown in message.content


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        ("yes", 1.0),
        ("It says the same.\n\nYes.", 1.0),
        ("Wrong year.\nverdict: no\n", 0.0),
        ("no", 0.0),
        ("", None),
        ("yes, it is", None),
        ("yes\nBut then again.", None),
        ("yes no", None),
        ("score: 1", None),
    ],
)
def test_yes_and_no(reply: str, reward: float | None) -> None:
    assert JudgePrompt.load(None).read(reply) == reward


@pytest.mark.parametrize(
    ("reply", "reward"),
    [
        ("score: 10", 1.0),
        ("Fine.\nScore: 7.5", 0.75),
        ("score: 0", 0.0),
        ("score: 11", None),
        ("score: -1", None),
        ("score: nan", None),
        ("score: 7/10", None),
        ("7", None),
        ("yes", None),
    ],
)
def test_scores(reply: str, reward: float | None, tmp_path: Path) -> None:
    assert own(tmp_path).read(reply) == reward


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{{ answer }}", "", "'answer' 0 times"),
        ("{{ references }}", "{{ references }}{{ references }}", "'references' 2 times"),
        ("{{ answer }}", "{{ anwser }}", "anwser"),
        ("{{ answer }}", "{% if %}", "cannot be rendered"),
        ("{{ answer }}", "{% if answer %}{{ answer }}.{% endif %}", "changes with the content"),
        ('"score"', '"stars"', "verdict"),
        ("highest = 10", "highest = 0", "highest"),
        ("[tags]", "[tags", "not TOML"),
        ('again = "', 'agian = "', "again"),
    ],
)
def test_prompts_that_cannot_work_are_refused(
    old: str, new: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=said):
        own(tmp_path, OWN.replace(old, new))


def test_a_prompt_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml.*No such file"):
        JudgePrompt.load(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(ConfigError, match="utf-8"):
        JudgePrompt.load(tmp_path / "latin.toml")
