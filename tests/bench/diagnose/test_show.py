"""What a diagnosis looks like: the table, the misses one by one, JSON; and the step that decided a miss."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.bench.diagnose.runs import CHUNK, document, keep, place, read, record

from memagent.cli.changes import Change
from memagent.errors import RunNotFound
from memagent.runstore import RunStore
from memagent_bench.diagnose import Diagnosis, diagnose, fatal, show, to_json
from memagent_bench.diagnose.fatal import difference
from memagent_bench.folder import RUNS

FACT = "The number is 123456."
AT = 2 * CHUNK + 50
TEXT = document(4, (AT, FACT))
NONE, OTHER = "Nothing yet.", "Nothing yet. Grass is green."
HELD = "Nothing yet. The number is 123456."
RUN_MEMORIES = {
    "never": [NONE, NONE, OTHER, OTHER],
    "lost": [NONE, NONE, HELD, OTHER],
    "unread": [NONE, NONE, HELD, HELD],
    "kept": [NONE, "[keep]", "[keep]", "[keep]"],
    "early": [f"{NONE}\n[done]"],
    "cut": [NONE, NONE, HELD, "The grass is green. " * 100],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six misses of one system, one right answer of another, and records that are left out."""
    folder = tmp_path_factory.mktemp("bench")
    records: list[Any] = []
    for index, (run_id, memories) in enumerate(RUN_MEMORIES.items()):
        asyncio.run(read(folder, TEXT, memories, "[bold]654321", run_id, gate="both"))
        fields: dict[str, Any] = {
            "index": index,
            "task": "ledger",
            "length": 8192,
            "evidence": (place(AT, FACT, "123456"),),
            "competing": (0, 3 * CHUNK + 5),
        }
        records.append(record("[bold]654321", ["123456"], run_id, **fields))
    asyncio.run(read(folder, TEXT, RUN_MEMORIES["lost"], "123456", "right"))
    evidence = (place(AT, FACT, "123456"),)
    records += [
        record("123456", ["123456"], "right", system="gated", evidence=evidence),
        record("123456", ["123456"], "absent", system="gated", index=1),
        record(None, ["123456"], "stopped", system="gated", index=2),
        record("123456", ["123456"], None, system="direct-left"),
    ]
    keep(folder, *records)
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Diagnosis:
    return diagnose(folder)


def shown(found: Diagnosis, misses: int = 0, width: int = 200) -> str:
    stream = io.StringIO()
    show(found, Console(file=stream, width=width), misses)
    return stream.getvalue()


def test_the_table_has_a_row_for_each_cell_and_each_system(found: Diagnosis) -> None:
    rows = [line.split() for line in shown(found).splitlines()]
    head = rows[0]
    assert head[:3] == ["system", "task", "length"]
    assert rows[1][:4] == ["gated", "tracking", "a", "1000"]
    # wanted, missed, never written, lost, unread, no evidence; steps at risk; hazard and bounds
    bounds = ["1", "100.00%", "(2.50%", "to", "100.00%)"]
    assert rows[1][4:] == ["1", "0", "0", "0", "0", "0", *bounds, "–", "–"]
    # two of the six losses, with the note that each met
    memory = next(row for row in rows if row[:4] == ["memory", "tracking", "ledger", "8K"])
    assert memory[4:10] == ["6", "6", "3", "2", "1", "0"]
    assert memory[10] == "3"
    assert memory[11] == "66.67%"
    assert memory[15:17] == ["3", "66.67%"]
    assert sum(row[1:3] == ["all", "all"] for row in rows) == 2


def test_a_narrow_console_gets_whole_figures(found: Diagnosis) -> None:
    table, narrow = (shown(found, width=width).splitlines()[:5] for width in (200, 60))
    assert [line.rstrip() for line in narrow] == [line.rstrip() for line in table]


def test_remarks_say_what_is_left_out_and_what_is_strange(found: Diagnosis) -> None:
    text = shown(found)
    assert "1 record of systems without a memory: left out." in text
    assert "1 sample without an answer: left out." in text
    assert "1 run left out: not in the run store." in text
    assert "1 reference answered right although not found in the final memory" in text
    assert "guessed" not in text


def test_a_folder_with_nothing_to_follow_says_so(tmp_path: Path) -> None:
    assert shown(Diagnosis(tmp_path, without_run=2), 5).splitlines() == [
        "There is nothing to diagnose: no answered sample has a run that can be traced.",
        "2 records of systems without a memory: left out.",
    ]


