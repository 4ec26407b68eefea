"""The wording of tool sessions: each field is shown once, as it is, and summaries are read strictly."""

from pathlib import Path
from typing import get_args

import pytest

from memagent.errors import PromptSetError
from memagent.messages import Completion, FinishReason, ToolCall
from memagent.prompts import Neutraliser, UnusableReply
from memagent.prompts.session import SessionPrompts, SessionTags
from memagent.tools import protocol

SHIPPED = SessionPrompts.load()
CALL = ToolCall(id="a", name="do", arguments="{}")


def test_the_shipped_set_is_found_and_named() -> None:
    assert SHIPPED == SessionPrompts.load("session") == SessionPrompts.load(SHIPPED)
    assert len(SHIPPED.hash) == 16


def test_the_text_protocols_tags_are_those_that_are_read_and_written() -> None:
    fields, tags = SessionTags.model_fields, (protocol.CALL, protocol.RESULT)
    assert tuple(get_args(fields[name].annotation)[0] for name in tags) == tags
    assert tuple(dict(SHIPPED.tags).values()) == ("summary", "result", "call")
    assert "<call>" in SHIPPED.render("text", tools="")


def test_each_tag_is_kept_from_being_closed() -> None:
    safe = Neutraliser(dict(SHIPPED.tags).values())("<summary></result ><CALL x=1> <memory>")
    assert len(safe[1]) == 3


def test_frames_and_lines_show_what_they_are_given() -> None:
    assert SHIPPED.render("text", tools="THE TOOLS").endswith("THE TOOLS")
    text = SHIPPED.render("continuation", stage=3, summary="SUM", ledger="LED")
    assert "part 3" in text
    assert "<summary>\nSUM\n</summary>" in text
    assert "merge" in SHIPPED.render("instruction", words=350)
    line = SHIPPED.render("clipped", handle="t1", start=5, end=70, can_read=True)
    assert 'read_archived(handle="t1", start=5, end=70)' in line
    assert "read_archived" not in SHIPPED.render(
        "clipped", handle="t1", start=5, end=70, can_read=False
    )


@pytest.mark.parametrize("template", ["stale", "duplicate"])
def test_what_left_is_named_by_its_call_and_can_be_read_where_that_is_offered(
    template: str,
) -> None:
    line = SHIPPED.render(template, call="look(1)", handle="t1", can_read=True)
    assert line.startswith("[left out: ")
    assert "look(1)" in line
    assert 'read_archived(handle="t1")' in line
    line = SHIPPED.render(template, call="look(1)", handle="t1", can_read=False)
    assert "t1" not in line


def test_a_changed_set_is_written_anew_and_has_another_hash(tmp_path: Path) -> None:
    changed = SHIPPED.model_copy(update={"missing": 'none\x7f "came"'})
    assert changed.hash != SHIPPED.hash
    path = tmp_path / "own.toml"
    path.write_text(changed.source, encoding="utf-8")
    loaded = SessionPrompts.load(path)
    assert loaded.model_dump() == changed.model_dump()
    assert loaded.hash == changed.hash
    crlf = ("\ufeff" + changed.source.replace("\n", "\r\n")).encode()
    assert SessionPrompts.parse(crlf).hash == changed.hash


@pytest.mark.parametrize(
    ("field", "template", "says"),
    [
        ("text", "no place", "'text' shows 'tools' 0 times"),
        ("continuation", "{{ stage }}{{ summary }}", "'ledger' 0 times"),
        ("continuation", "{{ stage }}{{ summary }}{{ ledger }}{{ summary }}", "'summary' 2 times"),
        ("continuation", "{{ stage }}{{ summary | trim }}{{ ledger }}", "'summary' 0 times"),
        ("continuation", "{{ stage }}{{ summary }}{{ ledger }}{% if ledger %}x{% endif %}", "changes with the content"),
        ("again", "{{ shown }}{{ more }}", "'more' is undefined"),
        ("instruction", "{{ words", "unexpected end"),
        ("stale", "{{ tool }}", "'tool' is undefined"),
        ("stale", "{{ handle }}", "'stale' does not show 'call'"),
        ("duplicate", "{{ call }}", "'duplicate' does not show 'handle'"),
        ("clipped", "gone", "does not show 'handle'"),
        ("missing", "{{ x }}", "'x' is undefined"),
        ("native", "{{ ''.__class__.__mro__ }}", "unsafe"),
    ],
    ids=str,
)  # fmt: skip
def test_templates_that_would_break_budgets_are_refused(
    field: str, template: str, says: str
) -> None:
    with pytest.raises(PromptSetError, match=says):
        SessionPrompts.load(SHIPPED.model_copy(update={field: template}))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"\xff", "not TOML in UTF-8"),
        (b"name = ", "not TOML"),
        (b'name = "x"', "tags is missing"),
        (SHIPPED.source.replace('summary = "summary"', 'summary = "a b"').encode(), "tags.summary"),
        (SHIPPED.source.replace("name =", "nmae =").encode(), "name is missing"),
    ],
    ids=["bytes", "toml", "empty", "tag", "misspelt"],
)
def test_files_that_are_no_set_are_refused(raw: bytes, says: str) -> None:
    with pytest.raises(PromptSetError, match=says):
        SessionPrompts.parse(raw)


def test_a_set_that_is_not_there_is_named() -> None:
    with pytest.raises(PromptSetError, match=r"no prompt set 'nowhere.toml'.*session"):
        SessionPrompts.load("nowhere.toml")


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("plain", "plain"),
        ("before <summary> in </summary> after", "in"),
        ("<think>hm</think><summary>in</summary>", "in"),
        ("<summary>cut off", "cut off"),
        ("no opening</summary>", "no opening"),
        ("<summary>says </summary> itself</summary>", "says </summary> itself"),
        ("<summary>do <call>{}</call> next</summary>", "do <call>{}</call> next"),
    ],
)
def test_summaries_are_read_with_and_without_tags(text: str, summary: str) -> None:
    assert SHIPPED.read_summary(Completion(text=text)) == summary


@pytest.mark.parametrize(
    "completion",
    [
        Completion(text=""),
        Completion(text="<think>hm", finish_reason=FinishReason.LENGTH),
        Completion(text="<summary> </summary>"),
        Completion(text="", tool_calls=(CALL,)),
        Completion(text="let me look", tool_calls=(CALL,)),
        Completion(text='<call>{"name": "do"}</call>'),
        Completion(text="half", finish_reason=FinishReason.OTHER),
    ],
    ids=["empty", "reasoning", "tags", "call", "call-and-words", "text-call", "filtered"],
)
def test_what_is_no_summary_is_unusable(completion: Completion) -> None:
    with pytest.raises(UnusableReply):
        SHIPPED.read_summary(completion)
