"""Every miss has one verdict, found in the memories of real runs; what cannot be followed is counted."""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.bench.diagnose.runs import CHUNK, document, keep, place, read, record

from memagent.errors import StoreCorrupt, StoreError
from memagent.tasks import Evidence
from memagent.tokens import ByteBound
from memagent_bench.diagnose import (
    Diagnosis,
    Fate,
    Hazard,
    Trace,
    diagnose,
    hazard,
    hazard_per_note,
)
from memagent_bench.folder import RUNS
from memagent_bench.options import DataOptions
from memagent_bench.records import RESULTS
from memagent_bench.ruler.vt import VtTask

FACT = "The number is 123456."
AT = 2 * CHUNK + 50
"""In chunk 2 of 6."""
TEXT = document(6, (AT, FACT))
NEEDLE = place(AT, FACT, "123456")
NONE, HELD, OTHER = "Nothing yet.", "The number is 123456.", "Grass is green."


async def traced(
    folder: Path,
    memories: Sequence[str],
    answer: str = "654321",
    *,
    outputs: Sequence[str] = ("123456",),
    evidence: Sequence[Evidence] = (NEEDLE,),
    text: str = TEXT,
    scorer: str = "string_match_all",
    question: str = "Which?",
    competing: Sequence[int] | None = None,
    **settings: Any,
) -> list[Trace]:
    """What becomes of the references of one sample whose memories are these."""
    await read(folder, text, memories, answer, "run", **settings)
    fields = {
        "evidence": tuple(evidence),
        "competing": None if competing is None else tuple(competing),
        "scorer": scorer,
        "question": question,
    }
    return await asyncio.to_thread(_diagnosed, folder, record(answer, outputs, "run", **fields))


def _diagnosed(folder: Path, *records: Any) -> list[Trace]:
    keep(folder, *records)
    found = diagnose(folder)
    assert (found.unread, found.unanswered, found.without_run) == ({}, 0, 0)
    return found.traces


@pytest.mark.parametrize(
    ("memories", "label", "chunk", "risk"),
    [
        ([NONE] * 6, "never-written", 2, 0),
        ([NONE, NONE, HELD, HELD, OTHER, OTHER], "lost-at-chunk-4", 4, 2),
        ([NONE, NONE, HELD, OTHER, OTHER, OTHER], "lost-at-chunk-3", 3, 1),
        ([NONE, NONE, HELD, HELD, HELD, HELD], "unread-at-answer", None, 3),
        # Back again: never gone, only worded in another way.
        ([NONE, NONE, HELD, OTHER, HELD, HELD], "unread-at-answer", None, 3),
        ([NONE, NONE, HELD, OTHER, HELD, OTHER], "lost-at-chunk-5", 5, 3),
        # Written only behind the chunk that said it: from another place, but written.
        ([NONE, NONE, OTHER, HELD, HELD, OTHER], "lost-at-chunk-5", 5, 2),
        # A guess that was gone when the number was read.
        ([HELD, NONE, NONE, NONE, NONE, NONE], "never-written", 2, 0),
    ],
)
async def test_one_miss_has_one_verdict(
    tmp_path: Path, memories: list[str], label: str, chunk: int | None, risk: int
) -> None:
    (trace,) = await traced(tmp_path, memories)
    assert (trace.label, trace.chunk, trace.risk) == (label, chunk, risk)
    assert not trace.got
    assert trace.reference == "123456"
    assert trace.early == (memories[0] == HELD)
    assert trace.returned == (memories[3:5] == [OTHER, HELD])


async def test_a_memory_that_the_gate_keeps_holds_what_it_held(tmp_path: Path) -> None:
    memories = [NONE, "[keep]", HELD, "[keep]", "[keep]", OTHER]
    (trace,) = await traced(tmp_path, memories, gate="update")
    assert (trace.label, trace.risk) == ("lost-at-chunk-5", 3)


async def test_a_chunk_that_the_gate_skips_is_where_it_was_not_written(tmp_path: Path) -> None:
    memories = [NONE, "[keep]", "[keep]", "[keep]", "[keep]", "[keep]"]
    (trace,) = await traced(tmp_path, memories, gate="update")
    assert (trace.label, trace.chunk) == ("never-written", 2)


async def test_a_run_that_settled_too_early_never_wrote_it(tmp_path: Path) -> None:
    (trace,) = await traced(tmp_path, [NONE, f"{OTHER}\n[done]"], gate="exit")
    assert (trace.label, trace.chunk) == ("never-written", None)


