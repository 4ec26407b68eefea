import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import mean

import pytest
from tests.bench.diagnose import runs
from typer.testing import CliRunner

from memagent.errors import ConfigError
from memagent_bench.diagnose.traces import Fate
from memagent_nano import plots, readings, survival, tables
from memagent_nano.command import app
from memagent_nano.readings import Trial

CHUNKS = 10
LENGTH = 1024
"""That records say; a chunk is a tenth of it."""
FACT = "The number is 123456."
OUT = "123456"


def read(
    folder: Path,
    index: int,
    *,
    lost: int | None,
    length: int = LENGTH,
    task: str = "once",
    notes: int = 1,
) -> None:
    """A run over ten chunks whose memory holds the fact of the first one, up to chunk `lost`."""
    run = f"{task}-{length}-{index}"
    held = CHUNKS if lost is None else lost
    memories = [OUT if chunk < held else "nothing" for chunk in range(CHUNKS)]
    answer = OUT if lost is None else "no idea"
    text = runs.document(CHUNKS, (0, FACT))
    asyncio.run(runs.read(folder, text, memories, answer, run))
    record = runs.record(
        answer, [OUT], run, index=index, suite="notes", task=task, length=length, chars=len(text),
        chunks=CHUNKS, system="memory", scorer="number_match", evidence=(runs.place(0, FACT, OUT),) * notes,
    )  # fmt: skip
    runs.keep(folder, record)


def weights(folder: Path, said: bytes = b"weights") -> Path:
    """A policy, as far as it is told from others."""
    policy = folder / "policy"
    policy.mkdir(exist_ok=True)
    (policy / readings.WEIGHTS).write_bytes(said)
    return policy


def followed(folder: Path) -> list[Trial]:
    return readings.follow(folder, weights(folder))


