"""The tutorial on books as a notebook: python -m tests.docs.notebook

It is made of the Markdown page and executed against the stand-in of `stand_in.py`. Python blocks and commands of
memagent become cells; what they print comes from the run, and not from the page.
"""

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from tests.docs.stand_in import ROOT, lay_out, serve_reader
from tests.docs.test_snippets import FENCE, RUNS
from tests.models.chat_server import running

PAGE = ROOT / "docs" / "tutorials" / "book.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
SECONDS = 240


@dataclass(frozen=True)
class Cell:
    """One cell of the notebook."""

    kind: str
    """`markdown` or `code`."""
    source: str
    shown: str = ""
    """What the page says that the code prints."""


def cells_of(page: str) -> list[Cell]:
    """The page's cells: prose, with what is only to be read, between code."""
    cells: list[Cell] = []
    prose, end = "", 0
    for fence in FENCE.finditer(page):
        prose += page[end : fence.start()]
        end = fence.end()
        code = list(_code(fence["kind"], fence["text"]))
        if code:
            cells += [Cell("markdown", prose.strip()), *code]
            prose = ""
        elif fence["kind"] == "text" and cells and not prose.strip():
            cells[-1] = Cell("code", cells[-1].source, fence["text"])
        else:
            prose += fence[0]
    cells.append(Cell("markdown", (prose + page[end:]).strip()))
    return [cell for cell in cells if cell.source]


def _code(kind: str, text: str) -> Iterator[Cell]:
    if kind == "python":
        yield Cell("code", text.strip())
    elif kind == "console":
        for step in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            if RUNS.search(command):
                # Not `!`: that hides failures, and has a terminal's colours.
                yield Cell("code", f"%%bash\n{command}", shown)


def notebook_of(cells: list[Cell]) -> Any:
    """A notebook that has not been run."""
    kinds = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    made = [kinds[cell.kind](cell.source, id=f"cell-{at}") for at, cell in enumerate(cells)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return nbformat.v4.new_notebook(cells=made, metadata={"kernelspec": kernel})


def execute(notebook: Any, folder: Path) -> Any:
    """The notebook with what it prints, run in an empty folder; `CellExecutionError` where a cell fails."""
    lay_out(folder)
    with running() as server:
        serve_reader(server)
        environment = {
            **os.environ,
            "MEMAGENT_BASE_URL": server.url,
            "XDG_STATE_HOME": str(folder / "state"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        client = NotebookClient(
            notebook, timeout=SECONDS, kernel_name="python3", coalesce_streams=True,
            resources={"metadata": {"path": str(folder)}}, record_timing=False,
        )  # fmt: skip
        asyncio.run(client.async_execute(env=environment))
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if "text" in output:
                output["text"] = output["text"].replace(server.url, "http://localhost:8000/v1")
    notebook.metadata.pop("language_info", None)  # of this machine's Python
    return notebook


def printed(cell: Any) -> str:
    """What a cell printed."""
    return "".join(output["text"] for output in cell.outputs)


def main() -> None:
    """Writes the notebook."""
    made = notebook_of(cells_of(PAGE.read_text(encoding="utf-8")))
    with tempfile.TemporaryDirectory() as folder:
        done = execute(made, Path(folder))
    NOTEBOOK.write_text(nbformat.writes(done) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
