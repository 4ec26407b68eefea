import asyncio
from pathlib import Path
from random import Random

import pytest
from tests.bench.diagnose import runs
from typer.testing import CliRunner

from memagent.errors import ConfigError
from memagent_bench.diagnose.traces import Fate, Trace
from memagent_nano import survival
from memagent_nano.command import app

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


def test_a_hazard_of_what_was_read_goes_on_in_longer_documents(tmp_path: Path) -> None:
    for index, lost in enumerate((None, None, None, 4)):
        read(tmp_path, index, lost=lost)
    read(tmp_path, 0, lost=None, length=LENGTH // 2)
    read(tmp_path, 0, lost=1, length=4 * LENGTH)  # longer than what is asked for
    hazards, said = survival.predict(tmp_path, {LENGTH: 60, 10 * LENGTH: 12}, longest=LENGTH)
    # Nine steps behind the first chunk where nothing is lost, four up to the loss.
    assert [(one.lengths, one.losses, one.steps) for one in hazards] == [
        ((LENGTH // 2,), 0, 9),
        ((LENGTH,), 1, 9 * 3 + 4),
        ((LENGTH // 2, LENGTH), 1, 9 * 4 + 4),
    ]
    whole = hazards[-1]
    assert whole.sound == 1.0
    assert whole.rate == pytest.approx(1 / 40)
    assert whole.low < whole.rate < whole.high
    assert [(one.chunks, one.n) for one in said] == [(10, 60), (100, 12)]
    assert [one.mean for one in said] == pytest.approx([(39 / 40) ** 10, (39 / 40) ** 100])
    assert all(one.low <= one.mean <= one.high for one in said)
    assert said == survival.predict(tmp_path, {LENGTH: 60, 10 * LENGTH: 12}, longest=LENGTH)[1]


def test_a_forecast_holds_what_a_constant_hazard_makes() -> None:
    """Samples of a known hazard: 95% intervals hold what as many more of them give, most times."""
    rng, rate, steps, n, held = Random(0), 0.01, 40, 60, 0
    for trial in range(40):
        traces: list[Trace] = []
        for index in range(60):
            lost = next((step for step in range(steps) if rng.random() < rate), None)
            record = runs.record(
                OUT, [OUT], f"{trial}-{index}", index=index, suite="notes", task="once",
                length=LENGTH, chars=steps, chunks=steps, system="memory", scorer="number_match",
                evidence=(runs.place(0, "", OUT),),
            )  # fmt: skip
            fate = Fate.HELD if lost is None else Fate.LOST
            risk = steps if lost is None else lost + 1
            traces.append(Trace(record, OUT, (OUT,), lost is None, fate, lost, risk, False, 0))
        said = survival.forecast(traces, 2 * LENGTH, n)
        seen = sum(rng.random() < (1 - rate) ** (2 * steps) for _ in range(n)) / n
        held += said.low <= seen <= said.high
    assert 35 <= held <= 40


def test_what_hangs_on_several_notes_is_left_out(tmp_path: Path) -> None:
    read(tmp_path, 0, lost=4)
    read(tmp_path, 1, lost=4, task="hop", notes=2)
    hazards, said = survival.predict(tmp_path, {LENGTH: 60}, longest=LENGTH)
    assert {one.task for one in hazards} == {one.task for one in said} == {"once"}
    other = tmp_path / "other"
    other.mkdir()
    read(other, 1, lost=4, task="hop", notes=2)
    with pytest.raises(ConfigError, match=r"hop hang on several notes.*'once'"):
        survival.predict(other, {LENGTH: 60}, longest=LENGTH)


def test_what_was_said_is_compared_with_what_was_measured(tmp_path: Path) -> None:
    for index, lost in enumerate((None, None, None, 4)):
        read(tmp_path, index, lost=lost)
    said, curve = tmp_path / "said.json", tmp_path / "curve.png"
    asked = ["predict", str(tmp_path), "--lengths", "1k,8k", "--out", str(said), "--longest", "1k"]
    wrong = CliRunner().invoke(app, [*asked, "--samples", "60"])
    assert wrong.exit_code == 2
    assert "a number for each of the 2 lengths" in wrong.output
    asked += ["--samples", "60,12"]
    ended = CliRunner().invoke(app, asked)
    assert ended.exit_code == 0, ended.output
    assert "| once | 1,024 | 1 | 31 | 3.23e-02 [" in ended.output
    again = CliRunner().invoke(app, asked)
    assert again.exit_code == 2
    assert "is not said again" in again.output

    compared = ["lengths", str(tmp_path), "--said", str(said), "--out", str(curve)]
    ended = CliRunner().invoke(app, compared)
    assert ended.exit_code == 0, ended.output
    rows = [line for line in ended.output.splitlines() if line.startswith("| once")]
    assert [row.split("|")[2].strip() for row in rows] == ["1,024", "8,192"]
    assert "0.750 [" in rows[0]
    assert rows[0].endswith("| 4 |")
    assert rows[1].endswith("|  |  |")
    assert curve.read_bytes().startswith(b"\x89PNG")


def test_a_folder_without_short_documents_says_so(tmp_path: Path) -> None:
    read(tmp_path, 0, lost=None)
    with pytest.raises(ConfigError, match="at most 10 tokens"):
        survival.predict(tmp_path, {LENGTH: 1}, longest=10)
