"""`make train-gpu`: what runs on GPUs, and how fast.

GRPO, SUPO in passes of so many tokens, a server's rollouts, sharded weights (FSDP2), an adapter, a run that resumes,
and two servers one step ahead. The last line names what isn't tried.

Usage: python -m tests.train.measure_gpu --gpus 1|2 [--dry-run] [--model FOLDER] [--out DIR] [--minutes 30]

Rewards are random, so that each step has a gradient: this shows that steps run, not that anything is learnt. The model
is `smol` unless another is given. The server needs `vllm` on the PATH, from an environment of its own. With --dry-run
all steps run on the CPU, with random weights: servers are then those of the tests, and weights are not sharded.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import tomli_w
import torch
from tests.engines.tiny_model import main as write_tiny_model
from tests.train.runs.sampling_server import sampling_server

from memagent.errors import ConfigError
from memagent_engines.smol import smol_folder

FSDP = Path(__file__).parents[2] / "recipes/accelerate/fsdp.yaml"
WINDOW, PORT, SHARE = 2048, 8017, 0.4
"""The first server's window and port, and the share of all of them of a GPU that also trains."""
STARTING = 300.0
"""Seconds that a server may take to start."""
READER = {"window": 1024, "chunk_tokens": 200, "memory_tokens": 32}
TURNS = {"working_context": 1024, "max_steps": 8, "reply_tokens": 32, "summary_tokens": 32}
GAMER = {"use": "tools", "tools": {"protocol": "compact", **TURNS}}
DOCUMENTS = {"kind": "task", "use": "memagent_train.smoke.task:Relay", "lengths": [160]}
GAMES = {"kind": "game", "games": ["deck"], "count": 100}
SUPO = {"scale": "std", "token_mean": "batch", "beta": 0.0, "overlong_mask": True}
FIGURES = {
    "reward": "reward",
    "grad_norm": "gradient",
    "logprob_gap/max": "largest log-prob gap",
    "rollouts/steps_behind": "steps behind",
    "tokens/summary": "tokens of summaries",
    "engine/tokens_per_second": "tokens/s",
}
"""What the report shows of the last step."""
UNTRIED = (
    "models of published size",
    "more than 2 GPUs or one machine",
    "DeepSpeed",
    "SGLang",
    "engines in the trainer's process but padded batches",
    "adapters on a server or sharded",
)


class NotRun(Exception):
    """A step cannot run here; the message says why."""


@dataclass(frozen=True)
class Bench:
    """Where steps run."""

    gpus: int
    dry: bool
    model: Path
    out: Path
    deadline: float
    """On the monotonic clock."""

    @property
    def left(self) -> float:
        return self.deadline - time.monotonic()


