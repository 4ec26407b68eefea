"""Wording is read from TOML, and its templates run in a sandbox."""

from pathlib import Path

import jinja2
import pytest

from memagent.errors import PromptSetError
from memagent.messages import Leaf
from memagent.prompts.loading import compiled, parsed, raw_bytes, toml_string


class Wording(Leaf):
    name: str


def test_shipped_files_have_names_and_others_paths(tmp_path: Path) -> None:
    assert b"name" in raw_bytes("plain", ("plain",))
    own = tmp_path / "own.toml"
    own.write_bytes(b"x")
    assert raw_bytes(own, ()) == raw_bytes(str(own), ()) == b"x"


@pytest.mark.parametrize("spec", ["plain", "a\0b", "."], ids=["unknown", "no-path", "folder"])
def test_what_cannot_be_read_is_named_with_what_there_is(spec: str) -> None:
    with pytest.raises(PromptSetError, match="one of only"):
        raw_bytes(spec, ("only",))


def test_text_is_normalised() -> None:
    assert parsed(Wording, b'\xef\xbb\xbfname = "x"\r\n\r\n', "own") == (
        Wording(name="x"),
        'name = "x"\n',
    )


@pytest.mark.parametrize(
    "raw",
    [b"\xff", b"name", b"name = 3", b'name = "x"\nother = 1', b"a = " + b"[" * 5000],
    ids=["utf8", "toml", "type", "unknown", "deep"],
)
def test_what_is_no_wording_is_refused(raw: bytes) -> None:
    with pytest.raises(PromptSetError, match="'own'"):
        parsed(Wording, raw, "own")


def test_templates_are_strict_and_in_a_sandbox() -> None:
    assert compiled("{{ a }}\n").render(a="<b>") == "<b>\n"
    with pytest.raises(jinja2.UndefinedError):
        compiled("{{ a }}").render()
    with pytest.raises(jinja2.exceptions.SecurityError):
        compiled("{{ a.__class__.__mro__ }}").render(a=1)
    assert compiled("same") is compiled("same")


@pytest.mark.parametrize("text", ["", 'a "b" \\', "\x7f\x00\u4e2d\n"])
def test_strings_are_those_of_toml(text: str) -> None:
    raw = f"name = {toml_string(text)}".encode()
    assert parsed(Wording, raw, "own")[0].name == text
