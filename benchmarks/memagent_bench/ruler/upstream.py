"""RULER's own generator from a checkout of NVIDIA/RULER, run unmodified, for comparison."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from memagent.errors import ConfigError

SCRIPT = Path("scripts/data/prepare.py")
"""The entry point in its documentation: it reads a task's parameters and starts the task's script."""


def generate(
    checkout: Path,
    task: str,
    length: int,
    n: int,
    out: Path,
    *,
    tokenizer: str = "openai:gpt2",
    python: str = sys.executable,
) -> float:
    """Makes RULER's own script write n samples.

    Args:
        checkout: the folder of the checkout, with the essays and other data that its documentation says to download.
        task: such as `niah_single_2`.
        length: tokens.
        n: samples.
        out: folder for `TASK/validation.jsonl`.
        tokenizer: RULER's tokenizer type and path, separated by a colon.
        python: an interpreter with RULER's requirements installed.

    Returns:
        CPU seconds of the script and the processes it starts, including imports.

    Raises:
        ConfigError: there is no such checkout, or its script failed; the message has its last output.
    """
    script = script_of(checkout)
    kind, _, path = tokenizer.partition(":")
    options = {
        "save_dir": str(out.resolve()),
        "benchmark": "synthetic",
        "task": task,
        "tokenizer_type": kind,
        "tokenizer_path": path,
        "max_seq_length": str(length),
        "model_template_type": "base",
        "num_samples": str(n),
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    # The script starts `python` by that name.
    path_first = f"{Path(python).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    start = _child_seconds()
    try:
        ran = subprocess.run(
            [python, str(script), *arguments],
            cwd=script.parent,
            env={**os.environ, "PATH": path_first},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise ConfigError(f"{python!r} cannot be run: {error}") from error
    seconds = _child_seconds() - start
    written = out / task / "validation.jsonl"
    # Its exit status is 0 even if the task's script failed.
    lines = 0
    if written.is_file():
        with written.open("rb") as file:
            lines = sum(1 for line in file if line.strip())
    if ran.returncode or lines < n:
        output = (ran.stderr + ran.stdout).strip()[-2000:]
        raise ConfigError(
            f"RULER's script wrote {lines} of {n} samples of {task!r}; it needs its own requirements and data "
            f"(see its README). Without a network set TIKTOKEN_CACHE_DIR to a folder with tiktoken's files of the "
            f"encoding, and NLTK_DATA to one with NLTK's punkt and punkt_tab. It said last: {output}"
        )
    return seconds


def script_of(checkout: Path) -> Path:
    """Returns the entry point of a checkout.

    Raises:
        ConfigError: it isn't a checkout.
    """
    script = (checkout / SCRIPT).resolve()
    if not script.is_file():
        raise ConfigError(
            f"{str(checkout)!r} is not a checkout of NVIDIA/RULER: it has no {SCRIPT}"
        )
    return script


def _child_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