@dataclass(frozen=True)
class Step:
    """One thing to try."""

    name: str
    games: bool = False
    servers: int = 0
    sharded: bool = False
    resumes: str = ""
    """The step whose run it continues."""
    more: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Settings by section."""

    def folder(self, bench: Bench) -> Path:
        """Of the run."""
        return bench.out / (self.resumes or self.name)

    def command(self, bench: Bench, urls: list[str]) -> list[str]:
        """Writes the settings, and returns the command that trains with them."""
        agent, source = (GAMER, GAMES) if self.games else (READER, DOCUMENTS)
        processes = 2 if self.sharded else 1
        settings: dict[str, Any] = {
            "model": {"path": str(bench.model)},
            "data": {"source": [source]},
            "agent": agent,
            "rollout": {"window": WINDOW} | ({"engine": "vllm", "base_url": urls} if urls else {}),
            "reward": {"use": "memagent_train.smoke.control:toss"},
            "algorithm": SUPO if self.games else {"ratio": "recomputed"},
            "batch": {"groups": 8, "group_size": 8, "micro_batches": 16},
            "optimizer": {"steps": (2 if bench.dry else 5) + bool(self.resumes), "warmup_steps": 0},
            "evaluation": {"at_start": False, "n": 4},
            "resources": {"device": "cpu" if bench.dry else "auto", "processes": processes},
        }
        if bench.dry:
            settings["batch"] |= {"groups": 2, "group_size": 4, "micro_batches": 2}
            settings["algorithm"] = settings["algorithm"] | {"dynamic_sampling": False}
        elif self.sharded:
            settings["resources"]["sharding"] = "fsdp"
        settings |= {name: settings.get(name, {}) | keys for name, keys in self.more.items()}
        file = bench.out / f"{self.name}.toml"
        file.write_text(tomli_w.dumps(settings), encoding="utf-8")
        many = ["accelerate.commands.launch", "--config_file", str(FSDP), "--num_processes", "2"]
        if bench.dry:
            many = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        module = [*((*many, "-m") if self.sharded else ()), "memagent_train"]
        return [
            sys.executable,
            "-m",
            *module,
            "grpo",
            str(file),
            "--out",
            str(self.folder(bench)),
        ]


STEPS = (
    Step("grpo"),
    Step("supo", games=True, more={"batch": {"micro_batch_tokens": 2048}}),
    Step("server", servers=1),
    Step("fsdp2", servers=1, sharded=True),
    Step("lora", more={"lora": {"rank": 8}}),
    Step("resume", resumes="grpo"),
    Step(
        "ahead",
        servers=2,
        more={"rollout": {"ahead": True}, "algorithm": {"ratio": "truncated"}},
    ),
)


@contextmanager
def vllm_server(bench: Bench, number: int, of: int) -> Iterator[str]:
    """One of several vLLM servers on the last GPU: its URL."""
    program = shutil.which("vllm")
    if program is None:
        raise NotRun("`vllm` is not on the PATH: pip install vllm, in an environment of its own")
    port, log = PORT + number, bench.out / f"vllm-{number}.log"
    flags = {"port": port, "max-model-len": WINDOW, "gpu-memory-utilization": SHARE / of}
    flags |= {"logprobs-mode": "processed_logprobs"}
    command = [program, "serve", str(bench.model), *(f"--{k}={v}" for k, v in flags.items())]
    switches = {"VLLM_SERVER_DEV_MODE": "1", "CUDA_VISIBLE_DEVICES": str(bench.gpus - 1)}
    url, given_up = f"http://127.0.0.1:{port}", time.monotonic() + min(STARTING, bench.left)
    with log.open("w") as opened:
        served = subprocess.Popen(command, env=os.environ | switches, stdout=opened, stderr=opened)
        try:
            while not _healthy(url):
                if served.poll() is not None or time.monotonic() > given_up:
                    raise NotRun(f"vLLM did not start: see {log}")
                time.sleep(1)
            yield url
        finally:
            served.terminate()
            served.wait()


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False


@contextmanager
def dry_server(bench: Bench, number: int, of: int) -> Iterator[str]:
    """A server of the tests: its URL."""
    with sampling_server(bench.model) as (_, url):
        yield url


def run(step: Step, bench: Bench) -> str:
    """Runs a step; returns what it showed.

    Raises:
        NotRun: it cannot run here.
    """
    if bench.left <= 0:
        raise NotRun("the time was up")
    if step.sharded and bench.gpus < 2 and not bench.dry:
        raise NotRun("sharding needs 2 GPUs: make train-gpu GPUS=2")
    metrics = step.folder(bench) / "metrics.jsonl"
    if step.resumes and not metrics.exists():
        raise NotRun(f"{step.resumes} made no step")
    before = metrics.read_text() if step.resumes else ""
    start = dry_server if bench.dry else vllm_server
    switches = {"ACCELERATE_USE_CPU": "true"} if bench.dry else {}
    if not step.sharded:
        switches["CUDA_VISIBLE_DEVICES"] = "0"
    log = bench.out / f"{step.name}.log"
    with ExitStack() as stack, log.open("w") as opened:
        numbers = range(step.servers)
        urls = [stack.enter_context(start(bench, n, step.servers)) for n in numbers]
        started, command = time.monotonic(), step.command(bench, urls)
        try:
            done = subprocess.run(
                command,
                env=os.environ | switches,
                stdout=opened,
                stderr=opened,
                timeout=max(1, bench.left),
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"FAILED: not done when the time was up (see {log})"
    if done.returncode != 0:
        return f"FAILED with exit code {done.returncode} (see {log})"
    text = metrics.read_text()
    if not text.startswith(before):
        return f"FAILED: it began again instead of resuming (see {log})"
    lines = text.removeprefix(before).splitlines()
    last = next(row for row in map(json.loads, reversed(lines)) if "grad_norm" in row)
    shown = [f"{name} {last[key]:.4g}" for key, name in FIGURES.items() if key in last]
    whole = ", not sharded (whole weights in each of 2 processes)" * (step.sharded and bench.dry)
    took = f"to step {last['step']} in {time.monotonic() - started:.0f} s"
    return f"ran{whole} {took}: {', '.join(shown)}"


def main() -> int:
    """Prints the report; 0 only if all steps ran.

    Raises:
        ConfigError: there are too few GPUs.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, choices=(1, 2), required=True)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, default=Path("build/train-gpu"))
    parser.add_argument("--minutes", type=float, default=30.0)
    given = parser.parse_args()
    found = torch.cuda.device_count()
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    model = given.model or smol_folder()
    if given.dry_run:
        write_tiny_model(model := given.out / "model", 1)
    until = time.monotonic() + 60 * given.minutes
    bench = Bench(given.gpus, given.dry_run, model.absolute(), given.out.absolute(), until)
    where = "dry run on the CPU" if given.dry_run else f"{given.gpus} GPUs, of {found} found"
    print(f"{where}, model {model}")
    if found < given.gpus and not given.dry_run:
        for step in STEPS:
            print(f"{step.name:8} NOT RUN: too few GPUs")
        raise ConfigError(
            f"--gpus {given.gpus}: torch sees {found} GPUs; use a machine that has them, or --dry-run"
        )
    results = {step.name: _result(step, bench) for step in STEPS}
    missed = [name for name, result in results.items() if not result.startswith("ran")]
    dry = ["GPUs, vLLM and sharded weights"] if bench.dry else []
    print(f"not covered: {', '.join([*missed, *dry, *UNTRIED])}")
    return 1 if missed else 0


def _result(step: Step, bench: Bench) -> str:
    try:
        result = run(step, bench)
    except NotRun as error:
        result = f"NOT RUN: {error}"
    print(f"{step.name:8} {result}", flush=True)
    return result


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ConfigError as error:
        sys.exit(f"{type(error).__name__}: {error}")