async def test_a_place_across_a_cut_may_be_written_with_either_chunk(tmp_path: Path) -> None:
    at = 3 * CHUNK - 10
    options: dict[str, Any] = {
        "text": document(6, (at, FACT)),
        "evidence": [place(at, FACT, "123456")],
    }
    first, second, never = (tmp_path / name for name in ("first", "second", "never"))
    (trace,) = await traced(first, [NONE, NONE, HELD, OTHER, OTHER, OTHER], **options)
    assert (trace.label, trace.risk) == ("lost-at-chunk-3", 1)
    (trace,) = await traced(second, [NONE, NONE, NONE, HELD, HELD, OTHER], **options)
    assert (trace.label, trace.risk) == ("lost-at-chunk-5", 2)
    (trace,) = await traced(never, [NONE] * 6, **options)
    assert (trace.label, trace.chunk) == ("never-written", 3)


async def test_right_answers_are_followed_too(tmp_path: Path) -> None:
    (trace,) = await traced(tmp_path, [NONE, NONE, HELD, HELD, HELD, OTHER], "123456")
    assert (trace.got, trace.fate, trace.risk) == (True, Fate.LOST, 3)
    found = Diagnosis(tmp_path, [trace])
    assert found.misses == []
    assert hazard(found.traces) == Hazard(1, 3)


async def test_each_reference_is_judged_by_itself(tmp_path: Path) -> None:
    facts = [(50 + i * CHUNK, f"Needle {i}: {n}.") for i, n in enumerate((111111, 222222, 333333))]
    memories = ["111111", "111111", "111111 333333", "333333", "333333", "333333"]
    found = await traced(
        tmp_path,
        memories,
        "Number 111111",
        outputs=("111111", "222222", "333333", "444444"),
        evidence=[place(at, fact, fact[-7:-1], supports=[i]) for i, (at, fact) in enumerate(facts)],
        text=document(6, *facts),
    )
    assert [(t.reference, t.got, t.fate, t.chunk) for t in found] == [
        ("111111", True, Fate.LOST, 3),
        ("222222", False, Fate.NEVER_WRITTEN, 1),
        ("333333", False, Fate.HELD, None),
        ("444444", False, Fate.NO_EVIDENCE, None),
    ]
    assert hazard(found) == Hazard(1, 3 + 3)


async def test_of_several_places_the_first_that_broke_off_decides(tmp_path: Path) -> None:
    """A chain: both names are needed, whatever the order of the losses."""
    facts = [(50, "A leads to Bert."), (CHUNK + 50, "Bert leads to Cleo.")]
    options: dict[str, Any] = {
        "outputs": ("Cleo",),
        "evidence": [place(at, fact, fact.split()[-1][:-1]) for at, fact in facts],
        "text": document(6, *facts),
    }
    broken = ["Bert", "Bert Cleo", "Bert Cleo", "Cleo", NONE, NONE]
    (trace,) = await traced(tmp_path / "lost", broken, **options)
    assert (trace.label, trace.notes, trace.risk) == ("lost-at-chunk-3", ("Bert",), 3)
    (trace,) = await traced(tmp_path / "never", ["Bert", "Bert", "Bert", *[NONE] * 3], **options)
    assert (trace.label, trace.notes, trace.risk) == ("never-written", ("Cleo",), 1)
    (trace,) = await traced(tmp_path / "held", ["Bert", *["Bert Cleo"] * 5], **options)
    assert trace.label == "unread-at-answer"


async def test_a_sum_that_goes_wrong_is_lost_and_one_that_is_not_made_never_written(
    tmp_path: Path,
) -> None:
    """A counter: 1000, then 1100, then 1300. A later right value stands for the earlier ones."""
    facts = [(50, "It starts at 1000."), (2 * CHUNK, "Add 100."), (4 * CHUNK, "Add 200.")]
    notes = [("1000", "1100", "1300"), ("100", "1100", "1300"), ("200", "1300")]
    options: dict[str, Any] = {
        "outputs": ("1300",),
        "evidence": [place(at, fact, *n) for (at, fact), n in zip(facts, notes, strict=True)],
        "text": document(6, *facts),
        "scorer": "number_match",
    }
    wrong = ["at 1000", "at 1000", "at 1,100", "at 1,100", "at 1400", "at 1400"]
    (trace,) = await traced(tmp_path / "wrong", wrong, "1400", **options)
    assert (trace.label, trace.risk) == ("lost-at-chunk-4", 4)
    stale = ["at 1000", "at 1000", "at 1100", "at 1100", "at 1100", "at 1100"]
    (trace,) = await traced(tmp_path / "stale", stale, "1100", **options)
    assert (trace.label, trace.chunk, trace.notes) == ("never-written", 4, ("200", "1300"))
    listed = ["1000", "1000", "1000 + 100", "1000 + 100", *["1000 + 100 + 200"] * 2]
    (trace,) = await traced(tmp_path / "listed", listed, "I cannot add", **options)
    assert trace.label == "unread-at-answer"


