"""What drafts save: run it as a script, for some minutes. `smol` has to be fetched."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from unittest.mock import patch

import torch
from transformers.utils import logging

from memagent import MemoryAgent, Sampling
from memagent.cli.needle import Length, hide
from memagent.messages import ChatRequest, Message
from memagent.models.spec import FOLDER
from memagent_engines.smol import smol_folder
from memagent_engines.transformers.loading import Dtype
from memagent_engines.transformers.model import TransformersModel

GREEDY = Sampling(temperature=0)
VERIFIES = "memagent_engines.transformers.padded.verifies"
ROUNDS = 3
FACTS = (
    ("The harbour office opens at nine.", "Ships from Malta pay 40 crowns."),
    ("Anna Berg keeps the keys of the mill.", "The mill has stood still since 1911."),
    ("The letter was written in March.", "Its seal shows a heron."),
    ("Tom owns three boats.", "His brother lives in Oslo."),
)


async def read(model: TransformersModel, many: int) -> list[str]:
    """Memories and answers of `nano` after documents that it reads at once."""
    agent = MemoryAgent(model, gate="off", sampling=GREEDY, store=None)
    needles = [hide(Length.K16, seed) for seed in range(many)]
    results = await asyncio.gather(*(agent.aask(n.text, n.question) for n in needles))
    return [f"{result.answer} {result.memory}" for result in results]


async def rewrite(model: TransformersModel, many: int) -> list[str]:
    """What `smol` makes of notes to write again with one more."""

    async def ask(place: int) -> str:
        several = [fact for shift in range(3) for fact in FACTS[(place + shift) % 4]]
        notes = "\n".join(f"- {fact}" for fact in several[:-1])
        text = f"Notes:\n{notes}\n\nWrite the notes again, and add one: {several[-1]}"
        request = ChatRequest(
            messages=(Message(role="user", content=text),), max_tokens=128, sampling=GREEDY
        )
        return (await model.complete(request)).text

    return await asyncio.gather(*map(ask, range(many)))


async def run(name: str, many: int, *, drafts: bool, dtype: Dtype) -> tuple[float, list[str]]:
    """Processor seconds, and the replies."""
    folder, work = (FOLDER, read) if name == "nano" else (smol_folder(), rewrite)
    with patch(VERIFIES, return_value=drafts):
        model = TransformersModel(folder, dtype=dtype)
        await model.window()  # loaded
        begun = time.process_time()
        replies = await work(model, many)
        spent = time.process_time() - begun
        await model.aclose()
    return spent, replies


def row(spent: Sequence[Sequence[float]]) -> str:
    """Median seconds of the first column, and the others as shares of it, least to most."""
    first, *others = zip(*spent, strict=True)
    cells = [f"{statistics.median(first):.1f}"]
    for other in others:
        ratios = sorted(mine / whole for mine, whole in zip(other, first, strict=True))
        cells.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    return " | ".join(cells)


def main() -> None:
    """Prints a table."""
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    print("| work | at once | float32, s | with drafts | bfloat16 | bfloat16 with drafts |")
    print("|---|---|---|---|---|---|")
    for name, many in (("nano", 1), ("nano", 8), ("smol", 1), ("smol", 4)):
        rows: list[list[float]] = []
        for _ in range(ROUNDS):
            plain, wanted = asyncio.run(run(name, many, drafts=False, dtype="float32"))
            drafted, got = asyncio.run(run(name, many, drafts=True, dtype="float32"))
            assert got == wanted
            half, _ = asyncio.run(run(name, many, drafts=False, dtype="bfloat16"))
            both, _ = asyncio.run(run(name, many, drafts=True, dtype="bfloat16"))
            rows.append([plain, drafted, half, both])
        print(f"| {name} | {many} | {row(rows)} |", flush=True)


if __name__ == "__main__":
    main()
