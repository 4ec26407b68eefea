"""The tutorial on books as a notebook runs from top to bottom, and is what the page says.

If this fails after a change of the page: python -m tests.docs.notebook
"""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from tests.docs.notebook import NOTEBOOK, PAGE, Cell, cells_of, execute, printed
from tests.docs.test_snippets import matches


@pytest.fixture
def notebook() -> Any:
    """The one that is committed."""
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    """What the page says."""
    return cells_of(PAGE.read_text(encoding="utf-8"))


def differing(notebook: Any, cells: list[Cell]) -> list[str]:
    """What the code printed where the page shows something else."""
    return [
        f"{made.source}\nprinted\n{printed(made)}\nbut the page shows\n{cell.shown}"
        for made, cell in zip(notebook.cells, cells, strict=True)
        if cell.kind == "code" and not matches(cell.shown, printed(made))
    ]


def test_it_is_made_of_the_page(notebook: Any, cells: list[Cell]) -> None:
    made = [(cell.cell_type, cell.source) for cell in notebook.cells]
    assert made == [(cell.kind, cell.source) for cell in cells]
    assert [cell.kind for cell in cells].count("code") >= 8


def test_its_outputs_are_those_of_the_page(notebook: Any, cells: list[Cell]) -> None:
    assert differing(notebook, cells) == []


@pytest.mark.timeout(300)
def test_it_runs(notebook: Any, cells: list[Cell], tmp_path: Path) -> None:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    assert differing(execute(notebook, tmp_path / "pages"), cells) == []
