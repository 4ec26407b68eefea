"""Sources of the size that people fear: a 2 GB file, a 50 MB line without a space."""

import subprocess
import sys
from pathlib import Path

import pytest

TOKENIZER = Path(__file__).parents[1] / "data/tokenizer"
PEAK = """
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(int(status["VmHWM"].split()[0]) // 1024)
"""
READ = f"""
import sys
from pathlib import Path
from memagent.documents import open_document
print(sum(len(piece) for piece in open_document(Path(sys.argv[1])).read()))
{PEAK}
"""
CUT = f"""
import sys
from pathlib import Path
from memagent.chunking import Chunker, chunk_text
from memagent.documents import open_document
from memagent.prompts import Neutraliser, PromptSet
from memagent.tokens import load_counter

neutralise = Neutraliser(dict(PromptSet.load("plain").tags).values())
chunker = Chunker(load_counter(sys.argv[2]), 5000, neutralise=neutralise)
end = 0
for chunk in chunk_text(open_document(Path(sys.argv[1])).read(), chunker):
    assert chunk.start == end and chunk.tokens <= 5000
    end = chunk.end
print(end)
{PEAK}
"""


def run(code: str, *arguments: object) -> tuple[int, int]:
    """Characters seen, and the peak of the process in MiB."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    characters, peak = map(int, said.split())
    return characters, peak


@pytest.mark.timeout(300)
def test_two_gigabytes_cost_the_memory_of_two_megabytes(tmp_path: Path) -> None:
    block = (b"The prince left for Moscow in the winter of 1812.\n" * 42_000)[:2_000_000]
    path = tmp_path / "large.txt"
    peaks: list[int] = []
    for blocks in (1, 1000):
        with path.open("wb") as file:
            for _ in range(blocks):
                file.write(block)
        characters, peak = run(READ, path)
        assert characters == blocks * len(block)
        peaks.append(peak)
    path.unlink()
    assert peaks[1] - peaks[0] < 20, peaks


@pytest.mark.timeout(300)
def test_a_line_of_50_megabytes_is_cut_within_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "line.txt"
    path.write_bytes(b"x" * 50_000_000)
    characters, peak = run(CUT, path, TOKENIZER)
    assert characters == 50_000_000
    assert peak < 100, peak
