import asyncio
import re
from pathlib import Path

import pytest
from tests.bench import fakes
from tests.bench.diagnose import runs
from typer.testing import CliRunner

from memagent import ScriptedModel
from memagent.errors import ConfigError
from memagent.messages import ChatRequest
from memagent_nano import controls
from memagent_nano.command import app
from memagent_nano.lessons import PROMPTS

N = 4
CELL = ("once", 448)


def number(request: ChatRequest) -> str:
    """What the memory that is shown says of the one who is asked for."""
    said = request.messages[0].content
    who = re.search(r"has (\w+)\?", said)
    assert who
    found = re.search(rf"- {who[1]} (\d+)", said.split("Memory:\n")[1])
    return found[1] if found else "none"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a benchmark's runs go; a policy's prompts lie there too."""
    (tmp_path / "prompts.toml").write_bytes(PROMPTS.read_bytes())
    return tmp_path


async def answered(folder: Path, count: int) -> None:
    """Runs in which person K has 1K coins, and the records of them."""
    for index in range(count):
        memory = f"- Person{index} 1{index}"
        await runs.read(folder, "The grass is green.", [memory], f"1{index}", f"run-{index}")
    fields = {"suite": "notes", "task": CELL[0], "length": CELL[1], "system": "memory"}
    records = [
        fakes.record(
            index, question=f"How many coins has Person{index}?", answer=f"1{index}",
            outputs=(f"1{index}",), run_id=f"run-{index}", scorer="string_match_all", **fields,
        )
        for index in range(count)
    ]  # fmt: skip
    runs.keep(folder, *records)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that answers from the memory and knows nothing else."""
    monkeypatch.setattr(controls, "TransformersModel", lambda _: ScriptedModel(number, window=999))


@pytest.mark.usefixtures("reading")
def test_only_its_own_memory_answers_a_question(folder: Path) -> None:
    asyncio.run(answered(folder, N))
    ended = CliRunner().invoke(app, ["controls", str(folder), "--model", str(folder)])
    assert ended.exit_code == 0, ended.output
    rows = [line.split() for line in ended.output.splitlines() if line.startswith("once")]
    assert [row[:4] for row in rows] == [
        ["once", "448", "own", "1.000"],
        ["once", "448", "blank", "0.000"],
        ["once", "448", "swapped", "0.000"],
    ]
    assert all(row[-1] == "n=4" for row in rows)


@pytest.mark.usefixtures("reading")
def test_one_sample_has_nobody_to_swap_with(folder: Path) -> None:
    asyncio.run(answered(folder, 1))
    with pytest.raises(ConfigError, match="at least 2"):
        controls.controls(folder, folder)
