"""`smol` itself reads a chapter, where it was fetched (`make smol`)."""

import json
from dataclasses import replace

import pytest

from memagent.cli import chapter
from memagent.cli.exits import Outcome
from memagent.cli.options import Display
from memagent.tasks.scores import string_match_part
from memagent_engines.smol import smol_folder

pytestmark = [
    pytest.mark.skipif(not smol_folder().is_dir(), reason="the model is missing: make smol"),
    pytest.mark.timeout(300),
]
CHARS = 4000
"""Of the chapter: `make demo-smol` reads all of it."""


def test_three_questions_about_a_chapter(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = chapter.chapter()
    monkeypatch.setattr(chapter, "chapter", lambda: replace(whole, text=whole.text[:CHARS]))
    chapter.read_chapter("smol", 0, Outcome(Display.JSON))
    said = json.loads(capsys.readouterr().out)
    assert [result["question"] for result in said["results"]] == [
        q["question"] for q in whole.asked
    ]
    for result, asked in zip(said["results"], whole.asked, strict=True):
        assert result["model"] == "smol"
        assert result["answer"]
        assert result["chunks"] >= 2
        # So small a model may be wrong: what counts is that it is said.
        said_it, has_it = (
            bool(string_match_part(result[part], asked["answers"])) for part in ("answer", "memory")
        )
        assert result["right"] is said_it
        assert (result["fate"] == "kept to the end") is has_it
    assert len(said["results"][0]["said"]) == 1, "the first answer stands near the beginning, once"
