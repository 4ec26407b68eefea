"""`make bench-dialogues`: rollouts of dialogues with tools, against a loop that keeps all dialogues in step.

Usage: python -m tests.train.measure_dialogues --base-url URL --folder MODEL [--turns 12 50] [--rounds N] [--verify S]

It starts no server, and needs `memagent[train]`. Each dialogue is turns of a call (a few tokens) and a tool that only
takes time, lognormal with the same mean and growing spread. The loop in step sends all calls of a turn, waits for all
replies, then for all tools. With an engine of no latency it would take the sum over turns of the slowest tool, and
rollouts the sum of the slowest dialogue's tools: the ratio of the two is the bound.

With `--verify`, each dialogue is then verified by a function that needs a processor for as many seconds. The loop in
step verifies all at its end, and rollouts each as it ends, so the bound is the time of those tools and all verifiers
over that of the slowest dialogue with its verifier, or of the first dialogue with all of them, whichever is longer.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from memagent import ChatModel, ChatRequest, Message
from memagent.tasks import Sample
from memagent.tasks.origin import machine
from memagent_bench.perf.measure import Row, publish
from memagent_bench.report.canvas import style
from memagent_bench.server.vllm import VLLM

COMMAND = "make bench-dialogues"
DIALOGUES, REPLY = 100, 8
LATENCY = 0.5
"""Mean seconds of a tool."""
TURNS, SPREADS = (12, 50), (0.0, 0.5, 1.0, 1.5)
"""Turns of a dialogue, and standard deviations of the logarithm of a tool's seconds."""
WORKERS = 2
"""Processes for verifiers."""
LOOK = 0.05
"""Seconds between two looks at the server's metrics."""
WINDOW = 4096


class Setting(NamedTuple):
    """What dialogues do."""

    turns: int
    spread: float
    """Standard deviation of the logarithm of a tool's seconds."""
    verify: float = 0.0
    """Processor seconds that verifying a dialogue takes."""

    def __str__(self) -> str:
        verified = f", verifiers of {self.verify:g} s" if self.verify else ""
        return f"{self.turns} turns, spread {self.spread:g}{verified}"


@dataclass(frozen=True)
class Reading:
    """One way to make all dialogues."""

    seconds: float
    idle: float
    """Share of looks at the server at which it had no request."""


@dataclass(frozen=True)
class Pair:
    """Both ways with the same tools, one after the other."""

    rollouts: Reading
    in_step: Reading
    bound: float
    """Of the ratio of their times."""

    @property
    def ratio(self) -> float:
        """How many times as long the loop in step took."""
        return self.in_step.seconds / self.rollouts.seconds


def tools(turns: int, spread: float, seed: int) -> np.ndarray:
    """Seconds of each tool, dialogues x turns, with mean `LATENCY`."""
    drawn = np.random.default_rng((seed, turns)).normal(size=(DIALOGUES, turns))
    return LATENCY * np.exp(spread * drawn - spread**2 / 2)


def bound(seconds: np.ndarray, verify: float) -> float:
    """See the module."""
    dialogues, verified = seconds.sum(axis=1), verify * len(seconds) / WORKERS
    least = max(dialogues.max() + verify, dialogues.min() + verified)
    return float((seconds.max(axis=0).sum() + verified) / least)


def burn(answer: str | None, _: Sample) -> float:
    """The verifier: takes as many processor seconds as the answer says."""
    end = time.process_time() + float(answer or 0)
    while time.process_time() < end:
        pass
    return 1.0


class Dialogue:
    """One dialogue: what was said, and its next call."""

    def __init__(self, number: int) -> None:
        self.messages = (Message(role="user", content=f"Game {number}. What do you do?"),)

    async def turn(self, model: ChatModel) -> None:
        """One call."""
        done = await model.complete(ChatRequest(messages=self.messages, max_tokens=REPLY))
        self.messages += (
            Message(role="assistant", content=done.text),
            Message(role="user", content="The tool has run. What next?"),
        )


async def make_rollouts(model: Any, seconds: np.ndarray, verifier: Any, verify: float) -> None:
    """All dialogues, as `memagent-train` rolls them out."""
    from memagent_train.rollout.roll import RolloutRequest, roll
    from memagent_train.rollouts import Outcome, Status

    async def agent(recorder: ChatModel, sample: Sample) -> Outcome:
        dialogue = Dialogue(sample.index)
        for wait in seconds[sample.index]:
            await dialogue.turn(recorder)
            await asyncio.sleep(wait)
        return Outcome(str(verify))

    requests = [
        RolloutRequest(_sample(number), f"group-{number}", f"dialogue-{number}", number)
        for number in range(len(seconds))
    ]
    made = await roll(requests, model=model, agent=agent, verifier=verifier, concurrency=DIALOGUES)
    if failed := [one.error for one in made if one.status is not Status.SCORED]:
        raise RuntimeError(f"{len(failed)} dialogues failed: {failed[0]}")


async def make_in_step(model: Any, seconds: np.ndarray, verifier: Any, verify: float) -> None:
    """All dialogues, turn by turn."""
    from memagent_train.rollouts import Rollout, Status

    models = [model.clone(number) for number in range(len(seconds))]
    dialogues = [Dialogue(number) for number in range(len(seconds))]
    for turn in range(seconds.shape[1]):
        await asyncio.gather(*(d.turn(m) for d, m in zip(dialogues, models, strict=True)))
        await asyncio.gather(*(asyncio.sleep(wait) for wait in seconds[:, turn]))
    done = [
        Rollout("group", f"dialogue-{number}", _sample(number), (), str(verify), Status.UNSCORED)
        for number in range(len(seconds))
    ]
    await asyncio.gather(*map(verifier.verify, done))


