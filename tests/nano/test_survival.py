import asyncio
from pathlib import Path

import pytest
from tests.bench.diagnose import runs
from typer.testing import CliRunner

from memagent.errors import ConfigError
from memagent_nano import survival
from memagent_nano.command import app

CHUNKS = 10
LENGTH = 1024
"""That records say; a chunk is a tenth of it."""
FACT = "The number is 123456."
OUT = "123456"


def read(folder: Path, index: int, *, lost: int | None, length: int = LENGTH) -> None:
    """A run over ten chunks whose memory holds the fact of the first one, up to chunk `lost`."""
    run = f"{length}-{index}"
    held = CHUNKS if lost is None else lost
    memories = [OUT if chunk < held else "nothing" for chunk in range(CHUNKS)]
    answer = OUT if lost is None else "no idea"
    text = runs.document(CHUNKS, (0, FACT))
    asyncio.run(runs.read(folder, text, memories, answer, run))
    record = runs.record(
        answer, [OUT], run, index=index, suite="notes", task="once", length=length, chars=len(text),
        chunks=CHUNKS, system="memory", scorer="number_match", evidence=(runs.place(0, FACT, OUT),),
    )  # fmt: skip
    runs.keep(folder, record)


def test_a_hazard_of_what_was_read_goes_on_in_longer_documents(tmp_path: Path) -> None:
    for index, lost in enumerate((None, None, None, 4)):
        read(tmp_path, index, lost=lost)
    read(tmp_path, 0, lost=1, length=4 * LENGTH)  # longer than what is asked for
    (found,), said = survival.predict(tmp_path, [LENGTH, 10 * LENGTH], longest=LENGTH)
    # Nine steps behind the first chunk where nothing is lost, four up to the loss.
    assert (found.losses, found.steps, found.sound) == (1, 9 * 3 + 4, 1.0)
    assert found.rate == pytest.approx(1 / 31)
    assert found.low < found.rate < found.high
    assert [one.chunks for one in said] == [10, 100]
    assert [one.mean for one in said] == pytest.approx([(30 / 31) ** 10, (30 / 31) ** 100])
    assert all(one.low < one.mean < one.high for one in said)


def test_what_was_said_is_compared_with_what_was_measured(tmp_path: Path) -> None:
    for index, lost in enumerate((None, None, None, 4)):
        read(tmp_path, index, lost=lost)
    said, curve = tmp_path / "said.json", tmp_path / "curve.png"
    asked = ["predict", str(tmp_path), "--lengths", "1k,8k", "--out", str(said), "--longest", "1k"]
    ended = CliRunner().invoke(app, asked)
    assert ended.exit_code == 0, ended.output
    assert "| once | 1 | 31 | 3.23e-02 [" in ended.output
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
        survival.predict(tmp_path, [LENGTH], longest=10)
