"""Serves `smol:trained` with real engines in float32, and compares the log-probabilities of what they draw.

python -m tests.train.measure_trained [--engine vllm] [--engine sglang]

Needs torch (.venv-train), `make engines` and `make smol`. The adapter is served by vLLM alone: SGLang's need a GPU. The
merged model is served by both. Ends with 1 if a token's log-probability is more than 2e-3 from transformers'.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import torch
from tests.engines import commands
from tests.engines.servers import EngineServer
from tests.engines.test_weights import CLOSE

from memagent_bench.perf.chunks import book
from memagent_engines.smol import TRAINED, smol_folder
from memagent_engines.transformers.loading import load

WINDOW, PROMPT, DRAWN, TEXTS = 1024, 600, 64, 8
"""Tokens of a server's window, of a prompt, and of a reply at temperature 1; and how many of them."""
NAME = "trained"


def main() -> None:
    """Prints a line for each engine and form."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", action="append", choices=("vllm", "sglang"))
    engines = parser.parse_args().engine or ["vllm", "sglang"]
    model, tokenizer = load(str(smol_folder()), dtype="float32", adapter=TRAINED)
    ids: list[int] = tokenizer.encode(book()[:40_000])
    prompts = [ids[start : start + PROMPT] for start in range(0, TEXTS * PROMPT, PROMPT)]
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        merged = Path(name) / "merged"
        model.save_pretrained(merged)
        tokenizer.save_pretrained(merged)
        for engine in engines:
            forms = ("adapter", "merged") if engine == "vllm" else ("merged",)
            for form in forms:
                off = [
                    max(differences(model, prompt, *drawn))
                    for prompt, drawn in zip(
                        prompts, draw(engine, form, merged, prompts), strict=True
                    )
                ]
                worst = max(worst, *off)
                print(
                    f"{engine:8}{form:9}{TEXTS} replies of up to {DRAWN} tokens: {max(off):.1e} at most"
                )
    raise SystemExit(worst > CLOSE)


def draw(
    engine: str, form: str, merged: Path, prompts: list[list[int]]
) -> Iterator[tuple[list[int], list[float]]]:
    """Tokens that a server draws, and its log-probabilities of them."""
    flags = commands.smol(engine, "float32")
    if form == "merged":
        flags = (*flags, commands.MODEL_FLAG[engine], str(merged))
    else:
        flags += ("--enable-lora", "--max-lora-rank", "16", "--lora-modules", f"{NAME}={TRAINED}")
    with tempfile.TemporaryDirectory() as folder:
        server = EngineServer(engine, Path(folder) / "log", window=WINDOW, flags=flags)
        server.start()
        try:
            for seed, prompt in enumerate(prompts):
                if engine == "vllm":
                    yield _vllm(server, NAME if form == "adapter" else server.model, prompt, seed)
                else:
                    yield _sglang(server, prompt)
        finally:
            server.stop()


def differences(model: Any, prompt: list[int], drawn: list[int], said: list[float]) -> list[float]:
    """How far each log-probability is from the one of the model in this process."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + drawn])).logits[0, len(prompt) - 1 : -1]
    own = torch.log_softmax(logits, -1).gather(1, torch.tensor(drawn)[:, None])[:, 0]
    return (own - torch.tensor(said)).abs().tolist()


def _vllm(
    server: EngineServer, model: str, prompt: list[int], seed: int
) -> tuple[list[int], list[float]]:
    asked = {"model": model, "prompt": prompt, "max_tokens": DRAWN, "temperature": 1.0}
    asked |= {"seed": seed, "logprobs": 0, "return_token_ids": True}
    (choice,) = _post(f"{server.url}/completions", asked)["choices"]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def _sglang(server: EngineServer, prompt: list[int]) -> tuple[list[int], list[float]]:
    sampling = {"temperature": 1.0, "max_new_tokens": DRAWN}
    asked = {"input_ids": prompt, "return_logprob": True, "sampling_params": sampling}
    drawn = _post(f"{server.root}/generate", asked)["meta_info"]["output_token_logprobs"]
    return [token for _, token, _ in drawn], [logprob for logprob, _, _ in drawn]


def _post(url: str, asked: dict[str, Any]) -> Any:
    reply = httpx.post(url, json=asked, timeout=300, trust_env=False)
    reply.raise_for_status()
    return reply.json()


if __name__ == "__main__":
    main()