async def read(make: Callable[[], Awaitable[None]], server: VLLM) -> Reading:
    """Makes all dialogues one way, and looks at the server meanwhile."""
    server.reset()
    idle: list[bool] = []

    async def look() -> None:
        while True:
            at_work = await asyncio.to_thread(
                server.metrics,
                {"running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting{"},
            )
            idle.append(not any(at_work.values()))
            await asyncio.sleep(LOOK)

    looking = asyncio.create_task(look())
    start = time.perf_counter()
    try:
        await make()
        return Reading(time.perf_counter() - start, statistics.mean(idle or [False]))
    finally:
        looking.cancel()


async def measure(given: argparse.Namespace) -> dict[Setting, list[Pair]]:
    """All pairs."""
    from transformers import AutoTokenizer

    from memagent_train.rewards.open import open_rewards
    from memagent_train.rewards.settings import RewardSettings
    from memagent_train.rollout.model import RolloutModel
    from memagent_train.rollout.served import ServedSampler

    sampler = ServedSampler("vllm", given.base_url, window=WINDOW)
    model = RolloutModel(sampler, AutoTokenizer.from_pretrained(given.folder))
    server = VLLM(given.base_url)
    verifier = open_rewards(
        RewardSettings(use="tests.train.measure_dialogues:burn", workers=WORKERS, time_limit=60.0)
    )
    settings = [
        Setting(turns, spread, given.verify) for turns in given.turns for spread in given.spreads
    ]
    found: dict[Setting, list[Pair]] = {}
    try:
        await make_rollouts(model, tools(2, 0.0, 0), verifier, 0.0)  # the server warms up
        for number in range(given.rounds):
            for setting in settings:
                seconds = tools(setting.turns, setting.spread, number)
                given_to_both = model, seconds, verifier, setting.verify
                rollouts = await read(partial(make_rollouts, *given_to_both), server)
                in_step = await read(partial(make_in_step, *given_to_both), server)
                pair = Pair(rollouts, in_step, bound(seconds, setting.verify))
                found.setdefault(setting, []).append(pair)
                print(f"{setting}: {pair}", flush=True)
    finally:
        await verifier.aclose()
        await sampler.aclose()
    return found


def rows_of(found: dict[Setting, list[Pair]]) -> list[Row]:
    """The table's lines."""
    rows: list[Row] = []
    for setting, pairs in found.items():
        what = str(setting)
        rows += [
            Row(f"{what}: times as fast", [pair.ratio for pair in pairs]),
            Row(f"{what}: bound", [pair.bound for pair in pairs]),
            Row(f"{what}: server idle", [pair.rollouts.idle for pair in pairs]),
            Row(f"{what}: server idle in step", [pair.in_step.idle for pair in pairs]),
        ]
    return rows


def plot(found: dict[Setting, list[Pair]], file: Path) -> None:
    """Ratio and bound over the spread, one panel for each number of turns."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(7.5, 3), layout="constrained")
        turns = sorted({setting.turns for setting in found})
        axes: Sequence[Any] = figure.subplots(1, len(turns), sharey=True, squeeze=False)[0]
        for axis, many in zip(axes, turns, strict=True):
            of_panel = [setting for setting in found if setting.turns == many]
            spreads = [setting.spread for setting in of_panel]
            for label, mark, of in (
                ("measured", "o-", lambda pair: pair.ratio),
                ("bound", "s--", lambda pair: pair.bound),
            ):
                values = [[of(pair) for pair in found[one]] for one in of_panel]
                middle = [statistics.median(one) for one in values]
                axis.plot(spreads, middle, mark, label=label)
                axis.fill_between(
                    spreads, [min(v) for v in values], [max(v) for v in values], alpha=0.15
                )
            axis.set_title(f"{many} turns")
            axis.set_xlabel("spread of the tools' time (log)")
        axes[0].set_ylabel("times as fast as in step")
        axes[0].set_ylim(bottom=0)
        axes[0].legend()
        figure.savefig(file, dpi=150)


def main() -> int:
    """Measures, prints the table, and writes it into a page where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", default=os.environ.get("MEMAGENT_BASE_URL"))
    parser.add_argument("--folder", default=os.environ.get("MODEL_FOLDER"))
    parser.add_argument("--turns", type=int, nargs="+", default=TURNS)
    parser.add_argument("--spreads", type=float, nargs="+", default=SPREADS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--verify", type=float, default=0.0, help="processor seconds of a dialogue's verifier"
    )
    parser.add_argument("--write", type=Path, help="put the table into this page")
    parser.add_argument("--plot", type=Path, help="draw ratio and bound into this file")
    given = parser.parse_args()
    found = asyncio.run(measure(given))
    rows = rows_of(found)
    version = VLLM(given.base_url).version()
    where = f"{machine()}, vLLM {version} with two layers of random weights on the same machine"
    several = f' TURNS="{" ".join(map(str, given.turns))}"' if tuple(given.turns) != TURNS else ""
    verified = f" VERIFY={given.verify:g}" if given.verify else ""
    code = publish(rows, f"{COMMAND}{several}{verified}", given.write, where)
    if given.plot is not None:
        plot(found, given.plot)
    return code


def _sample(number: int) -> Sample:
    return Sample(
        task="dialogue",
        index=number,
        length=1,
        tokens=1,
        context="",
        question="",
        outputs=("done",),
        generate=REPLY,
    )


if __name__ == "__main__":
    sys.exit(main())
