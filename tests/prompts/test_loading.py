"""Wording is read from TOML, and its templates run in a sandbox."""

from pathlib import Path
from typing import Any

import jinja2
import pytest

from memagent.errors import PromptSetError
from memagent.prompts import PromptSet
from memagent.prompts.loading import Wording, compile_template


def test_shipped_files_have_names_and_others_paths(tmp_path: Path) -> None:
    assert PromptSet.load(None).name == PromptSet.load("plain").name == "plain"
    own = tmp_path / "own.toml"
    own.write_bytes(b'name = "x"')
    assert Wording.load(own).name == Wording.load(str(own)).name == "x"


@pytest.mark.parametrize(
    "spec", ["fancy", "a\0b", ".", 5], ids=["unknown", "no-path", "folder", "number"]
)
def test_what_cannot_be_read_is_named_with_what_there_is(spec: Any) -> None:
    with pytest.raises(PromptSetError, match="one of plain, boxed"):
        PromptSet.load(spec)


def test_text_is_normalised() -> None:
    read = Wording.parse(b'\xef\xbb\xbfname = "x"\r\n\r\n', name="own")
    assert (read.name, read.source) == ("x", 'name = "x"\n')


@pytest.mark.parametrize(
    "raw",
    [b"\xff", b"name", b"name = 3", b'name = "x"\nother = 1', b"a = " + b"[" * 5000],
    ids=["utf8", "toml", "type", "unknown", "deep"],
)
def test_what_is_no_wording_is_refused(raw: bytes) -> None:
    with pytest.raises(PromptSetError, match="'own'"):
        Wording.parse(raw, name="own")


def test_templates_are_strict_and_in_a_sandbox() -> None:
    assert compile_template("{{ a }}\n").render(a="<b>") == "<b>\n"
    with pytest.raises(jinja2.UndefinedError):
        compile_template("{{ a }}").render()
    with pytest.raises(jinja2.exceptions.SecurityError):
        compile_template("{{ a.__class__.__mro__ }}").render(a=1)
    assert compile_template("same") is compile_template("same")


@pytest.mark.parametrize("text", ["x", 'a "b" \\', "\x7f\x00\u4e2d\n"])
def test_what_is_written_reads_back_the_same(text: str) -> None:
    wording = Wording(name=text)
    read = Wording.parse(wording.source.encode())
    assert (read.name, read.source) == (text, wording.source)
