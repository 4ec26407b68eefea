"""`memagent-train grpo` with rollouts from a real server, which gets the new weights after each step."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.engines import commands, venvs
from tests.engines.fixtures import StartServer

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ROOT / ".venv-train" / "bin" / "memagent-train"
WINDOW = 2048
MODEL_FLAG = {"vllm": "--model", "sglang": "--model-path"}
SETTINGS = """
[model]
path = "policy"

[[data.source]]
kind = "jsonl"
files = ["data.jsonl"]

[agent]
window = 1024
chunk_tokens = 300
memory_tokens = 24

[rollout]
window = 2048

[reward]
use = "mine:reward"

[algorithm]
ratio = "recomputed"
dynamic_sampling = false

[batch]
groups = 2
group_size = 4
micro_batches = 2

[optimizer]
steps = 3
learning_rate = 0.02
warmup_steps = 0

[checkpoints]
every = 3
"""
REWARD = """
def reward(answer, sample):
    return sum(letter in "aeiou" for letter in answer or "") / 100
"""


def write_training(engine: str, folder: Path) -> None:
    """Writes a policy, data, a reward and settings that lack the engine."""
    assert TRAIN.is_file(), f"{TRAIN} is missing: run make venv-train"
    maker = [str(venvs.python_of(engine)), str(ROOT / "tests/engines/tiny_model.py")]
    variables = commands.environment(engine, folder)
    policy = [str(folder / "policy"), "1"]
    subprocess.run([*maker, *policy], check=True, capture_output=True, env=variables)
    rows = [
        {
            "document": f"Box {n} holds nails. " * 60,
            "question": "What is in the box?",
            "answers": "nails",
        }
        for n in range(8)
    ]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "mine.py").write_text(REWARD)
    (folder / "grpo.toml").write_text(SETTINGS)


def check_metrics(run: Path) -> None:
    """Sees that each step's rollouts came from the weights that the step before had made."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "logprob_gap/mean" in line]
    assert [line["step"] for line in steps] == [1, 2, 3]
    # An engine that kept the first weights would be off by more than 0.05 from the second step on.
    assert all(line["logprob_gap/max"] < 0.02 for line in steps), steps
    moved = [line["grad_norm"] for line in steps]
    assert all(norm > 0 for norm in moved), moved


def test_each_step_is_drawn_with_the_weights_that_the_last_one_made(
    request: pytest.FixtureRequest, start_server: StartServer, tmp_path: Path
) -> None:
    engine = str(request.config.getoption("--engine"))
    write_training(engine, tmp_path)
    server = start_server(
        window=WINDOW,
        flags=(MODEL_FLAG[engine], str(tmp_path / "policy")),
        variables={"VLLM_SERVER_DEV_MODE": "1"},
    )
    done = subprocess.run(
        [
            *(str(TRAIN), "grpo", "grpo.toml", "--out", "run"),
            *("--set", f"rollout.engine={engine}", "--set", f"rollout.base_url={server.root}"),
        ],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check_metrics(tmp_path / "run")
