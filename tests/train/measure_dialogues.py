"""`make bench-dialogues`: rollouts of dialogues with tools, against a loop that keeps all dialogues in step.

Usage: python -m tests.train.measure_dialogues --base-url URL --folder MODEL [--turns 50 12] [--rounds N] [--verify S]

It starts no server, and needs `memagent[train]`. What it measures is added to a file, and what the file has isn't
measured again, so it can be stopped at any time. Without a URL it only makes the table and the picture from the file.

Each dialogue is turns of a call (a few tokens) and a tool that only takes time, lognormal with the same mean and
growing spread. The loop in step sends all calls of a turn, waits for all replies, then for all tools. With an engine of
no latency it would take the sum over turns of the slowest tool, and rollouts the sum of the slowest dialogue's tools:
the ratio of the two is the bound. Rollouts also make calls while tools of other dialogues run, which it leaves out, so
with tools of equal time they can be faster than it says.

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
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from tests.train.dialogues import KEPT, LATENCY, Pair, Reading, Setting, keep, kept, plot, section

from memagent import ChatModel, ChatRequest, Message
from memagent.tasks import Sample
from memagent.tasks.origin import machine
from memagent_bench.perf.measure import show
from memagent_bench.server.vllm import VLLM

COMMAND = "make bench-dialogues"
DIALOGUES, REPLY = 100, 8
TURNS, SPREADS = (50, 12), (1.5, 1.0, 0.0)
"""Turns of a dialogue, and standard deviations of the logarithm of a tool's seconds. The longest is measured first."""
WORKERS = 2
"""Processes for verifiers."""
LOOK = 0.25
"""Seconds between two looks at the server's metrics, which it takes milliseconds to write."""
AT_WORK = {"running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting{"}
FRONT = {"front": "process_cpu_seconds_total"}
WINDOW = 4096


def tools(setting: Setting) -> np.ndarray:
    """Seconds of each tool, dialogues x turns."""
    random = np.random.default_rng((setting.number, setting.turns))
    drawn = random.normal(size=(DIALOGUES, setting.turns))
    return setting.latency * np.exp(setting.spread * drawn - setting.spread**2 / 2)


def bound(seconds: np.ndarray, verify: float, processors: int) -> float:
    """See the module."""
    dialogues, verified = seconds.sum(axis=1), verify * len(seconds) / min(WORKERS, processors)
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

    def __init__(self, number: int, calls: list[float]) -> None:
        self._calls = calls
        self.messages = (Message(role="user", content=f"Game {number}. What do you do?"),)

    async def turn(self, model: ChatModel) -> None:
        """One call."""
        start = time.perf_counter()
        done = await model.complete(ChatRequest(messages=self.messages, max_tokens=REPLY))
        self._calls.append(time.perf_counter() - start)
        self.messages += (
            Message(role="assistant", content=done.text),
            Message(role="user", content="The tool has run. What next?"),
        )


async def make_rollouts(
    model: Any, seconds: np.ndarray, verifier: Any, verify: float
) -> list[float]:
    """All dialogues, as `memagent-train` rolls them out; returns the seconds of each call."""
    from memagent_train.rollout.roll import RolloutRequest, roll
    from memagent_train.rollouts import Outcome, Status

    calls: list[float] = []

    async def agent(recorder: ChatModel, sample: Sample) -> Outcome:
        dialogue = Dialogue(sample.index, calls)
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
    return calls


async def make_in_step(
    model: Any, seconds: np.ndarray, verifier: Any, verify: float
) -> list[float]:
    """All dialogues, turn by turn; returns the seconds of each call."""
    from memagent_train.rollouts import Rollout, Status

    models = [model.clone(number) for number in range(len(seconds))]
    calls: list[float] = []
    dialogues = [Dialogue(number, calls) for number in range(len(seconds))]
    for turn in range(seconds.shape[1]):
        await asyncio.gather(*(d.turn(m) for d, m in zip(dialogues, models, strict=True)))
        await asyncio.gather(*(asyncio.sleep(wait) for wait in seconds[:, turn]))
    done = [
        Rollout("group", f"dialogue-{number}", _sample(number), (), str(verify), Status.UNSCORED)
        for number in range(len(seconds))
    ]
    await asyncio.gather(*map(verifier.verify, done))
    return calls


