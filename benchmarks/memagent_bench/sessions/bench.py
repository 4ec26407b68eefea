"""Runs sessions: each ends in a record, or is replayed the next time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import cast

from memagent.errors import ConfigError, ModelError
from memagent.messages import Usage
from memagent.models.base import ChatModel
from memagent.models.policy import Protocol
from memagent.models.scripted import ScriptedModel
from memagent.prompts.session import SessionPrompts
from memagent.terminal import shorten
from memagent.threads import in_thread
from memagent_bench.folder import bind_folder
from memagent_bench.length_tokens import length_counter
from memagent_bench.outside.base import BadData
from memagent_bench.provenance import extra_body_of, weights_of
from memagent_bench.records import RecordFile
from memagent_bench.runner import FATAL, IN_A_ROW
from memagent_bench.sessions.counter import ChatCounter
from memagent_bench.sessions.expert import ExpertOver
from memagent_bench.sessions.grid import Dealt, Job, Plan
from memagent_bench.sessions.origin import Player, binding_of, origin_of
from memagent_bench.sessions.play import play
from memagent_bench.sessions.record import SESSIONS, Origin, Reason, SessionRecord, read_sessions
from memagent_bench.sessions.seat import Seat, SessionEnd
from memagent_bench.sessions.tally import Tally
from memagent_bench.sessions.wire.loops import LOOPS, load_loop
from memagent_bench.sessions.wire.play import SessionOutcome, work
from memagent_bench.sessions.wire.writer import Writer
from memagent_bench.shift.shift import Shift
from memagent_bench.systems.base import Status

FIRST = 10
"""Steps of the shift that warms up a loop."""
DETAIL = 500
"""Maximum characters kept of the reason for a missing answer."""
Tell = Callable[[SessionRecord, int, int], None]
"""Called with each record, the number of records so far, and the total."""


@dataclass(frozen=True)
class SessionBench:
    """Sessions as requested."""

    grid: Plan
    out: Path
    model: ChatModel | None = None
    """None: prompts are counted, and no server is needed."""
    player: Player = "expert"
    protocol: Protocol = "native"
    window: int | None = None
    """Window assumed without a model; None for unlimited."""
    tokenizer: str | None = None
    """Tokenizer used without a model; None for GPT-2's."""
    concurrency: int = 1
    writers: Mapping[str, ChatModel] = field(default_factory=dict[str, ChatModel])
    """Models that write the summaries of loops at a server, by their name in arms."""

    def __post_init__(self) -> None:
        if self.model is None and self.player == "model":
            raise ConfigError(
                "there is no model to play: name one (--model), or let the expert play"
            )
        wired = sorted({arm.system for arm in self.grid.arms} & {*LOOPS})
        if wired and (self.model is not None or self.protocol != "native"):
            raise ConfigError(
                f"the systems {', '.join(wired)} work at a local server that rules play, with native calls: leave "
                f"out --model and --protocol"
            )
        if self.model is not None and self.window is not None:
            raise ConfigError(
                "--window is for counting without a model: a real model has its own window; leave it out"
            )

    @cached_property
    def prompts(self) -> SessionPrompts:
        """Wording of the session prompts."""
        return SessionPrompts.load()

    @cached_property
    def counter(self) -> ChatCounter:
        """Counter used without a model."""
        return ChatCounter(length_counter(self.tokenizer))

    def choose_model(self) -> ChatModel:
        """Returns the model that gets the requests: `model`, or a new stand-in, which keeps all its requests."""
        if self.model is not None:
            return self.model
        return ScriptedModel(
            lambda _: "nothing", window=self.window, counter=self.counter, name="none"
        )

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Playing]:
        """Locks the folder.

        Raises:
            ConfigError: a game can't be dealt with these settings, or a working context exceeds the window.
            RunBusy, RunMismatch, StoreError: the folder cannot be used.
            ModelError: the server cannot be reached.
        """
        await in_thread(self.grid.check)
        paid, prompts = await in_thread(
            lambda: (self.choose_model(), self.prompts)
        )  # blocks: reads files
        origin = await origin_of(paid, self.player, self.protocol, prompts, self.grid.name)
        self._check_window(origin.window)
        binding = await in_thread(
            lambda: binding_of(origin, self.grid.files, extra_body_of(paid), weights_of(paid))
        )
        held = bind_folder(self.out, binding)
        await in_thread(held.__enter__)
        try:
            yield Playing(self, origin)
        finally:
            await in_thread(held.__exit__, None, None, None)

    def _check_window(self, window: int | None) -> None:
        for arm in self.grid.arms:
            size = arm.working_context or 0
            if arm.system not in LOOPS and window is not None and size > window:
                raise ConfigError(
                    f"{arm.label} has a working context of {size} tokens, but the window has {window}: give "
                    f"--working-context {window} or less, or a larger window"
                )