async def test_forms_of_one_answer_are_one_reference(tmp_path: Path) -> None:
    """Long QA: no notes at the supporting paragraph, so the answer itself is followed, in any of its forms."""
    fact = "Natasha married Count Bezukhov in 1813."
    bridge = place(50, "A paragraph before it.", supports=[0, 1])
    (trace,) = await traced(
        tmp_path,
        [NONE, NONE, "She weds the count, Bezukhov!", "the Count Bezukhov", NONE, NONE],
        "Nobody knows",
        outputs=("Pierre Bezukhov", "Count Bezukhov"),
        evidence=[bridge, place(AT, fact, supports=[0, 1])],
        text=document(6, (AT, fact)),
        scorer="sub_exact_match",
    )
    assert (trace.reference, trace.label) == ("Pierre Bezukhov", "lost-at-chunk-4")
    assert trace.risk == 2  # "count, Bezukhov!" is the second form already, by its words


async def test_half_of_an_answers_words_count_as_right_where_f1_is_the_score(
    tmp_path: Path,
) -> None:
    options: dict[str, Any] = {"scorer": "f1", "outputs": ("old Moscow",)}
    (trace,) = await traced(tmp_path / "half", [NONE] * 6, "Moscow", **options)
    assert trace.got
    (trace,) = await traced(tmp_path / "less", [NONE] * 6, "Moscow or Paris or so", **options)
    assert not trace.got


async def test_without_evidence_there_is_no_verdict_and_no_risk(tmp_path: Path) -> None:
    (trace,) = await traced(tmp_path, [HELD] * 6, evidence=[])
    assert (trace.label, trace.risk) == ("no-evidence", 0)


async def test_what_a_memory_says_without_the_place_is_no_sign_of_it(tmp_path: Path) -> None:
    options: dict[str, Any] = {"evidence": [place(AT, FACT)], "scorer": "sub_exact_match"}
    memories = ["There is no number so far."] * 6
    (trace,) = await traced(tmp_path / "no", memories, "yes", outputs=("no",), **options)
    assert (trace.label, trace.risk) == ("no-evidence", 0)
    options |= {
        "evidence": [place(AT, FACT, "Ana Brel")],
        "question": "Who is older, Ana Brel or I?",
    }
    memories = ["Ana Brel's age is asked for."] * 6
    (trace,) = await traced(tmp_path / "asked", memories, "You", outputs=("Ana Brel",), **options)
    assert (trace.label, trace.risk) == ("no-evidence", 0)


async def test_a_variable_that_is_dropped_is_a_loss_of_that_one_alone(tmp_path: Path) -> None:
    sample = VtTask(8000, DataOptions(counter=ByteBound())).sample(0)
    names, text = sample.outputs, sample.context
    ends = range(CHUNK, len(text) + CHUNK, CHUNK)
    memories = [" ".join(n for n in names if f"VAR {n} =" in text[:end]) or NONE for end in ends]
    assert names[0] in memories[-2]
    found = await traced(
        tmp_path,
        [*memories[:-1], " ".join(names[1:])],
        " ".join(names[1:]),
        outputs=names,
        evidence=sample.evidence,
        text=text,
    )
    assert [trace.fate for trace in found] == [Fate.LOST, *[Fate.HELD] * 4]
    assert hazard(found).losses == 1


async def test_a_note_that_says_nothing_to_the_score_is_not_in_every_memory(tmp_path: Path) -> None:
    """Numbers are compared, and the note has none: the reference is followed instead."""
    evidence = [place(AT, FACT, "a word")]
    (trace,) = await traced(tmp_path, [NONE] * 6, evidence=evidence, scorer="number_match")
    assert trace.label == "never-written"


async def test_what_cannot_be_followed_is_counted(tmp_path: Path) -> None:
    await read(tmp_path, TEXT, [NONE] * 6, "x", "run")
    await read(tmp_path, TEXT, [NONE] * 6, "x", "torn")
    evidence = {"evidence": (NEEDLE,)}
    keep(
        tmp_path,
        record("x", ["123456"], "run", **evidence),
        record("x", ["123456"], "gone", index=1, **evidence),
        record("x", ["123456"], "torn", index=2, **evidence),
        record(None, ["123456"], "stopped", index=3),
        record("x", ["123456"], None, system="direct-left"),
        record("123456", ["123456"], "run", **evidence),  # done again: the last one counts
    )
    with sqlite3.connect(tmp_path / RUNS) as db:
        db.execute("UPDATE events SET body = '{' WHERE run = 'torn' AND seq = 4")
    db.close()
    found = await asyncio.to_thread(diagnose, tmp_path)
    assert [trace.got for trace in found.traces] == [True]
    assert (found.unanswered, found.without_run) == (1, 1)
    assert found.unread.keys() == {"gone", "torn"}
    assert found.unread["gone"] == "not in the run store"
    assert found.unread["torn"].startswith("run 'torn' is damaged")


