"""Records the provenance of a training: code, packages and machine, without secrets or host names."""

import json
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import memagent_train
from memagent.tasks.origin import machine, source_state, versions

PACKAGES = (
    "memagent",
    "accelerate",
    "datasets",
    "deepspeed",
    "numpy",
    "peft",
    "tokenizers",
    "torch",
    "transformers",
    "trl",
    "vllm",
)
"""Packages that can affect rollouts, gradients or weights."""


def provenance() -> dict[str, Any]:
    """Returns the provenance of this process's output. Blocks: calls git."""
    commit, dirty = source_state(Path(memagent_train.__file__))
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit,
        "dirty": dirty,
        "packages": versions(PACKAGES),
        "python": platform.python_version(),
        "machine": machine(),
    }


def note_provenance(file: Path) -> None:
    """Adds a line for this session: an interrupted run has several.

    Raises:
        OSError: the file can't be written.
    """
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(provenance(), ensure_ascii=False) + "\n")
