"""What guessed replies save `nano` in a document: run it as a script, for some minutes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from unittest.mock import patch

import torch
from transformers.utils import logging

from memagent import MemoryAgent, Sampling
from memagent.cli.needle import Length, Needle, hide
from memagent.models.spec import FOLDER
from memagent.models.transformers.model import TransformersModel

GREEDY = Sampling(temperature=0)
CHECKS = "memagent.models.transformers.padded.verifies"
ROUNDS = 5


async def read(
    needles: Sequence[Needle], *, guess: bool
) -> tuple[float, list[tuple[str | None, str]]]:
    """Processor seconds for reading all at once, and the memories and answers."""
    if not guess:
        with patch(CHECKS, return_value=False):
            return await read(needles, guess=True)
    model = TransformersModel(FOLDER)
    agent = MemoryAgent(model, gate="off", sampling=GREEDY, store=None)
    await model.window()  # loaded
    begun = time.process_time()
    results = await asyncio.gather(*(agent.aask(one.text, one.question) for one in needles))
    spent = time.process_time() - begun
    await model.aclose()
    return spent, [(one.answer, one.memory) for one in results]


def main() -> None:
    """Prints a table."""
    logging.set_verbosity_error()
    torch.set_num_threads(1)
    print("| documents at once | written, s | guessed, s | ratio |\n|---|---|---|---|")
    for many in (1, 8):
        needles = [hide(Length.K16, seed) for seed in range(many)]
        rows: list[tuple[float, float]] = []
        for _ in range(ROUNDS):
            written, wanted = asyncio.run(read(needles, guess=False))
            guessed, got = asyncio.run(read(needles, guess=True))
            assert got == wanted
            rows.append((written, guessed))
        ratios = sorted(guessed / written for written, guessed in rows)
        least = [min(column) for column in zip(*rows, strict=True)]
        print(
            f"| {many} | {least[0]:.1f} | {least[1]:.1f} | {ratios[0]:.2f}-{ratios[-1]:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
