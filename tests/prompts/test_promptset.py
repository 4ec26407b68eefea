from pathlib import Path

import pytest

from memagent.errors import PromptSetError
from memagent.prompts import PromptSet
from memagent.prompts.promptset import Turn

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


@pytest.mark.parametrize("name", ["plain", "boxed", "shared"])
def test_shipped_sets_show_each_field_once_in_its_tags(name: str) -> None:
    prompts = PromptSet.load(name)
    (message,) = prompts.render("update", question="Why?", memory="M1", chunk="C1", gate="both")
    for tag, text in (("problem", "Why?"), ("memory", "M1"), ("section", "C1")):
        assert message.content.count(f"<{tag}>\n{text}\n</{tag}>") == 1
    trained = ("problem", "memory", "section")
    order = ("section", "problem", "memory") if name == "shared" else trained
    places = [message.content.index(f"<{tag}>") for tag in order]
    assert places == sorted(places)
    (answer,) = prompts.render("answer", question="Why?", memory="M1")
    assert "<section>" not in answer.content
    assert ("boxed" in answer.content) == (name == "boxed")


def test_the_set_for_small_models_has_the_shortest_frame_and_ends_replies() -> None:
    small = PromptSet.load("small")
    (message,) = small.render("update", question="Why?", memory="M1", chunk="C1")
    assert message.content.startswith("M1\n\nC1\n\nWhy? ")
    assert len(message.content) < 60
    assert small.stop.answer == ("\n",)
    assert PromptSet.load("plain").stop.answer == ()


@pytest.mark.parametrize("name", PromptSet.built_in)
def test_literals_are_offered_only_through_their_gate(name: str) -> None:
    prompts = PromptSet.load(name)
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
        (("{{ chunk }}", ""), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk }}{{ chunk }}"), "shows 'chunk' 2 times"),
        (("{{ chunk }}", "{{ chunk | upper | length }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk[:200] }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk[:50000] }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk | e }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk | trim }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk | replace('\\u2060', '') }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk | replace('\\\\r\\\\n', '\\\\n') }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk | lower }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk | capitalize }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk | truncate(9000) }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk | indent }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk | striptags }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk.split() | join(' ') }}"), "shows 'chunk' 0 times"),
        (("{{ chunk }}", "{{ chunk }}{{ chunk[:9] }}"), "with the content of a field"),
        (("{{ chunk }}", "{{ chunk }}{{ memory | length }}"), "with the content of a field"),
        (
            ("{{ chunk }}", "{{ chunk }}{% if memory %} long {% endif %}"),
            "with the content of a field",
        ),
        (("{{ chunk }}", "{{ chunk }}{{ 1 // 0 }}"), "division"),
        (("{{ chunk }}", "{{ chunk + 1 }}"), "concatenate"),
        (("{{ chunk }}", "{{ chunk }}{{ none() }}"), "not callable"),
        (("{{ chunk }}", "{{ chunk }}{{ ('x' * 9).encode('no') }}"), "encoding"),
        (("{{ chunk }}", "{{ chunks }}"), "'chunks' is undefined"),
        (("{{ chunk }}", "{{ chunk }"), "unexpected '}'"),
        (("{{ chunk }}", "{{ ''.__class__.__mro__ }}{{ chunk }}"), "unsafe"),
        (('role = "system"', 'role = "wizard"'), "update.0.role"),
        (('empty_memory = "none"', ""), "empty_memory is missing"),
        (('empty_memory = "none"', 'empty_memory = "none"\nkeep = " keep"'), "white space"),
        (('question = "q"', 'question = "q>"'), "tags.question"),
        (('name = "small"', 'name = "small'), "not TOML"),
        (('name = "small"', 'name = "small"\nnames = 1'), "names is unknown"),
        (("[tags]", '[stop]\nupdate = [""]\n[tags]'), "stop.update"),
        (("[tags]", '[stop]\nupdate = "\\n"\n[tags]'), "stop.update"),
        (("[tags]", "[stop]\nanswer = ['1', '2', '3', '4', '5']\n[tags]"), "stop.answer"),
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


def test_a_changed_set_has_a_hash_and_templates_of_its_own() -> None:
    prompts = PromptSet.parse(SMALL.encode())
    prompts.render("answer", question="q", memory="m")
    answer = (Turn(role="user", template='Other: {{ question }} {{ memory }} \x7f\t\\ "é"'),)
    changed = prompts.model_copy(update={"answer": answer, "keep": "[same]"})
    (message,) = changed.render("answer", question="q", memory="m")
    assert message.content == 'Other: q m \x7f\t\\ "é"'
    assert changed.hash != prompts.hash
    loaded = PromptSet.load(changed)
    assert loaded.model_dump() == changed.model_dump()
    assert (loaded.source, loaded.hash) == (changed.source, changed.hash)
    assert PromptSet.parse(changed.source.encode()).hash == changed.hash
    assert prompts.model_copy(update={"keep": prompts.keep}).hash == prompts.hash
    assert prompts.model_copy().source == prompts.source


def test_a_set_made_in_python_can_be_kept_and_read_again() -> None:
    read = PromptSet.load("boxed")
    made = PromptSet(**read.model_dump())
    assert made.source != read.source
    assert PromptSet.parse(made.source.encode()).model_dump() == read.model_dump()
    assert PromptSet.load(made).hash == made.hash


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"answer": (Turn(role="user", template="{{ question }}"),)}, "shows 'memory' 0 times"),
        ({"keep": " keep"}, "white space"),
        ({"tags": None}, "cannot be written"),
        ({"keep": "\ud800"}, "cannot be written"),
        ({"update": (Turn(role="user", template="\ud800"),)}, "cannot be written"),
        ({"empty_memory": None}, "not TOML"),
    ],
)
def test_a_set_that_was_changed_for_the_worse_is_refused(
    change: dict[str, object], says: str
) -> None:
    changed = PromptSet.load("plain").model_copy(update=change)
    with pytest.raises(PromptSetError, match=says):
        PromptSet.load(changed)


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "n" * 5000])
def test_names_that_no_file_can_have(name: str) -> None:
    with pytest.raises(PromptSetError, match="no prompt set"):
        PromptSet.load(name)


def test_toml_that_is_nested_beyond_reason() -> None:
    with pytest.raises(PromptSetError, match="not TOML"):
        PromptSet.parse(b"a = " + b"[" * 100_000)
