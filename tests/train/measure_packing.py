"""Times forward and backward passes over rows as they are, and with what they share scored once.

Usage: python -m tests.train.measure_packing [--model FOLDER --rollouts FILE.parquet] [--size N] [--passes N]

Packed, the rows of a pass are one sequence in which a shared beginning stands once; each token attends to its own
row's tokens only, by PyTorch's scaled_dot_product_attention with a mask of U x U. Rows that begin alike are in the same
pass. By default rows and model are those of `make supo`: an expert's games, and random weights of its size.
"""

# ruff: noqa: N803, N806  (names of tensors end in their dimensions)

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from memagent_bench.perf import measure
from memagent_draws.material import START, TRACES, Start, lay_out
from memagent_train.advantages import TrainingRow
from memagent_train.batches import tensors
from memagent_train.rollouts import Row
from memagent_train.runs.rollout_log import read_rollouts
from memagent_train.scoring import LastScored

UNSCORED = -100
Ids = tuple[int, ...]


def rows_of(path: Path) -> list[tuple[str, Ids, Ids]]:
    """Group, prompt and response of the different rows that were sampled, those that begin alike side by side."""
    read = read_rollouts(path)
    found = {(r["group_id"], tuple(r["prompt_ids"]), tuple(r["response_ids"])) for r in read}
    return sorted(found, key=lambda row: (row[0], row[1] + row[2]))


def pad(rows: Sequence[tuple[str, Ids, Ids]]) -> tuple[Tensor, Tensor, int]:
    """Ids and mask (N, P + T) as the trainer pads them, and T."""
    made = tensors(
        [
            TrainingRow(Row(prompt, response, (1,) * len(response), (0.0,) * len(response)), 1.0)
            for _, prompt, response in rows
        ],
        [1.0] * len(rows),
        pad=0,
        device=torch.device("cpu"),
    )
    ids, real = (
        torch.cat([made[f"prompt_{part}"], made[f"completion_{part}"]], dim=1)
        for part in ("ids", "mask")
    )
    return ids, real, made["completion_ids"].size(1)


def plain(model: Any, ids_NT: Tensor, real_NT: Tensor, scored: int) -> Tensor:
    """Log-probabilities of the last `scored` tokens of each row, as the trainer computes them."""
    labels_NT = ids_NT.masked_fill(real_NT == 0, UNSCORED)
    labels_NT[:, :-scored] = UNSCORED
    score = LastScored(model, model, scored)
    out = score(input_ids=ids_NT, attention_mask=real_NT, labels=labels_NT, fused_lm_head=True)
    return out.log_probs


def packed(model: Any, ids_NT: Tensor, real_NT: Tensor, scored: int) -> Tensor:
    """The same, with shared beginnings scored once.

    Where rows go on differently, each has the token before that for itself, since a position has one label.
    """
    nodes: dict[tuple[int, int, int], int] = {}
    ids, labels, depths, parents = list[int](), list[int](), list[int](), list[int]()
    places_NT = torch.zeros_like(ids_NT)
    first = ids_NT.size(1) - scored
    for row, (tokens, real) in enumerate(zip(ids_NT.tolist(), real_NT.tolist(), strict=True)):
        columns = [column for column, one in enumerate(real) if one]
        parent = -1
        for depth, column in enumerate(columns):
            last = depth + 1 == len(columns)
            label = tokens[column + 1] if not last and column + 1 >= first else UNSCORED
            node = nodes.setdefault((parent, tokens[column], label), len(ids))
            if node == len(ids):
                ids.append(tokens[column])
                labels.append(label)
                depths.append(depth)
                parents.append(parent)
            places_NT[row, column] = parent = node
    mask_UU = torch.eye(len(ids), dtype=torch.bool)
    for node, parent in enumerate(parents):  # parents come first
        if parent >= 0:
            mask_UU[node] |= mask_UU[parent]
    ids_1U, labels_1U, positions_1U = (torch.tensor([line]) for line in (ids, labels, depths))
    given = {"attention_mask": mask_UU[None, None], "position_ids": positions_1U}
    out = model(input_ids=ids_1U, **given, shift_labels=labels_1U, fused_lm_head=True)
    return out.log_probs[0][places_NT[:, -scored - 1 : -1]] * real_NT[:, -scored:]


def timed(model: Any, score: Callable[..., Tensor], given: tuple[Any, ...]) -> tuple[float, Tensor]:
    """Processor seconds of a forward and a backward pass, and the log-probabilities."""
    start = time.process_time()
    logps = score(model, *given)
    logps.sum().backward()
    seconds = time.process_time() - start
    model.zero_grad()
    return seconds, logps.detach()


def main() -> int:
    """Measures and prints; fails if the two ways disagree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a folder; with --rollouts")
    parser.add_argument("--rollouts", type=Path, help="rollouts/step-*.parquet of a training")
    parser.add_argument("--size", type=int, default=8, help="rows of a pass")
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        if given.rollouts is None:
            lay_out(Path(made) / "draws", Start(games=64), seed=0)
            given.model, given.rollouts = (Path(made) / "draws" / name for name in (START, TRACES))
        rows = rows_of(given.rollouts)
        kind = getattr(torch, given.dtype)
        model: Any = AutoModelForCausalLM.from_pretrained(given.model, dtype=kind)
    add_fused_lm_head(model)
    starts = range(0, len(rows) - given.size + 1, given.size)
    step = max(len(starts) // given.passes, 1)
    faster, fewer, apart = list[float](), list[float](), 0.0
    for start in list(starts)[::step][: given.passes]:
        one = pad(rows[start : start + given.size])
        (before, logps), (after, others) = (timed(model, f, one) for f in (plain, packed))
        faster.append(before / after)
        lines = [prompt + response for _, prompt, response in rows[start : start + given.size]]
        different = {line[: end + 1] for line in lines for end in range(len(line))}
        fewer.append(one[0].numel() / len(different))
        apart = max(apart, (logps - others).abs().max().item())
    measured = [
        measure.Row("tokens of a pass as padded, per different one", fewer),
        measure.Row("packed: times as fast, forward and backward", faster, least=1.3),
        measure.Row("largest difference of a log-probability", [apart]),
    ]
    print(
        f"{measure.machine()}, {len(rows)} rows, {given.size} a pass, {given.dtype}\n\n{measure.table(measured)}"
    )
    return 0 if given.dtype == "bfloat16" or apart < 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
