"""A user's own samples are measured, and predictions made elsewhere are scored."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.bench.fakes import OPTIONS
from typer.testing import Result

from memagent.errors import ConfigError
from memagent_bench.predictions import score_predictions
from memagent_bench.records import read_records
from memagent_bench.sample_file import grid_of_file
from memagent_bench.suites import tasks_of

Invoke = Callable[..., Result]
SHORT = {
    "context": "The grass is green. The number of Ada is 4711. The sky is blue.",
    "question": "What is the number of Ada?",
    "outputs": ["4711"],
}
LONG = SHORT | {"context": "The grass is green. " * 200 + "Ada lives in Paris.", "outputs": "Paris"}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + "\n")
    return path


def test_samples_of_a_file_are_sorted_by_task_and_length(tmp_path: Path) -> None:
    kept = SHORT | {"task": "b", "max_length": 1500, "tokens_to_generate": 7}
    file = write(tmp_path / "mine.jsonl", SHORT, LONG, kept, SHORT | {"outputs": ["x"]})
    grid = grid_of_file(file, ["memory"], OPTIONS)
    assert (grid.suite, [*grid.tasks]) == ("samples", ["mine", "b"])
    jobs = [(job.task, job.length, job.index) for (job,) in grid.jobs()]
    assert jobs == [("mine", 1024, 0), ("mine", 1024, 1), ("b", 1500, 0), ("mine", 8192, 0)]
    task = grid.tasks["mine"](1024, OPTIONS)
    assert task.sample(0).context == SHORT["context"]
    assert task.sample(1).outputs == ("x",)
    assert task.scorer == "string_match_all"
    assert grid.tasks["mine"](8192, OPTIONS).sample(0).outputs == ("Paris",)
    sample = grid.tasks["b"](1500, OPTIONS).sample(0)
    assert (sample.generate, sample.tokens) == (7, len(sample.prompt) + 7)
    assert sample.prompt.endswith("What is the number of Ada?\nAnswer:")
    with pytest.raises(ConfigError, match="has no sample 2"):
        task.sample(2)


def test_lines_of_generate_are_samples(invoke: Invoke, tmp_path: Path) -> None:
    made = tmp_path / "made.jsonl"
    args = ("--task", "niah_multivalue", "--length", "2k", "-n", "2", "--out", made)
    assert invoke("generate", "ruler", *args).exit_code == 0
    grid = grid_of_file(made, ["memory"], OPTIONS)
    first = json.loads(made.read_text().splitlines()[0])
    (length,) = grid.lengths
    sample = grid.tasks["niah_multivalue"](length, OPTIONS).sample(0)
    assert sample.prompt == first["input"] + first["answer_prefix"]
    assert sample.context == first["input"][slice(*first["context_span"])]
    assert sample.outputs == tuple(first["outputs"])


@pytest.mark.parametrize("task", ["counter", "tally", "ledger"])
def test_lines_of_generate_keep_their_scorer(invoke: Invoke, tmp_path: Path, task: str) -> None:
    made = tmp_path / "made.jsonl"
    args = ("--task", task, "--length", "2k", "-n", "1", "--out", made)
    assert invoke("generate", "tracking", *args).exit_code == 0
    grid = grid_of_file(made, ["memory"], OPTIONS)
    scorer = tasks_of("tracking")[task](2048, OPTIONS).scorer
    assert grid.tasks[task](grid.lengths[0], OPTIONS).scorer == scorer


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (SHORT | {"outputs": [" "]}, "line 2.*none blank"),
        (SHORT | {"outputs": ["many"], "scorer": "number_match"}, "line 2.*number_match needs one"),
        (SHORT | {"scorer": "exact"}, "line 2: there is no scorer 'exact'"),
    ],
)
def test_references_are_checked_before_the_first_call(
    tmp_path: Path, line: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        grid_of_file(write(tmp_path / "mine.jsonl", SHORT, line), ["memory"], OPTIONS)
    predicted = line | {"prediction": "4711"}
    with pytest.raises(ConfigError, match=words):
        score_predictions([write(tmp_path / "p.jsonl", SHORT | {"prediction": "4711"}, predicted)])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (SHORT | {"question": " "}, "line 2: .*the question is blank"),
        (SHORT | {"context": "\n"}, "line 2: .*the document is blank"),
        ({**SHORT, "context": None, "input": "a  b", "context_span": [1, 3]}, "document is blank"),
    ],
)
def test_a_sample_that_no_system_can_be_asked_is_refused(
    invoke: Invoke, tmp_path: Path, line: dict[str, Any], words: str
) -> None:
    file = write(tmp_path / "mine.jsonl", SHORT, line)
    with pytest.raises(ConfigError, match=words):
        grid_of_file(file, ["memory"], OPTIONS)
    done = invoke("samples", file, "--model", "extractive", "--out", tmp_path / "out")
    assert (done.exit_code, (tmp_path / "out").exists()) == (2, False)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.jsonl", SHORT, SHORT)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    task = grid_of_file(file, ["memory"], OPTIONS).tasks["mine"](1024, OPTIONS)
    assert task.sample(0).context == task.sample(1).context == SHORT["context"]


def test_own_samples_are_measured(invoke: Invoke, tmp_path: Path) -> None:
    file = write(tmp_path / "mine.jsonl", SHORT, LONG | {"task": "cities"})
    out = tmp_path / "out"
    args = ("samples", file, "--model", "extractive", "--systems", "bm25,memory", "--out", out)
    done = invoke(*args)
    assert done.exit_code == 0, done.output
    records = read_records(out)
    assert {(r.suite, r.task, r.length) for r in records} == {
        ("samples", "mine", 1024),
        ("samples", "cities", 2048),
    }
    assert all(record.score == 1 for record in records if record.system == "bm25")
    assert "of 2 tasks" not in done.stdout, "the file has no such sample"
    assert invoke("report", out).exit_code == 0
    write(file, SHORT)
    changed = invoke(*args)
    assert (changed.exit_code, "sample_file was 'sha256:" in changed.stderr) == (5, True)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has no samples"),
        ([SHORT, {"question": "?"}], "line 2: outputs"),
        ([SHORT | {"outputs": []}], "line 1: outputs"),
        ([{"question": "?", "outputs": "x"}], "no document"),
        *(
            (
                [{"question": "?", "outputs": "x", "input": "abc", "context_span": span}],
                "line 1: .*context_span must be .* got",
            )
            for span in ([0, 4], [2, 1], [1, 1], [-1, 2])
        ),
        ([SHORT | {"scorer": "bleu"}], "no scorer 'bleu'"),
        ([SHORT | {"outputs": ["a", "b"]}], "several references.*string_match_part"),
        ([SHORT, SHORT | {"scorer": "f1"}], "'string_match_all' and 'f1'"),
    ],
)
def test_what_is_no_sample_is_named(tmp_path: Path, lines: list[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        grid_of_file(write(tmp_path / "mine.jsonl", *lines), ["memory"], OPTIONS)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        grid_of_file(tmp_path / "none.jsonl", ["memory"], OPTIONS)


def test_predictions_of_ruler_are_scored_by_task(invoke: Invoke, tmp_path: Path) -> None:
    """Its files are named by their tasks, and have `pred` and `outputs`."""
    needles = write(
        tmp_path / "niah_multivalue.jsonl",
        {"pred": "It is 1 and 2.", "outputs": ["1", "2"], "length": 4000},
        {"pred": "It is 1.", "outputs": ["1", "2"]},
    )
    questions = write(
        tmp_path / "qa_1.jsonl",
        {"pred": "in Paris", "outputs": ["Paris", "Lutetia"]},
        {"pred": None, "outputs": ["Rome"]},
    )
    again = tmp_path / "elsewhere" / ".." / needles.name
    again.parent.parent.mkdir()
    rows = score_predictions([needles, questions, needles, again])
    assert [
        (row.task, row.estimate.mean, row.estimate.n, row.estimate.unscored) for row in rows
    ] == [
        ("niah_multivalue", 0.75, 2, 0),
        ("qa_1", 0.5, 2, 1),
        ("(mean)", 0.625, 4, 1),
    ]
    done = invoke("score", needles, questions)
    assert done.exit_code == 0
    table = [line.split() for line in done.stdout.splitlines()]
    assert table[1][:4] == ["niah_multivalue", "2", "0", "0.750"]
    assert table[2][-1] == "string_match_part"
    said = json.loads(invoke("score", needles, "--display", "json").stdout)
    assert said["scores"][0]["estimate"]["mean"] == 0.75
    plain = invoke("score", needles, "--display", "none").stdout
    assert plain == "niah_multivalue\t\t0.75\t2\n"


def test_predictions_of_several_folders_are_said_to_be_scored_together(
    invoke: Invoke, tmp_path: Path
) -> None:
    files: list[Path] = []
    for name, answer in (("first", "It is 1."), ("second", "It is 3.")):
        (tmp_path / name).mkdir()
        for task in ("niah_single_1", f"qa_{len(files)}"):
            line = {"pred": answer, "outputs": ["1"]}
            files.append(write(tmp_path / name / f"{task}.jsonl", line))
    done = invoke("score", *files)
    assert done.stdout.splitlines()[1].split()[:4] == ["niah_single_1", "2", "0", "0.500"]
    assert "caution: predictions of niah_single_1 are from several folders" in done.stderr
    assert invoke("score", *files[:2]).stderr == ""


def test_predictions_name_task_scorer_and_length(tmp_path: Path) -> None:
    line = {"prediction": "it is 7", "answers": "7", "task": "sums", "metric": "number_match"}
    file = write(tmp_path / "mine.jsonl", line | {"max_length": 16384}, line | {"max_length": 8192})
    rows = score_predictions([file])
    assert [(row.task, row.length, row.scorers) for row in rows] == [
        ("sums", 8192, ("number_match",)),
        ("sums", 16384, ("number_match",)),
    ]
    (row, _) = score_predictions([file], "exact_match")
    assert (row.estimate.mean, row.scorers) == (0.0, ("exact_match",))


def test_wrong_predictions_end_the_command(invoke: Invoke, tmp_path: Path) -> None:
    file = write(tmp_path / "mine.jsonl", {"outputs": ["7"]})
    done = invoke("score", file)
    assert (done.exit_code, "line 1: prediction" in done.stderr) == (2, True)
    assert invoke("score", tmp_path / "none").exit_code == 2
    assert invoke("score", write(file), "--scorer", "f1").exit_code == 2
