"""A benchmark run: the folder, the remaining work, limits, systems."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from memagent.memory.agent import MemoryAgent
from memagent.memory.plan import MemoryPlan, MemorySettings
from memagent.messages import Usage
from memagent.models.base import ChatModel
from memagent.models.limit import ConcurrencyLimit, Limits, UsageLimit
from memagent.prompts import PromptSet
from memagent.threads import in_thread
from memagent_bench.costs import Forecast, Share, tokens_ratio
from memagent_bench.folder import SETTINGS, Binding, Folder, binding_of, check_folder, open_folder
from memagent_bench.grid import Cell, Facts, Grid, Job, Key
from memagent_bench.meter import Meter
from memagent_bench.provenance import extra_body_of, provenance, weights_of
from memagent_bench.records import RESULTS, every_record
from memagent_bench.runner import Runner, Summary
from memagent_bench.systems.base import Setting, Status, System
from memagent_bench.systems.registry import open_system
from memagent_bench.watch import Board, SilentWatcher

QUESTION = "What is the special number that the text gives for the word?"
"""A question of typical length, used to report window, chunk and memory."""


@dataclass(frozen=True)
class Benchmark:
    """A benchmark as requested."""

    grid: Grid
    model: ChatModel
    """The model, with retries."""
    prompts: PromptSet
    settings: MemorySettings
    out: Path
    limits: Limits = field(default_factory=Limits)
    """Limits over all runs of the command together, except for seconds."""
    concurrency: int = 16
    """Concurrent samples, and concurrent calls."""

    async def plan(self) -> MemoryPlan:
        """Returns window, chunk and memory for a typical question. Asks the server.

        Raises:
            BudgetError: the window cannot be divided as asked.
            ModelError: the server cannot be reached.
        """
        settings = dict(self.settings)
        agent = MemoryAgent(self.model, prompts=self.prompts, store=None, **settings)
        return await agent.plan((QUESTION,))

    async def forecast(self, plan: MemoryPlan) -> Forecast:
        """Estimates the cost of samples."""
        return Forecast(
            plan, await plan.counting(tokens_ratio, plan.counter, self.grid.options.counter)
        )

    def list_remaining(self, plan: MemoryPlan | None = None) -> list[list[Job]]:
        """Returns the jobs without a record in a closed folder. Blocks.

        Args:
            plan: the settings that its records must have; None if the server was not asked.

        Raises:
            RunMismatch: its records were made with different settings.
        """
        if plan is not None:
            # Reads the weights, which takes minutes, only if there is a folder to compare them with.
            weights = weights_of(self.model) if (self.out / SETTINGS).exists() else ""
            check_folder(self.out, self._binding(plan, weights))
        if not (self.out / RESULTS).exists():
            return list(self.grid.jobs())
        return list(self.grid.jobs(_read_known(self.out, self.grid.suite)[0]))

    def _binding(self, plan: MemoryPlan, weights: str) -> Binding:
        return binding_of(plan, self.grid.options, extra_body_of(self.model), weights)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[OpenBenchmark]:
        """Locks the folder for the remaining work.

        Raises:
            RunBusy: another process has locked it.
            RunMismatch: its records were made with different settings.
            MemagentError: see `plan` and `open_folder`.
        """
        plan = await self.plan()
        weights = await in_thread(weights_of, self.model)
        binding = await in_thread(self._binding, plan, weights)
        held = open_folder(self.out, binding)
        folder = await in_thread(held.__enter__)
        try:
            yield OpenBenchmark(self, plan, folder)
        finally:
            await in_thread(held.__exit__, None, None, None)


@dataclass(frozen=True)
class OpenBenchmark:
    """An open folder and the work to do in it."""

    benchmark: Benchmark
    plan: MemoryPlan
    folder: Folder

    async def run(
        self,
        watch: Callable[[Board], SilentWatcher],
        *,
        open_system: Callable[[str, Setting], System] = open_system,
        failed_in_a_row: int = 0,
    ) -> Summary:
        """Does the remaining work.

        Args:
            watch: shows the progress.
            open_system: makes a system from a name and a setting.
            failed_in_a_row: number of samples on which the model failed just before.

        Raises:
            MemagentError: see `Runner.run`.
        """
        bench, folder = self.benchmark, self.folder
        keys, facts = await in_thread(_read_known, folder.path, bench.grid.suite)
        jobs = list(bench.grid.jobs(keys))
        if not jobs:
            return Summary(failed_in_a_row=failed_in_a_row)
        meter = Meter(await self._limit())
        # Uses the current window: a restarted server may report another, which must not change the records.
        settings = bench.settings.model_copy(update={"window": self.plan.budget.window})
        setting = Setting(meter, bench.prompts, settings, folder.store)
        systems = {name: await in_thread(open_system, name, setting) for name in bench.grid.systems}
        forecast = await bench.forecast(self.plan)
        every = [job for several in jobs for job in several]
        shares = await self.plan.counting(forecast.shares, every)
        finished_count = sum(map(len, bench.grid.jobs())) - len(every)
        watcher = watch(Board(_weights(every, shares), finished_count, meter))
        runner = Runner(
            *(bench.grid, systems, folder, meter, await provenance(bench.model, self.plan)),
            watcher=watcher,
            concurrency=bench.concurrency,
            known=facts,
            failed_in_a_row=failed_in_a_row,
        )
        with watcher.screen:
            return await runner.run(jobs)

    async def _limit(self) -> ChatModel:
        """Wraps the model with its limits; each call is checked when its turn comes."""
        bench, model = self.benchmark, self.benchmark.model
        if bench.limits != Limits():
            spent = await in_thread(sum_spent, self.folder, self.plan)
            model = UsageLimit(model, bench.limits, spent=spent)
        return ConcurrencyLimit(model, bench.concurrency)


def sum_spent(folder: Folder, plan: MemoryPlan) -> Usage:
    """Returns the usage of the benchmark's model by earlier runs of the command.

    It includes stored runs, even unfinished ones, other records, and anything else that ended normally.
    What a killed run sent for samples without a stored run is unknown. Blocks.

    Args:
        folder: an open one.
        plan: for a nominal question. The runs of a system with a separate model have another model or window.
    """
    total, shared = folder.spent, (plan.model.name, plan.counter.name, plan.budget.window)
    run_ids: set[str] = set()
    for run in folder.store.runs():
        run_ids.add(run.id)
        bound = run.binding
        if (bound["model"], bound["counter"], bound["budget"]["window"]) == shared:
            total += folder.store.usage(run.id)
    for record in every_record(folder.path):
        if record.run_id not in run_ids:
            total += record.usage
    return total


def _read_known(path: Path, suite: str) -> tuple[frozenset[Key], dict[Cell, Facts]]:
    """Returns the keys whose last record is an answer (others are retried) and the facts of a suite's data. Blocks."""
    last: dict[Key, bool] = {}
    facts: dict[Cell, Facts] = {}
    for record in every_record(path):
        last[record.key] = record.status is Status.ANSWERED
        if record.suite == suite:
            facts[record.task, record.length] = record.facts
    return frozenset(key for key, answered in last.items() if answered), facts


def _weights(jobs: Sequence[Job], shares: Sequence[Share]) -> dict[Job, float]:
    """Returns the tokens of each job. A job without calls only reads text, which counts as a hundredth of the work."""
    each = {
        (share.system, share.length): share.each.tokens or share.length / 100 for share in shares
    }
    return {job: each[job.system, job.length] for job in jobs}