def test_a_hazard_of_what_was_read_goes_on_in_longer_documents(tmp_path: Path) -> None:
    for index, lost in enumerate((None, None, None, 4)):
        read(tmp_path, index, lost=lost)
    read(tmp_path, 0, lost=None, length=LENGTH // 2)
    read(tmp_path, 0, lost=1, length=4 * LENGTH)  # longer than what is asked for
    wanted, found = {LENGTH: 60, 10 * LENGTH: 12}, followed(tmp_path)
    hazards, said = survival.predict(found, wanted, longest=LENGTH)
    # Nine steps behind the first chunk where nothing is lost, four up to the loss.
    assert [(one.lengths, one.losses, one.steps) for one in hazards] == [
        ((LENGTH // 2,), 0, 9),
        ((LENGTH,), 1, 9 * 3 + 4),
        ((LENGTH // 2, LENGTH), 1, 9 * 4 + 4),
    ]
    whole = hazards[-1]
    assert whole.sound == 1.0
    # Nine chunks of ten stand behind the start of the note's, at 1 - 0.05 right answers of all.
    assert (1 - whole.bearable) ** 10 == pytest.approx(0.95, abs=2e-3)
    assert whole.rate == pytest.approx(1 / 40)
    assert whole.low < whole.rate < whole.high
    assert [(one.chunks, one.n) for one in said] == [(10, 60), (100, 12)]
    assert [one.mean for one in said] == pytest.approx([(39 / 40) ** 10, (39 / 40) ** 100])
    assert all(one.low <= one.mean <= one.high for one in said)
    assert said == survival.predict(found, wanted, longest=LENGTH)[1]
    # What a gate kept is no part of what a model keeps.
    others = [replace(one, system="memory-gate", score=0.0) for one in found]
    assert survival.predict([*found, *others], wanted, longest=LENGTH) == (hazards, said)


def test_a_forecast_holds_what_a_constant_hazard_makes() -> None:
    """Notes anywhere, a fifth never written, a known hazard: the forecast is right in the middle, and 95% intervals
    hold what as many more samples give, most times."""
    rng, rate, steps, n, wrote, held = Random(0), 0.02, 40, 60, 0.8, 0
    means: list[float] = []
    truth = wrote * mean((1 - rate) ** (2 * steps * (place + 0.5) / 100) for place in range(100))
    for trial in range(40):
        found: list[Trial] = []
        for index in range(60):
            behind = rng.random()
            risk = round(steps * behind)
            lost = next((step for step in range(risk) if rng.random() < rate), None)
            fate = Fate.HELD if lost is None else Fate.LOST
            if rng.random() > wrote:
                risk, fate = 0, Fate.NEVER_WRITTEN
            found.append(
                Trial(
                    system="memory", task="once", length=LENGTH, seed=trial, index=index,
                    tokens=LENGTH, chars=steps, bytes=steps, chunks=steps, score=float(fate == Fate.HELD),
                    fate=fate, risk=risk if fate != Fate.LOST or lost is None else lost + 1, behind=behind,
                )
            )  # fmt: skip
        said = survival.forecast(found, 2 * LENGTH, n)
        seen = sum(rng.random() < truth for _ in range(n)) / n
        held += said.low <= seen <= said.high
        means.append(said.mean)
        assert said.low <= said.mean <= said.high
        assert said.high - said.low < 0.5
    assert 35 <= held <= 40
    assert mean(means) == pytest.approx(truth, abs=0.03)


def test_a_forecast_of_a_rare_loss_holds_its_own_mean(tmp_path: Path) -> None:
    one = Trial(
        system="memory", task="once", length=LENGTH, seed=0, index=0, tokens=LENGTH, chars=9,
        bytes=9, chunks=5000, score=1.0, fate=Fate.HELD, risk=5000, behind=1.0,
    )  # fmt: skip
    found = [replace(one, index=index) for index in range(60)]
    found += [replace(one, index=60, score=0.0, fate=Fate.LOST, risk=1)]
    said = survival.forecast(found, LENGTH // 100, 8)
    assert said.low <= said.mean <= said.high
    assert said.mean < 1
    plots.survival(survival.points(found), [said], tmp_path / "one.png")


def test_a_task_that_was_never_written_hides_no_other(tmp_path: Path) -> None:
    read(tmp_path, 0, lost=4)
    found = followed(tmp_path)
    never = [replace(one, task="sign", fate=Fate.NEVER_WRITTEN, risk=0) for one in found]
    assert [one.task for one in survival.hazards([*never, *found])] == ["once"]
    assert survival.hazards(never) == []


def test_the_hazard_with_the_gate_is_another_one(tmp_path: Path) -> None:
    read(tmp_path, 0, lost=4)
    found = followed(tmp_path)
    with_gate = [replace(one, system="memory-gate", fate=Fate.HELD) for one in found]
    both = survival.hazards([*with_gate, *found])
    assert [(one.system, one.losses > 0) for one in both] == [
        ("memory", True),
        ("memory-gate", False),
    ]
    assert "| once, memory-gate |" in tables.hazards(both)


def test_readings_of_two_policies_are_never_in_one_file(tmp_path: Path) -> None:
    read(tmp_path, 0, lost=None)
    file = tmp_path / "kept" / "all.jsonl"
    before = readings.keep(followed(tmp_path), file)
    other = readings.follow(tmp_path, weights(tmp_path, b"trained again"))
    with pytest.raises(ConfigError, match=r"several policies .*give each a file"):
        readings.keep(other, file)
    assert readings.read(file) == before
    with pytest.raises(ConfigError, match="has no weights"):
        readings.follow(tmp_path, tmp_path / "kept")


def test_records_without_their_runs_are_refused(tmp_path: Path) -> None:
    read(tmp_path, 0, lost=None)
    runs.keep(tmp_path, runs.record(OUT, [OUT], "elsewhere", index=1, suite="notes", task="once",
                                    evidence=(runs.place(0, FACT, OUT),)))  # fmt: skip
    with pytest.raises(ConfigError, match="'elsewhere': not in the run store"):
        followed(tmp_path)


def test_what_hangs_on_several_notes_is_left_out(tmp_path: Path) -> None:
    read(tmp_path, 0, lost=4)
    read(tmp_path, 1, lost=4, task="hop", notes=2)
    hazards, said = survival.predict(followed(tmp_path), {LENGTH: 60}, longest=LENGTH)
    assert {one.task for one in hazards} == {one.task for one in said} == {"once"}
    other = tmp_path / "other"
    other.mkdir()
    read(other, 1, lost=4, task="hop", notes=2)
    with pytest.raises(ConfigError, match=r"stands in one note.*'once'"):
        survival.predict(followed(other), {LENGTH: 60}, longest=LENGTH)


def test_readings_of_several_folders_are_kept_in_one_file(tmp_path: Path) -> None:
    first, second, file = tmp_path / "first", tmp_path / "second", tmp_path / "kept" / "all.jsonl"
    for folder, length in ((first, LENGTH), (second, 4 * LENGTH)):
        folder.mkdir()
        read(folder, 0, lost=None, length=length)
        read(folder, 1, lost=4, length=length)
    for folder, whole in ((first, 2), (second, 4), (first, 4)):  # the last ones are there already
        policy = str(weights(folder))
        asked = ["follow", str(folder), "--policy", policy, "--out", str(file)]
        ended = CliRunner().invoke(app, asked)
        assert ended.exit_code == 0, ended.output
        assert f"2 documents of {folder}, {whole} in all" in ended.output.replace("\n", " ")
    kept = readings.read(file)
    assert kept == [*followed(first), *followed(second)]
    assert [(one.index, one.length, one.fate, one.risk, one.score) for one in kept] == [
        (0, LENGTH, "held", 9, 1.0),
        (1, LENGTH, "lost", 4, 0.0),
        (0, 4 * LENGTH, "held", 9, 1.0),
        (1, 4 * LENGTH, "lost", 4, 0.0),
    ]
    assert {one.behind for one in kept} == {1.0}


def test_a_document_without_an_answer_is_a_wrong_one_and_says_nothing_of_the_hazard(
    tmp_path: Path,
) -> None:
    read(tmp_path, 0, lost=None)
    failed = runs.record(
        None, [OUT], "none", index=1, suite="notes", task="once", length=LENGTH, chars=100,
        system="memory", scorer="number_match", evidence=(runs.place(0, FACT, OUT),),
    )  # fmt: skip
    runs.keep(tmp_path, failed)
    found = followed(tmp_path)
    assert [(one.score, one.fate) for one in found] == [(1.0, "held"), (0.0, "")]
    assert [point.mean for point in survival.points(found)] == [0.5]
    assert survival.predict(found, {LENGTH: 1}, longest=LENGTH)[0][0].sound == 1.0


@pytest.mark.parametrize("right", range(13))
def test_any_share_of_right_answers_has_a_picture(tmp_path: Path, right: int) -> None:
    one = Trial(
        system="memory", task="once", length=LENGTH, seed=0, index=0, tokens=LENGTH, chars=9,
        bytes=9, chunks=9, score=1.0, fate="held", risk=3, behind=0.5,
    )  # fmt: skip
    found = [replace(one, index=index, score=float(index < right)) for index in range(12)]
    (point,) = survival.points(found)
    assert 0 <= point.low <= point.mean <= point.high <= 1
    plots.survival([point], [], tmp_path / "one.png")


@pytest.mark.parametrize("text", [None, "no json", '{"task": "once"}'])
def test_a_file_that_holds_no_readings_says_so(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "all.jsonl"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match="`follow` wrote"):
        readings.read(file)


def test_what_was_said_is_compared_with_what_was_measured(tmp_path: Path) -> None:
    for index, (short, long) in enumerate(((None, 2), (None, 1), (None, None), (4, 4))):
        read(tmp_path, index, lost=short)
        read(tmp_path, index, lost=long, length=2 * LENGTH)
    file, said, out = (tmp_path / name for name in ("all.jsonl", "said.json", "pictures"))
    readings.keep(followed(tmp_path), file)
    asked = ["predict", str(file), "--lengths", "1k,8k", "--out", str(said), "--longest", "1k"]
    wrong = CliRunner().invoke(app, [*asked, "--samples", "60"])
    assert wrong.exit_code == 2
    assert "a number for each of the 2 lengths" in wrong.output
    asked += ["--samples", "60,12"]
    ended = CliRunner().invoke(app, asked)
    assert ended.exit_code == 0, ended.output
    assert "| once | 1K | 1 | 31 | 3.2e-02 [" in ended.output
    again = CliRunner().invoke(app, asked)
    assert again.exit_code == 2
    assert "is not said again" in again.output

    compared = ["lengths", str(file), "--said", str(said), "--out", str(out)]
    ended = CliRunner().invoke(app, compared)
    assert ended.exit_code == 0, ended.output
    rows = [line for line in ended.output.splitlines() if line.startswith("| once")]
    assert [row.split("|")[2].strip() for row in rows[:3]] == ["1K", "2K", "8K"]
    assert "0.75 [" in rows[0]
    assert rows[0].endswith("| 4 |  |  |")
    # The same questions: one of three that were right at the shortest length is right here.
    assert "0.25 [" in rows[1]
    assert "| -0.50 [" in rows[1]
    assert rows[1].endswith("] | inconclusive |")
    assert rows[2].endswith("|  |  |  |  |")
    for picture in ("survival.png", "depths.png"):
        assert (out / picture).read_bytes().startswith(b"\x89PNG")


def test_readings_without_short_documents_say_so(tmp_path: Path) -> None:
    read(tmp_path, 0, lost=None)
    with pytest.raises(ConfigError, match="at most 10 tokens"):
        survival.predict(followed(tmp_path), {LENGTH: 1}, longest=10)
