"""`make train-gpu` without a GPU: it says so; and its dry run, in which all steps run on the CPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.train.launch import variables


def measure(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.train.measure_gpu", *arguments],
        capture_output=True,
        text=True,
        env=variables(CUDA_VISIBLE_DEVICES=""),
        check=False,
    )


def test_without_gpus_nothing_is_run_and_the_report_says_so(tmp_path: Path) -> None:
    done = measure("--gpus", "2", "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert done.stdout.count("NOT RUN: too few GPUs") == 7
    assert done.stderr.startswith("ConfigError: --gpus 2: torch sees 0 GPUs; use a machine")


@pytest.mark.timeout(600)
def test_all_steps_run_dry_on_the_cpu(tmp_path: Path) -> None:
    done = measure("--gpus", "2", "--dry-run", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    first, *steps, last = done.stdout.splitlines()
    assert first.startswith("dry run on the CPU")
    told = dict(line.split(maxsplit=1) for line in steps)
    names = ["grpo", "supo", "server", "fsdp2", "lora", "resume", "ahead"]
    assert list(told) == names
    for name, said in told.items():
        sharded = ", not sharded (whole weights in each of 2 processes)" * (name == "fsdp2")
        assert said.startswith(f"ran{sharded} to step {3 if name == 'resume' else 2} in ")
        assert "gradient" in said
        assert "largest log-prob gap" in said
        assert ("steps behind 1" in said) is (name == "ahead")
    assert last.startswith("not covered: GPUs, vLLM and sharded weights, models of published size")
