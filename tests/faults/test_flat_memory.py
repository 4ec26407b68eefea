"""Promise 2: what is held in RAM does not grow with the document, through the whole runtime."""

import gzip
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

RUN = """
import sys
from pathlib import Path
from memagent import MemoryAgent

agent = MemoryAgent("extractive", store=sys.argv[1])
result = agent.ask(Path(sys.argv[2]), "When did Natasha marry?")
agent.close()
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(result.chunks, int(status["VmHWM"].split()[0]) // 1024)
"""


@pytest.mark.timeout(300)
def test_twenty_times_the_text_takes_no_more_memory(tmp_path: Path) -> None:
    book = gzip.decompress(
        resources.files("memagent").joinpath("samples/war_and_peace.txt.gz").read_bytes()
    )
    peaks: list[int] = []
    for megabytes in (1, 20):
        path = tmp_path / f"{megabytes}.txt"
        path.write_bytes((book * 7)[: megabytes * 1_000_000].rsplit(b"\n", 1)[0])
        command = [sys.executable, "-c", RUN, str(tmp_path / f"{megabytes}.sqlite"), str(path)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        chunks, peak = map(int, said.split())
        assert chunks > 180 * megabytes
        peaks.append(peak)
    # The larger text alone would be 40 MB in memory; the heaps of two threads level out at about 10 more.
    assert peaks[1] - peaks[0] < 20, peaks


EXTRACT = """
import re
import sys
from pathlib import Path
from pydantic import BaseModel
from memagent import MemoryAgent, ScriptedModel

class Line(BaseModel):
    line: int

def reply(request):
    model.requests.clear()
    return "\\n".join(f'{{"line": {line}}}' for line in re.findall(r"\\d+", request.parts["chunk"]))

model = ScriptedModel(reply, window=65536)
agent = MemoryAgent(model, store=sys.argv[1])
found = agent.extract(Path(sys.argv[2]), Line, "every line")
assert sum(row.value.line for row in found.rows) == sum(range(len(found.rows)))
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(len(found.rows), int(status["VmHWM"].split()[0]))
"""


@pytest.mark.timeout(300)
def test_twenty_times_the_rows_take_no_more_memory(tmp_path: Path) -> None:
    peaks: list[int] = []
    for lines in (10_000, 200_000):
        path = tmp_path / f"{lines}.txt"
        path.write_text("".join(f"This is line {line}.\n" for line in range(lines)))
        command = [sys.executable, "-c", EXTRACT, str(tmp_path / f"{lines}.sqlite"), str(path)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows, peak = map(int, said.split())
        assert rows == lines
        peaks.append(peak)
    # As dictionaries alone, the rows would be 48 MB; caches of a fixed size take about 6 more.
    assert peaks[1] - peaks[0] < 8_000, peaks
