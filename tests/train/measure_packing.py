"""Times an update with what rows share passed once, against each row alone, as the trainer deals and packs them.

Usage: python -m tests.train.measure_packing [--width 256 --layers 6 | --model FOLDER] [--games N] [--size ROWS]
    [--context W] [--dropped SHARE] [--wrong SHARE] [--rollouts FILE.parquet]

Each game is one update: sessions of a scripted player at the game `deck`, whose last action before a summary is dropped
in a share of them, and whose summaries are wrong in another; or the conversations of a group of logged rollouts. The
two ways take turns in being first. Seconds are this process's processor time, in float32 on one thread.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tests.train.test_sessions import NAMES, SMALL, Player
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM
from trl.trainer.utils import add_fused_lm_head

from memagent.messages import Sampling
from memagent_bench.perf import measure
from memagent_engines.transformers.sampler import Sampled
from memagent_train.advantages import TrainingRow, merge_rows
from memagent_train.agents import AgentSettings, load_agent
from memagent_train.batches import deal
from memagent_train.data.games import GameTask
from memagent_train.packing import bundle, even_length, pass_of
from memagent_train.rewards.open import open_rewards
from memagent_train.rewards.settings import RewardSettings
from memagent_train.rollout.model import RolloutModel
from memagent_train.rollout.roll import RolloutRequest, roll
from memagent_train.rollouts import Row
from memagent_train.runs.rollout_log import read_rollouts
from memagent_train.scoring import LastScored

SESSIONS, DRAWS = 2, 40
Pass = dict[str, Any]


class Rambling(Player):
    """Also overflows the context with its last action, in a share of the conversations."""

    def __init__(self, *, dropped: float, wrong: float, window: int, seed: int) -> None:
        super().__init__(wrong=wrong)
        self.dropped, self.window, self._chance = dropped, window, random.Random(seed)
        self.rambles = self._chance.random() < dropped

    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        if "Sum up what" in NAMES.decode(list(prompt_ids)).rpartition("user\n")[2]:
            self.rambles = self._chance.random() < self.dropped
        return await super().sample(prompt_ids, max_tokens=max_tokens, sampling=sampling, seed=seed)


def play(given: argparse.Namespace) -> Iterator[list[Row]]:
    """The conversations of each game."""
    tools = {**SMALL, "working_context": given.context, "max_steps": 200, "max_summaries": 50}
    settings = AgentSettings.model_validate({"use": "tools", "tools": tools})
    agent, rewards = load_agent(settings, store=None), open_rewards(RewardSettings())
    for game in range(given.games):
        sample = GameTask("deck", DRAWS, seed=game).sample(0)
        rows: list[Row] = []
        for session in range(SESSIONS):
            seed = game * SESSIONS + session
            engine = Rambling(
                dropped=given.dropped, wrong=given.wrong, window=given.context + 200, seed=seed
            )
            model = RolloutModel(engine, NAMES)
            asked = [RolloutRequest(sample, "g", f"r{seed}", seed)]
            (one,) = asyncio.run(roll(asked, model=model, agent=agent, verifier=rewards))
            rows += one.rows
        yield rows


def logged(path: Path) -> Iterator[list[Row]]:
    """The conversations of each group."""
    groups: dict[str, list[Row]] = {}
    for read in read_rollouts(path):
        prompt, response = tuple(read["prompt_ids"]), tuple(read["response_ids"])
        row = Row(prompt, response, (1,) * len(response), (0.0,) * len(response))
        groups.setdefault(read["group_id"], []).append(row)
    yield from groups.values()


def passes(rows: Sequence[TrainingRow], *, even: int, size: int) -> list[Pass]:
    """As the trainer makes them for one process."""
    lines = [row.row.ids for row in rows]
    count = max(round(len(rows) / size), 1)
    bundles = bundle(dict(enumerate(lines)), even=even, most=sum(map(len, lines)) / count)
    lengths = [one.size for one in bundles]
    (mine,) = deal(lengths, ranks=1, micro_batches=count)
    made: list[Pass] = []
    for places in (one for part in mine for one in part if one != [-1]):
        parts = [[(rows[at], 1.0) for at in bundles[n].rows] for n in places]
        made.append(pass_of(parts, sum(map(len, parts)), pad=0, device=torch.device("cpu")))
    return made


def timed(model: Any, made: Sequence[Pass]) -> tuple[float, torch.Tensor]:
    """Processor seconds of all passes, forward and backward, and their gradient."""
    start = time.process_time()
    for one in made:
        ids, real = (
            torch.cat([one[f"prompt_{part}"], one[f"completion_{part}"]], dim=1)
            for part in ("ids", "mask")
        )
        labels = ids.masked_fill(real == 0, -100)
        labels[:, : one["prompt_ids"].size(1)] = -100
        score = LastScored(model, model, one["packed"])
        out = score(input_ids=ids, attention_mask=real, labels=labels, fused_lm_head=True)
        out.log_probs.sum().backward()
    seconds = time.process_time() - start
    gradient = torch.cat([weight.grad.flatten() for weight in model.parameters()])
    model.zero_grad()
    return seconds, gradient


def load(given: argparse.Namespace) -> Any:
    """The model: a folder's, or a Qwen3 with random weights."""
    torch.manual_seed(0)
    model: Any
    if given.model is not None:
        model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    else:
        config: Any = Qwen3Config
        model = Qwen3ForCausalLM(
            config(
                vocab_size=len(NAMES),
                hidden_size=given.width,
                intermediate_size=2 * given.width,
                num_hidden_layers=given.layers,
                num_attention_heads=4,
                num_key_value_heads=4,
                head_dim=given.width // 4,
                max_position_embeddings=4096,
                tie_word_embeddings=True,
            )
        )
    add_fused_lm_head(model)
    return model.train()


