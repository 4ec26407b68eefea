from pathlib import Path

import pytest

from memagent.errors import PromptSetError
from memagent.prompts import PromptSet

SMALL = """
name = "small"
empty_memory = "none"
[tags]
question = "q"
memory = "m"
chunk = "c"
[[update]]
role = "system"
template = "Note what helps."
[[update]]
role = "user"
template = "<q>{{ question }}</q><m>{{ memory }}</m><c>{{ chunk }}</c>{% if can_keep %}{{ keep }}{% endif %}"
[[answer]]
role = "user"
template = "<q>{{ question }}</q><m>{{ memory }}</m>"
"""


@pytest.mark.parametrize("name", ["plain", "boxed"])
def test_shipped_sets_show_each_field_once_in_its_tags(name: str) -> None:
    prompts = PromptSet.load(name)
    (message,) = prompts.render("update", question="Why?", memory="M1", chunk="C1", gate="both")
    for tag, text in (("problem", "Why?"), ("memory", "M1"), ("section", "C1")):
        assert message.content.count(f"<{tag}>\n{text}\n</{tag}>") == 1
    order = [message.content.index(f"<{tag}>") for tag in ("problem", "memory", "section")]
    assert order == sorted(order)
    (answer,) = prompts.render("answer", question="Why?", memory="M1")
    assert "<section>" not in answer.content
    assert ("boxed" in answer.content) == (name == "boxed")


def test_literals_are_offered_only_through_their_gate() -> None:
    prompts = PromptSet.load("plain")
    offered = {
        gate: prompts.render("update", question="q", memory="m", chunk="c", gate=gate)[0].content
        for gate in ("off", "update", "exit", "both")
    }
    assert {gate for gate, text in offered.items() if "[keep]" in text} == {"update", "both"}
    assert {gate for gate, text in offered.items() if "[done]" in text} == {"exit", "both"}


def test_a_users_set_is_loaded_with_its_roles(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    prompts = PromptSet.load(path)
    messages = prompts.render("update", question="q?", memory="m!", chunk="c.")
    assert [message.role for message in messages] == ["system", "user"]
    assert messages[1].content == "<q>q?</q><m>m!</m><c>c.</c>"


def test_fields_are_values_never_templates() -> None:
    prompts = PromptSet.parse(SMALL.encode())
    content = prompts.render("answer", question="{{ keep }}{% if 1 %}", memory="<b>&amp;")[
        0
    ].content
    assert content == "<q>{{ keep }}{% if 1 %}</q><m><b>&amp;</m>"


def test_hash_is_that_of_the_normalised_bytes() -> None:
    prompts = PromptSet.parse(SMALL.encode())
    windows = b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode() + b"\r\n\r\n"
    assert PromptSet.parse(windows).hash == prompts.hash
    assert PromptSet.parse(SMALL.replace("Note", "note").encode()).hash != prompts.hash
    assert PromptSet.parse(prompts.source.encode()) == prompts


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("{{ chunk }}", ""), "show 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk }}{{ chunk }}"), "show 'chunk' 2 times"),
        (("{{ chunk }}", "{{ chunk | upper | length }}"), "show 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunks }}"), "'chunks' is undefined"),
        (("{{ chunk }}", "{{ chunk }"), "unexpected '}'"),
        (("{{ chunk }}", "{{ ''.__class__.__mro__ }}{{ chunk }}"), "unsafe"),
        (('role = "system"', 'role = "wizard"'), "update.0.role"),
        (('empty_memory = "none"', ""), "empty_memory: Field required"),
        (('empty_memory = "none"', 'empty_memory = "none"\nkeep = " keep"'), "white space"),
        (('question = "q"', 'question = "q>"'), "tags.question"),
        (('name = "small"', 'name = "small'), "not TOML"),
        (('name = "small"', 'name = "small"\nnames = 1'), "names: Extra inputs"),
    ],
)
def test_a_broken_set_says_what_is_wrong(change: tuple[str, str], says: str) -> None:
    assert change[0] in SMALL
    with pytest.raises(PromptSetError) as error:
        PromptSet.parse(SMALL.replace(*change, 1).encode(), name="mine.toml")
    assert says in str(error.value)
    assert "mine.toml" in str(error.value) or "small" in str(error.value)


def test_an_unknown_name_lists_the_shipped_ones() -> None:
    with pytest.raises(PromptSetError, match=r"'fancy'.*plain, boxed"):
        PromptSet.load("fancy")


def test_bytes_that_are_no_utf8() -> None:
    with pytest.raises(PromptSetError, match="not TOML in UTF-8"):
        PromptSet.parse(b"name = '\xff'")
