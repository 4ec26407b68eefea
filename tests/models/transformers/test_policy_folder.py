"""A policy's folder from the command line: asked, estimated, resumed, shown in the demo."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.models.transformers.folders import policy_folder
from typer.testing import CliRunner

from memagent.cli.app import app
from memagent.cli.exits import WRONG
from memagent.prompts import PromptSet
from memagent.runstore import RunStore

TEXT = "The old prince rode to the village and spoke to nobody. " * 200


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return policy_folder(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def book(tmp_path: Path) -> Path:
    (tmp_path / "book.txt").write_text(TEXT)
    return tmp_path / "book.txt"


def run(*args: str | Path, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [*map(str, args), "--display", "json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def test_asking_and_estimating_take_its_settings(folder: Path, book: Path, tmp_path: Path) -> None:
    model = ("--model", f"transformers:{folder}")
    store = tmp_path / "runs.sqlite"
    expected = run("estimate", book, "Who rode?", *model)
    assert expected["window"] == 800
    said = run("ask", book, "Who rode?", *model, "--store", store)
    assert said["usage"]["calls"] == expected["calls_max"]
    record = RunStore(store).get(said["run_id"])
    assert record.binding["budget"]["memory"] == 12
    assert (record.binding["cuts"], record.binding["sampling"]["temperature"]) == ("exact", 0)
    assert record.binding["prompts"].endswith(PromptSet.load("boxed").hash)


def test_options_of_the_command_line_win(folder: Path, book: Path) -> None:
    model = ("--model", f"transformers:{folder}")
    more = ("--window", "900", "--prompts", "plain")
    assert run("estimate", book, "Who rode?", *model, *more)["window"] == 900


def test_a_run_goes_on_as_it_was_begun(folder: Path, book: Path, tmp_path: Path) -> None:
    model = ("--model", f"transformers:{folder}")
    store = ("--store", tmp_path / "runs.sqlite")
    begun = run("ask", book, "Who rode?", *model, *store, "--max-calls", "2", code=6)
    settings = folder / "memagent.toml"
    kept = settings.read_text()
    settings.write_text("window = 1000\n")  # nothing that a run which is under way should follow
    try:
        done = run("resume", begun["run_id"], *store)
    finally:
        settings.write_text(kept)
    assert done["answer"] is not None
    assert done["answer"] == run("ask", book, "Who rode?", *model)["answer"]


def test_the_demo_runs_to_its_end_and_calls_a_wrong_answer_wrong(folder: Path) -> None:
    said = run(
        *("demo", "--model", f"transformers:{folder}", "--tokens", "16k", "--seed", "3"), code=WRONG
    )
    assert said["right"] is False
    assert said["fact"].startswith("The purse of ")
    assert said["chunks"] > 20
    assert said["tokens_per_second"] > 0


def test_the_demo_in_words(folder: Path) -> None:
    done = CliRunner().invoke(
        app,
        [*("demo", "--model", f"transformers:{folder}", "--tokens", "16k", "--display", "plain")],
    )
    assert done.exit_code == WRONG
    for words in ("purse of", "The gate is off", "wrong: it is", "tokens/s"):
        assert words in done.stdout
