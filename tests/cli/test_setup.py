import gzip
import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Invoke

from memagent.cli import setup
from memagent.cli.options import Display, chosen_display
from memagent.errors import ConfigError
from memagent.models.limit import Limits
from memagent.runstore import RunRecord, RunStore


def test_a_file_is_replaced_in_its_folder_so_both_must_be_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (out := tmp_path / "rows.jsonl").touch()
    os.mkfifo(pipe := tmp_path / "pipe")
    refused: list[Path] = []
    monkeypatch.setattr(setup.os, "access", lambda path, mode: path not in refused)
    for path in (out, tmp_path):
        setup.check_out(out)
        refused[:] = [path]
        with pytest.raises(ConfigError, match=r"rows\.jsonl': it or its folder isn't writable"):
            setup.check_out(out)
        refused.clear()
    with pytest.raises(ConfigError, match="its folder is missing"):
        setup.check_out(out / "a file is no folder")
    refused.append(tmp_path)
    setup.check_out(pipe)


def test_names_like_those_beside_a_store_are_refused_only_beside_it(tmp_path: Path) -> None:
    (file := tmp_path / "travel").write_text("Text.")
    setup.check_out(tmp_path / "travel-journal", file)
    with pytest.raises(ConfigError, match="belongs to the run store"):
        setup.check_out(tmp_path / "travel-journal", store=file)


def test_questions_keep_their_order() -> None:
    several = setup.Ask(doc="x", question="a", questions=["b", "c"])
    assert several.list_questions() == ("a", "b", "c")
    assert setup.Ask(doc="x", questions=["b"]).list_questions() == ("b",)
    with pytest.raises(ConfigError, match="no question"):
        setup.Ask(doc="x").list_questions()


@pytest.mark.parametrize(
    ("tty", "term", "asked", "shown"),
    [
        (True, "xterm", None, Display.FULL),
        (True, "dumb", None, Display.PLAIN),
        (False, "xterm", None, Display.PLAIN),
        (False, "xterm", Display.FULL, Display.PLAIN),
        (True, "xterm", Display.NONE, Display.NONE),
    ],
)
def test_the_display_fits_the_output(
    monkeypatch: pytest.MonkeyPatch,
    tty: bool,
    term: str,
    asked: Display | None,
    shown: Display,
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: tty)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", term)
    assert chosen_display(asked) is shown


def test_an_agent_is_made_again_from_its_recipe(tmp_path: Path) -> None:
    store = RunStore(None)
    given = setup.Ask(
        doc="x",
        model="extractive",
        tokenizer="bytes",
        window=2000,
        chunk_tokens=500,
        memory_tokens=200,
        cuts="exact",
        prompts="boxed",
        gate="both",
        trust="exact",
        temperature=0.0,
        seed=7,
        max_calls=3,
        max_tokens=9000,
        max_seconds=0.5,
    )
    agent = given.agent(store)
    assert agent.limits == Limits(calls=3, tokens=9000, seconds=0.5)
    recipe = agent.recipe()
    of_an_earlier_version = recipe | {"overlap": 0}
    limits = Limits(calls=5)
    again = setup.agent_again(
        record_of(store, of_an_earlier_version), store, base_url=None, limits=limits
    )
    assert again.recipe() == recipe
    assert again.settings.gate == "both"
    assert again.settings.trust == "exact"
    assert (again.settings.sampling.temperature, again.settings.sampling.top_p) == (0.0, 0.95)
    assert again.limits is limits
    store.close()


def record_of(store: RunStore, recipe: dict[str, Any]) -> RunRecord:
    """A run of that agent, with the budget of the test above."""
    budget = {"window": 2000, "chunk": 500, "memory": 200}
    store.create("r", {"budget": budget, "questions": ["q"]}, recipe, {"name": "n", "path": None})
    return store.get("r")


def test_a_temperature_is_a_number(invoke: Invoke, book: Path) -> None:
    for value in ("nan", "inf", "-1"):
        done = invoke("ask", book, "q", "--model", "extractive", "--temperature", value)
        assert done.exit_code == 2, value


def test_a_damaged_document_is_reported_as_such(invoke: Invoke, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(bytes(range(256)) * 999))
    packed[40:80] = bytes(40)
    (tmp_path / "a.txt.gz").write_bytes(packed)
    done = invoke("ask", tmp_path / "a.txt.gz", "q?", "--model", "extractive")
    assert done.exit_code == 3
    assert "is corrupt gzip data" in done.stderr
