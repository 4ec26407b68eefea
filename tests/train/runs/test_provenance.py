"""A session says what code and which packages it ran with."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import trl

from memagent_train.runs.provenance import note_provenance, provenance


def test_packages_have_the_versions_that_are_imported() -> None:
    found = provenance()["packages"]
    assert found["trl"] == trl.__version__
    assert torch.__version__.startswith(found["torch"])


def test_a_line_a_session(tmp_path: Path) -> None:
    file = tmp_path / "provenance.jsonl"
    note_provenance(file)
    note_provenance(file)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 2
    assert {"started", "commit", "dirty", "python", "machine"} <= set(lines[0])