def test_misses_are_listed_with_the_step_that_decided_them(found: Diagnosis) -> None:
    text = shown(found, 100)
    assert text.count("memagent show ") == 6
    never, lost, unread, kept, early, cut = text.split("\n\n")[1:]
    assert "tracking ledger 8K sample 0, memory: never-written" in never
    assert "wanted    123456" in never
    assert "answer    [bold]654321" in never
    assert f"chunk 2, characters {2 * CHUNK} to 1,200: the memory changed" in never
    assert "+ Grass is green." in never
    assert "sample 1, memory: lost-at-chunk-3" in lost
    assert "- The number is 123456." in lost
    assert "+ Grass is green." in lost
    assert "sample 2, memory: unread-at-answer" in unread
    assert "- The number is 123456." in unread
    assert "+ [bold]654321" in unread
    assert "chunk 2, characters 800 to 1,200: the memory was kept unchanged" in kept
    assert "the run settled before this place was read" in early
    assert "the memory was cut from 1,999 to " in cut
    assert shown(found, 2).count("memagent show ") == 2


def test_references_of_one_sample_share_its_question_and_answer(tmp_path: Path) -> None:
    asyncio.run(read(tmp_path, TEXT, [NONE, NONE, HELD, OTHER], "neither", "run"))
    evidence = (place(AT, FACT, "123456"), place(50, "It is red.", "red", supports=[1]))
    question = "Which number, and which colour?"
    keep(
        tmp_path,
        record("neither", ["123456", "red"], "run", evidence=evidence, question=question),
    )
    text = shown(diagnose(tmp_path), 9)
    assert "sample 0, memory: lost-at-chunk-3, never-written" in text
    assert "wanted    123456 (lost-at-chunk-3)" in text
    assert "wanted    red (never-written)" in text
    assert [text.count(part) for part in (question, "neither", "memagent show ")] == [1, 1, 1]


def test_the_fatal_step_has_the_memories_before_and_after_it(
    folder: Path, found: Diagnosis
) -> None:
    store = RunStore(folder / RUNS)
    steps = [fatal(trace, store) for trace in found.misses]
    assert [step.chunk for step in steps] == [2, 3, None, 2, None, 3]
    assert (steps[0].before, steps[0].after, steps[0].span) == (NONE, OTHER, (800, 1200))
    assert (steps[1].before, steps[1].after) == (HELD, OTHER)
    assert (steps[2].before, steps[2].after) == (HELD, "[bold]654321")
    assert steps[3].kept
    assert (steps[3].before, steps[3].after) == (NONE, NONE)
    assert (steps[4].before, steps[4].after) == (NONE, "[bold]654321")
    assert steps[5].truncated is not None
    assert steps[5].truncated[0] == 1999
    lost = found.misses[1]
    change = Change("The number is 123456.", "Grass is green.")
    assert difference(steps[1], lost, most=1) == [change]
    store.close()
    empty = RunStore(None)
    with pytest.raises(RunNotFound):
        fatal(lost, empty)
    empty.close()


def test_json_has_cells_systems_and_misses(found: Diagnosis) -> None:
    whole = json.loads(to_json(found))
    assert whole["systems"]["memory"] == {
        "wanted": 6,
        "missed": 6,
        "never_written": 3,
        "lost": 2,
        "unread_at_answer": 1,
        "no_evidence": 0,
        "losses": 2,
        "steps_at_risk": 3,
        "hazard": pytest.approx(2 / 3),
        "hazard_95": pytest.approx([0.0943, 0.9916], abs=1e-4),
        "notes_met": 3,
        "hazard_per_note": pytest.approx(2 / 3),
        "hazard_per_note_95": pytest.approx([0.0943, 0.9916], abs=1e-4),
    }
    assert whole["all"]["wanted"] == 7
    assert whole["unread"] == {"absent": "not in the run store"}
    assert [cell["length"] for cell in whole["cells"]] == [1000, 8192]
    assert whole["misses"][1] == {
        "system": "memory",
        "suite": "tracking",
        "task": "ledger",
        "length": 8192,
        "index": 1,
        "reference": "123456",
        "verdict": "lost-at-chunk-3",
        "chunk": 3,
        "chunks": None,
        "notes": ["123456"],
        "answer": "[bold]654321",
        "run_id": "lost",
    }


def test_an_empty_diagnosis_is_json_too(tmp_path: Path) -> None:
    assert json.loads(to_json(Diagnosis(tmp_path)))["all"]["hazard"] is None