class Playing:
    """An open folder, and the sessions played in it."""

    def __init__(self, bench: SessionBench, origin: Origin) -> None:
        self._bench, self._origin = bench, origin
        self._failed_in_a_row = 0
        self._warm: set[str] = set()
        """Loops that have already played in this process."""

    async def run(self, tell: Tell) -> list[SessionRecord]:
        """Plays jobs without a record, and failed ones; returns the new records.

        Raises:
            ConfigError: a setting can't work with the model.
            ModelError: the model failed too often in a row, or in a way that won't resolve itself.
            StoreError: a record cannot be written.
        """
        bench = self._bench
        old_records = await in_thread(read_sessions, bench.out)
        keys = {record.key for record in old_records if record.status is not Status.FAILED}
        every = [*bench.grid.jobs()]
        open_jobs = [*bench.grid.jobs(keys)]
        file = await in_thread(RecordFile, bench.out, SESSIONS, SessionRecord)
        new_records: list[SessionRecord] = []

        async def work(jobs: Iterator[Job]) -> None:
            for job in jobs:
                record = await self._play(job)
                await in_thread(file.append, record)
                new_records.append(record)
                tell(record, len(every) - len(open_jobs) + len(new_records), len(every))
                self._give_up(record)

        queue = iter(open_jobs)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(bench.concurrency):
                    group.create_task(work(queue))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            await in_thread(file.close)
        return new_records

    async def _play(self, job: Job) -> SessionRecord:
        """Plays one session, from the deal to its record."""
        at_server = job.arm.system in LOOPS
        if at_server:
            await self._warm_up(job)
        started, begun = datetime.now(UTC), time.monotonic()
        try:
            dealt = await in_thread(self._bench.grid.deal, job)
        except ConfigError as error:
            broken = SessionOutcome(SessionEnd(reason=Reason.BROKEN, detail=str(error)), Usage(), 0)
            return self._record(job, None, broken, started, time.monotonic() - begun)
        try:
            worked = await (self._at_server if at_server else self._with_model)(job, dealt)
            record = self._record(job, dealt, worked, started, time.monotonic() - begun)
            await in_thread(dealt.keep, record)
            return record
        finally:
            await in_thread(dealt.close)

    def _record(
        self,
        job: Job,
        dealt: Dealt | None,
        worked: SessionOutcome,
        started: datetime,
        seconds: float,
    ) -> SessionRecord:
        ended, answered = worked.ended, worked.ended.reason is Reason.ANSWERED
        return SessionRecord(
            **job._asdict(),
            score=dealt.environment.verdict() if dealt and answered else None,
            status=ended.reason.status,
            reason=ended.reason,
            detail=shorten(ended.detail, DETAIL),
            answer=ended.answer if answered else None,
            steps=dealt.environment.steps if dealt else 0,
            summaries=ended.summaries,
            usage=worked.usage,
            largest_prompt=worked.largest,
            wired=worked.wired,
            seconds=seconds,
            started=started.isoformat(timespec="seconds"),
            origin=self._origin,
        )

    async def _with_model(self, job: Job, dealt: Dealt) -> SessionOutcome:
        bench = self._bench
        tally = Tally(bench.choose_model())
        try:
            if bench.player == "expert":
                rules = await in_thread(bench.grid.expert, job)
                tally.inner = ExpertOver(tally.inner, rules, native=bench.protocol == "native")
            settings = (bench.protocol, bench.prompts, job.max_steps, job.seed, dealt.follow)
            ended = await play(Seat(dealt.environment, tally, *settings), job.arm)
        except BadData as error:  # a task's, so the others go on
            ended = SessionEnd(reason=Reason.BROKEN, detail=str(error))
        except (*FATAL, ConfigError):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a session raises, the others go on
            ended = SessionEnd(reason=Reason.ERROR, detail=f"{type(error).__name__}: {error}")
        return SessionOutcome(ended, tally.usage, tally.largest)

    async def _at_server(self, job: Job, dealt: Dealt) -> SessionOutcome:
        bench = self._bench
        return await work(
            load_loop(job.arm.system),
            cast("Shift", dealt.environment),
            bench.counter,
            window=job.arm.working_context or 0,
            max_steps=job.max_steps,
            # A writer in this process would be counted as the loop.
            alone=bench.concurrency == 1 and job.arm.writer is None,
            write=None if job.arm.writer is None else Writer(bench.writers[job.arm.writer]),
        )

    async def _warm_up(self, job: Job) -> None:
        """Plays one short shift with each loop: what a framework loads at first isn't part of a step's time."""
        if job.arm.system not in self._warm:
            self._warm.add(job.arm.system)
            arm = job.arm.model_copy(update={"writer": None})
            first = job._replace(game=Shift.name, difficulty=FIRST, arm=arm)
            await self._at_server(first, await in_thread(self._bench.grid.deal, first))

    def _give_up(self, record: SessionRecord) -> None:
        """Ends the run if the model keeps failing."""
        failed = record.reason is Reason.ERROR
        self._failed_in_a_row = self._failed_in_a_row + 1 if failed else 0
        if self._failed_in_a_row >= IN_A_ROW:
            raise ModelError(
                f"stopped: {IN_A_ROW} sessions failed in a row, the last one with {record.detail}; check the "
                f"server, then repeat the command"
            )
