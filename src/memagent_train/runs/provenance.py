"""What a training is made with: the code, the packages and the machine, without secrets or host names."""

from __future__ import annotations

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
"""What can change rollouts, gradients or weights."""


def provenance() -> dict[str, Any]:
    """The origin of what this process will write. Blocks: git is asked."""
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
    """Adds a line for this session: a run that was interrupted has several.

    Raises:
        OSError: it cannot be written.
    """
    with file.open("a", encoding="utf-8") as opened:
        opened.write(json.dumps(provenance(), ensure_ascii=False) + "\n")