async def read(make: Callable[[], Awaitable[list[float]]], server: VLLM) -> Reading:
    """Makes all dialogues one way, and looks at the server meanwhile."""
    server.reset()
    idle: list[bool] = []

    async def look() -> None:
        while True:
            now = await asyncio.to_thread(server.metrics, AT_WORK)
            idle.append(not any(now.values()))
            await asyncio.sleep(LOOK)

    looking = asyncio.create_task(look())
    front, client, start = server.metrics(FRONT), time.process_time(), time.perf_counter()
    try:
        calls = await make()
    finally:
        looking.cancel()
    return Reading(
        seconds=time.perf_counter() - start,
        idle=statistics.mean(idle or [False]),
        call=statistics.mean(calls),
        client=time.process_time() - client,
        front=server.metrics(FRONT)["front"] - front["front"],
    )


async def measure(given: argparse.Namespace, wanted: Sequence[Setting]) -> None:
    """Adds what is wanted to the file."""
    from transformers import AutoTokenizer

    from memagent_train.rewards.open import open_rewards
    from memagent_train.rewards.settings import RewardSettings
    from memagent_train.rollout.model import RolloutModel
    from memagent_train.rollout.served import ServedSampler

    sampler = ServedSampler("vllm", given.base_url, window=WINDOW)
    model = RolloutModel(sampler, AutoTokenizer.from_pretrained(given.folder))
    verifier = open_rewards(
        RewardSettings(use="tests.train.measure_dialogues:burn", workers=WORKERS, time_limit=60.0)
    )
    processors = len(os.sched_getaffinity(0))
    try:
        with httpx.Client() as client:
            server = VLLM(given.base_url, client)
            where = f"{machine()} ({processors} used), vLLM {server.version()} with two layers of random weights"
            await make_rollouts(model, np.zeros((DIALOGUES, 2)), verifier, 0.0)  # to warm up
            for setting in wanted:
                seconds = tools(setting)
                given_to_both = model, seconds, verifier, setting.verify
                rollouts = await read(partial(make_rollouts, *given_to_both), server)
                in_step = await read(partial(make_in_step, *given_to_both), server)
                limit = bound(seconds, setting.verify, processors)
                pair = Pair(setting, limit, rollouts, in_step, where)
                print(pair, flush=True)
                keep([*kept(given.kept), pair], given.kept)
    finally:
        await verifier.aclose()
        await sampler.aclose()


def main() -> int:
    """Measures what the file lacks, prints the table, and writes it into a page where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", default=os.environ.get("MEMAGENT_BASE_URL"))
    parser.add_argument("--folder", default=os.environ.get("MODEL_FOLDER"))
    parser.add_argument("--turns", type=int, nargs="+", default=TURNS)
    parser.add_argument("--spreads", type=float, nargs="+", default=SPREADS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--latency", type=float, default=LATENCY, help="mean seconds of a tool")
    parser.add_argument(
        "--verify", type=float, default=0.0, help="processor seconds of a dialogue's verifier"
    )
    parser.add_argument("--kept", type=Path, default=KEPT, help="what was measured, in JSON")
    parser.add_argument("--write", type=Path, help="put the table into this page")
    parser.add_argument("--plot", type=Path, help="draw ratio and bound into this file")
    given = parser.parse_args()
    wanted = settings(given)
    if given.base_url and wanted:
        asyncio.run(measure(given, wanted))
    pairs = kept(given.kept)
    show(section(pairs), COMMAND, given.write)
    if given.plot is not None:
        plot(pairs, lambda setting: bound(tools(setting), 0.0, WORKERS), given.plot)
    return 0


def settings(given: argparse.Namespace) -> list[Setting]:
    """What is asked for and not in the file, in the order of measuring: one spread after the other."""
    there = {pair.setting for pair in kept(given.kept)}
    asked = [
        Setting(turns, spread, given.latency, given.verify, number)
        for number in range(given.rounds)
        for spread in given.spreads
        for turns in given.turns
    ]
    return [setting for setting in asked if setting not in there]


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