def main() -> int:
    """Measures and prints; fails if the two ways disagree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--games", type=int, default=10)
    parser.add_argument("--size", type=int, default=4, help="rows of a pass, about")
    parser.add_argument("--context", type=int, default=640)
    parser.add_argument("--dropped", type=float, default=0.4)
    parser.add_argument("--wrong", type=float, default=0.0)
    parser.add_argument("--rollouts", type=Path, help="rollouts/step-*.parquet of a training")
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = load(given)
    games = play(given) if given.rollouts is None else logged(given.rollouts)
    faster, unique, fewer, apart = list[float](), list[float](), list[float](), 0.0
    for number, rows in enumerate(games):
        different, _ = merge_rows([TrainingRow(row, 1.0) for row in rows], [0] * len(rows))
        ways = [passes(different, even=even, size=given.size) for even in (0, even_length(model))]
        if not number:
            timed(model, ways[0][:1])  # the first call is slower
        order = (0, 1) if number % 2 else (1, 0)
        found = {way: timed(model, ways[way]) for way in order}
        faster.append(found[0][0] / found[1][0])
        lines = [row.row.ids for row in different]
        tree = {line[: end + 1] for line in lines for end in range(len(line))}
        unique.append(sum(map(len, lines)) / len(tree))
        before, after = (sum(one["packed"].ids.numel() for one in way) for way in ways)
        fewer.append(before / after)
        apart = max(apart, float((found[0][1] - found[1][1]).norm() / found[0][1].norm()))
    measured = [
        measure.Row("tokens of an update per different one", unique),
        measure.Row("times fewer tokens of passes, padding included", fewer),
        measure.Row("times as fast, forward and backward", faster, least=1.3),
        measure.Row("largest relative distance of the gradients", [apart]),
    ]
    size = sum(weight.numel() for weight in model.parameters()) / 1e6
    print(f"{measure.machine()}, {size:.1f}M weights, {given.size} rows a pass, {vars(given)}\n")
    print(measure.table(measured), f"\neach: {[round(one, 2) for one in sorted(faster)]}")
    print(f"median {statistics.median(faster):.2f}")
    return 0 if apart < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
