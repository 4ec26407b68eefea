import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent import terminal as output
from memagent.terminal import Paper, amount, clean, duration, moment, shorten


@given(st.text())
def test_no_control_character_gets_through(text: str) -> None:
    shown = clean(text)
    assert all(char in "\n\t" or char.isprintable() or ord(char) >= 0xA0 for char in shown)


def test_clean_leaves_texts_alone() -> None:
    assert clean("Größe\t1\n日本 👩‍🚀") == "Größe\t1\n日本 👩‍🚀"
    assert clean("a\r\nb\x1b[2Jc") == "a\nb\ufffd[2Jc"


@given(st.text(), st.integers(1, 40))
def test_shorten_makes_one_line(text: str, width: int) -> None:
    line = shorten(text, width)
    assert len(line) <= width
    assert "\n" not in line


def test_numbers() -> None:
    assert [amount(n) for n in (0, 9876, 12_345, 999_960, 4_560_000)] == [
        *("0", "9,876", "12.3k", "1.00M", "4.56M")
    ]
    assert [duration(s) for s in (0.04, 4.2, 12.4, 200, 7500)] == [
        *("0.0 s", "4.2 s", "12 s", "3 min 20 s", "2 h 5 min")
    ]
    assert len(moment(0)) == 16


def test_paper_without_colour(capsys: pytest.CaptureFixture[str]) -> None:
    paper = Paper(colour=False)
    paper.line(("a", "red"), "b\x07\nc ", indent=2)
    paper.line("")
    paper.table([("one", "1"), ("three", "3")])
    assert capsys.readouterr().out == "  ab\ufffd\n  c\n\none    1\nthree  3\n"


def test_paper_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(output.sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.delenv("NO_COLOR", raising=False)
    paper = Paper(colour=True)
    paper.line(("red [b]words[/] wrap here", "red"), indent=2)
    paper.line("")
    lines = stream.getvalue().split("\n")
    assert "\x1b[31m" in lines[0]
    assert "red [b]words[/]" in lines[0]
    assert all(line.startswith("  ") for line in lines[:2])
    assert lines[2:] == ["", ""]
    paper.line("+ words that wrap hang", indent=2, hang=2)
    wrapped = [line.rstrip() for line in stream.getvalue().split("\n")[3:]]
    assert wrapped == ["  + words that", "    wrap hang", ""]


def test_a_gist_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    paper = Paper(colour=False)
    paper.gist("a\x07\n b", indent=2, end="  (+1 line)")
    paper.gist("word " * 60, end=" end")
    paper.table([("task", "one\ntwo")])
    first, second, *table = capsys.readouterr().out.splitlines()
    assert first == "  a\ufffd b  (+1 line)"
    assert len(second) <= 100
    assert second.endswith("… end")
    assert table == ["task  one", "      two"]


def test_a_gist_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(output.sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    paper = Paper(colour=True)
    paper.gist("日本語" * 20, indent=4, end=" end")  # two cells each
    paper.table([("task", "words that wrap are aligned")])
    gist, *table = [re.sub(r"\x1b\[\d*m", "", line) for line in stream.getvalue().splitlines()]
    assert gist == "    日本語日本 … end"  # half of the next one has no place
    assert [line.rstrip() for line in table] == [
        "task  words that",
        "      wrap are",
        "      aligned",
    ]
