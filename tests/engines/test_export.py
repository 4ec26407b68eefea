"""What `memagent-train export` writes is served by the engine, and answers as transformers does with it."""

import json
import os
import subprocess
from pathlib import Path

import httpx
import pytest
from tests.engines import commands, venvs
from tests.engines.fixtures import StartServer

ROOT = Path(__file__).resolve().parents[2]
BIN = ROOT / ".venv-train" / "bin"
WINDOW = 2048
SETTINGS = """
[model]
path = "policy"

[lora]
rank = 4

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
dynamic_sampling = false

[batch]
groups = 2
group_size = 2
micro_batches = 1

[optimizer]
steps = 2
learning_rate = 0.05
warmup_steps = 0
"""
REWARD = """
async def reward(answer, sample):
    return sum(letter in "aeiou" for letter in answer or "") / 100
"""
QUESTIONS = ("What is in the box?", "Who was it, and when?", "Name a number.")
GREEDY = """
import json, sys
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, questions = sys.argv[1], json.loads(sys.argv[2])
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
told = []
for question in questions:
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], add_generation_prompt=True, return_dict=False
    )
    reply = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=24)
    told.append({"prompt": prompt, "reply": reply[0, len(prompt):].tolist()})
print(json.dumps(told))
"""


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def exported(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The export of a training of an adapter, which is merged into its base."""
    engine: str = request.config.getoption("--engine") or ""
    assert (BIN / "memagent-train").is_file(), f"{BIN} is missing: run make venv-train"
    maker = [str(venvs.python_of(engine)), str(ROOT / "tests/engines/tiny_model.py")]
    variables = commands.environment(engine, tmp_path)
    made = [*maker, str(tmp_path / "policy"), "1"]
    subprocess.run(made, check=True, capture_output=True, env=variables)
    row = {
        "document": "The box holds nails. " * 60,
        "question": QUESTIONS[0],
        "answers": "nails",
    }
    (tmp_path / "data.jsonl").write_text((json.dumps(row) + "\n") * 4)
    (tmp_path / "mine.py").write_text(REWARD)
    (tmp_path / "grpo.toml").write_text(SETTINGS)
    train = str(BIN / "memagent-train")
    run([train, "grpo", "grpo.toml", "--out", "run"], tmp_path)
    run([train, "export", "run", "--out", "policy-2"], tmp_path)
    return tmp_path / "policy-2"


def test_an_export_is_served_and_answers_as_transformers_does(
    request: pytest.FixtureRequest, start_server: StartServer, exported: Path
) -> None:
    told = json.loads(
        run([str(BIN / "python"), "-c", GREEDY, str(exported), json.dumps(QUESTIONS)], exported)
    )
    engine: str = request.config.getoption("--engine") or ""
    server = start_server(window=WINDOW, flags=(commands.MODEL_FLAG[engine], str(exported)))
    for question, expected in zip(QUESTIONS, told, strict=True):
        reply = httpx.post(
            f"{server.url}/chat/completions",
            json={
                "model": server.model,
                "messages": [{"role": "user", "content": question}],
                "max_tokens": 24,
                "temperature": 0,
                "return_token_ids": True,
            },
            timeout=60,
            trust_env=False,
        ).json()
        assert reply["usage"]["prompt_tokens"] == len(expected["prompt"])
        if engine == "vllm":  # SGLang tells texts alone here
            assert reply["prompt_token_ids"] == expected["prompt"]
            assert reply["choices"][0]["token_ids"] == expected["reply"]
        else:
            assert reply["usage"]["completion_tokens"] == len(expected["reply"])
