from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from tests.cli.conftest import Invoke

from memagent.cli.setup import Ask

SHARED = ("--question", "--model", "--base-url", "--tokenizer", "--window", "--chunk-tokens")
MORE = ("--memory-tokens", "--cuts", "--prompts", "--gate", "--encoding", "--errors", "--display")
MORE += ("--trust", "--temperature")


@pytest.mark.parametrize("command", ["ask", "estimate"])
def test_asking_and_estimating_take_the_same_options(invoke: Invoke, command: str) -> None:
    shown = invoke(command, "--help").output
    assert [option for option in SHARED + MORE if option not in shown] == []


def kinds(annotation: Any) -> set[Any]:
    """The members of a union but None."""
    united = get_origin(annotation) in (Union, UnionType)
    return {*(get_args(annotation) if united else [annotation])} - {NoneType}


def test_options_are_the_settings_of_the_agent() -> None:
    from memagent.memory.plan import MemorySettings

    offered = get_type_hints(Ask, include_extras=True)
    for name, field in MemorySettings.model_fields.items():
        if name in ("sampling", "read_ahead"):  # a number or a word is text to a command line
            continue
        kind, option = get_args(offered[name])
        assert kinds(field.annotation) == kinds(kind), name
        least = [rule.ge for rule in field.metadata if hasattr(rule, "ge")]
        assert [option.min] == (least or [None]), name
        default = field.get_default()
        assert default in (None, 0) or f"else {default}." in option.help, name
    assert MemorySettings().sampling.temperature == 0.7, "as the help of --temperature says"


@pytest.mark.parametrize("ahead", ["0", "-2", "1.5", "all"])
def test_what_is_no_read_ahead_is_refused(invoke: Invoke, tmp_path: Path, ahead: str) -> None:
    (book := tmp_path / "book.txt").write_text("Natasha married Pierre.")
    given = ("ask", str(book), "Whom?", "--model", "extractive", "--temperature", "0")
    done = invoke(*given, "--read-ahead", ahead)
    assert done.exit_code == 2
    assert f"--read-ahead must be a number of at least 1, or auto; got {ahead}" in done.stderr


@pytest.mark.parametrize("ahead", ["4", "auto"])
def test_reading_ahead_says_what_it_sent_in_vain(
    invoke: Invoke, tmp_path: Path, ahead: str
) -> None:
    (book := tmp_path / "book.txt").write_text("Natasha married Pierre in the year 1813.\n" * 900)
    given = (
        "ask",
        str(book),
        "Whom did Natasha marry?",
        "--model",
        "extractive",
        "--chunk-tokens",
        "400",
    )
    given += ("--temperature", "0", "--gate", "update")
    done = invoke(*given, "--read-ahead", ahead)
    assert done.exit_code == 0
    assert "sent ahead in vain" in done.output + done.stderr
    assert "Pierre" in done.output


def test_an_unknown_choice_names_the_known_ones(invoke: Invoke) -> None:
    done = invoke("ask", "book.txt", "Who?", "--gate", "ajar")
    assert done.exit_code == 2
    assert "'--gate': 'ajar' is not one of 'off', 'update'" in done.stderr