async def test_a_run_without_its_answer_is_not_followed(tmp_path: Path) -> None:
    await read(tmp_path, TEXT, [NONE] * 6, "x", "run")
    with sqlite3.connect(tmp_path / RUNS) as db:
        db.execute("UPDATE effects SET committed = NULL, body = NULL WHERE kind GLOB 'answer/*'")
    db.close()
    keep(tmp_path, record("x", ["1"], "run"))
    found = await asyncio.to_thread(diagnose, tmp_path)
    assert list(found.unread.values()) == [
        "no answer in the run store, although its record has one"
    ]


def test_folders_that_are_no_benchmarks(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no records in .*--out"):
        diagnose(tmp_path / "nowhere")
    (tmp_path / RESULTS).touch()
    assert diagnose(tmp_path).traces == []
    keep(tmp_path, record("x", ["1"], "run"))
    with pytest.raises(StoreError, match=r"no run store '.*runs.sqlite'"):
        diagnose(tmp_path)
    assert not (tmp_path / RUNS).exists()
    (tmp_path / RUNS).write_bytes(b"no database" * 100)
    with pytest.raises(StoreCorrupt, match=r"runs\.sqlite"):
        diagnose(tmp_path)
    with (tmp_path / RESULTS).open("a") as file:
        file.write("{}\n")
    with pytest.raises(StoreCorrupt, match="line 2"):
        diagnose(tmp_path)


def test_cells_are_in_the_order_of_their_names_and_lengths(tmp_path: Path) -> None:
    def trace(**fields: Any) -> Trace:
        of = record("x", ["1"], "run", **fields)
        return Trace(of, "1", (), False, Fate.HELD, None, 1, False, 0)

    many = [trace(length=n, system=s) for s in ("m", "a") for n in (16384, 8192, 131072)]
    cells = Diagnosis(tmp_path, [*many, trace(length=8192, system="m")]).cells
    assert [(cell[0], cell[3]) for cell in cells] == [
        (system, length) for system in "am" for length in (8192, 16384, 131072)
    ]
    assert len(cells["m", "tracking", "a", 8192]) == 2


@pytest.mark.parametrize(
    ("losses", "steps", "low", "high"),
    [
        # Values of the exact interval as tables of Clopper and Pearson have them.
        (1, 10, 0.002529, 0.445016),
        (5, 10, 0.187086, 0.812914),
        (10, 10, 0.691503, 1.0),
        # Nothing lost: 1 - 0.025 ** (1 / steps), two-sided like the others.
        (0, 300, 0.0, 0.012221),
        (0, 2, 0.0, 0.841886),
    ],
)
def test_the_interval_of_a_hazard(losses: int, steps: int, low: float, high: float) -> None:
    found = Hazard(losses, steps)
    assert found.rate == losses / steps
    assert found.interval == pytest.approx((low, high), abs=5e-6)


async def test_a_hazard_is_given_for_each_competing_note_too(tmp_path: Path) -> None:
    """The fact stands in chunk 2; of the notes about others one is in its chunk and three are in chunks 3 and 4."""
    places = (10, AT + 40, 3 * CHUNK, 3 * CHUNK + 7, 5 * CHUNK - 1, 5 * CHUNK)
    memories = [NONE, NONE, HELD, HELD, OTHER, OTHER]
    (lost,) = await traced(tmp_path / "lost", memories, competing=places)
    (kept,) = await traced(tmp_path / "kept", [NONE, NONE, *[HELD] * 4], competing=places)
    assert (lost.risk, lost.met, kept.risk, kept.met) == (2, 3, 3, 4)
    assert hazard_per_note([lost, kept]) == Hazard(1, 7)
    (unknown,) = await traced(tmp_path / "unknown", memories)
    assert hazard_per_note([unknown]) is None
    assert hazard_per_note([unknown, lost]) == Hazard(1, 3)


def test_more_losses_than_notes_have_no_interval() -> None:
    assert (Hazard(2, 1).rate, Hazard(2, 1).interval) == (2.0, None)


def test_without_steps_at_risk_there_is_no_hazard() -> None:
    assert (Hazard(0, 0).rate, Hazard(0, 0).interval) == (None, None)
