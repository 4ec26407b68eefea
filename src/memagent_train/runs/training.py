"""One session of training: its parts, and how they interact from step to step."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PreTrainedModel, PrinterCallback
from trl.trainer.grpo_config import GRPOConfig

from memagent.prompts import PromptSet
from memagent_engines.transformers.loading import text_counter
from memagent_train.agents import MEMORY, TOOLS
from memagent_train.arguments import trl_arguments
from memagent_train.config.train import TrainConfig
from memagent_train.data.open import Data, open_data
from memagent_train.rollout.meter import Utilization
from memagent_train.rollout.remote import RemoteSampler
from memagent_train.rollout.roll import RolloutRequest
from memagent_train.rollouts import Rollout
from memagent_train.runs.ahead import Ahead
from memagent_train.runs.engine import WeightTransfer
from memagent_train.runs.evaluation import by_length
from memagent_train.runs.folder import RunFolder
from memagent_train.runs.held_out import HeldOut
from memagent_train.runs.identity import ADDED, identify
from memagent_train.runs.ids import group_id, rollout_id, seed_of
from memagent_train.runs.keeping import SEPARATE, Keeper
from memagent_train.runs.policy import (
    Tokenizer,
    check_fit,
    load_model,
    load_tokenizer,
    with_adapter,
    with_checkpoint,
)
from memagent_train.runs.processes import Process
from memagent_train.runs.progress import Board, SilentWatcher
from memagent_train.runs.rehearsal import rehearse
from memagent_train.runs.rolling import Rolling
from memagent_train.runs.rollout_log import log_path, write_rollouts
from memagent_train.sessions import SessionSettings
from memagent_train.trainer import RolloutTrainer

FURTHER = 1_000_000
"""Base of the epochs for replacement groups with the batch's own indices, one per step: beyond any training's."""


class Training:
    """The parts of a session. Close it after use.

    Args:
        config: the settings.
        folder: the run's folder, rolled back to its newest checkpoint.
        process: this process among those that train together.
        reports: where metrics are sent.

    Raises:
        ConfigError: a setting is wrong.
        CheckpointMismatch: the run was started with other data or prompts.
    """

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        *,
        process: Process,
        reports: Sequence[str] = (),
    ) -> None:
        self.config, self.folder, self.process = config, folder, process
        self.newest = folder.find_newest()
        self.done = self.newest is not None and self.newest.step >= config.optimizer.steps
        steps = self.newest.step if self.newest else 0
        self.watch = SilentWatcher(Board(config.optimizer.steps, steps))
        """Receives the progress."""
        self._begun: int | None = None
        self._groups = 0
        self._early: tuple[tuple[int, ...], list[Rollout]] | None = None
        self._measured: Utilization | None = None
        tokenizer = load_tokenizer(config.model)
        counter = text_counter(tokenizer)
        data = open_data(config.data, counter=counter)
        rehearse(config, tokenizer, data)
        self.data, held_out = self._divide(data, tokenizer)
        self.held_out = HeldOut(
            held_out,
            config.evaluation,
            steps=config.optimizer.steps,
            seed=config.optimizer.seed,
            folder=folder,
            process=process,
        )
        self.rolling = Rolling(config, folder.runs if config.logging.runs else None)
        self._ahead = Ahead(self.rolling.cancel)
        try:
            model = self._model()
            check_fit(model, tokenizer)
            self.rolling.attach(model, tokenizer)
            self.policy = self.rolling.policy(config.rollout.sampling)
            self.trainer = self._trainer(model, reports)
        except BaseException:
            self.close()
            raise

    def _divide(self, data: Data, tokenizer: Tokenizer) -> tuple[Data, dict[int, Data]]:
        """Returns training data, and held-out data by length; records them, or compares them with the run's record."""
        settings = self.config.evaluation
        held_out: dict[int, Data] = {}
        if settings.columns:
            data, held = data.split(settings.n)
            held_out = by_length(held, settings.columns)
        if self.process.first:
            wording, source = self._wording()
            facts = {**data.facts, "prompts": wording, **identify(self.config, tokenizer)}
            accept = self.config.checkpoints.accept_changes
            self.folder.bind_data(facts, later=ADDED, accept=accept)
            if source:  # only now: other prompts may be refused, or start the run over
                self.folder.prompts.write_text(source, encoding="utf-8")
        return data, held_out

    def _wording(self) -> tuple[str, str]:
        """Returns the identity of the agent's prompts, and their text; both empty for a custom agent."""
        agent = self.config.agent
        if agent.use not in (MEMORY, TOOLS):
            return "", ""
        session = agent.tools or SessionSettings()
        prompts = session.wording() if agent.use == TOOLS else PromptSet.load(agent.prompts)
        return f"{prompts.name}:{prompts.hash}", prompts.source

    def _model(self) -> PreTrainedModel:
        """Loads the model to train; or the trained one if only an evaluation is left and there is no adapter."""
        if self.done and self.newest is not None and self.config.lora is None:
            return with_checkpoint(self.config.model, self.newest.path)
        return load_model(self.config.model)

    def _trainer(self, model: PreTrainedModel, reports: Sequence[str]) -> RolloutTrainer:
        config = self.config
        lora = config.lora
        if lora is not None and self.done and self.newest is not None:
            lora = lora.model_copy(update={"start": self.newest.path})
        policy, adapter = with_adapter(model, lora)
        keeper = Keeper(
            self.folder,
            updates_per_step=config.batch.updates_per_step,
            keep=config.checkpoints.keep,
            on_step=self._note_step,
        )
        trainer = RolloutTrainer(
            model=policy,
            tokenizer=self.rolling.tokenizer,
            args=self._arguments(reports),
            algorithm=config.algorithm,
            batch=config.batch,
            generate=self.generate,
            size=len(self.data),
            ahead=config.rollout.ahead,
            peft_config=adapter,
            callbacks=[keeper],
            on_batch=self.log_rollouts,
        )
        trainer.remove_callback(PrinterCallback)
        return trainer

    def _arguments(self, reports: Sequence[str]) -> GRPOConfig:
        config = self.config
        arguments = trl_arguments(
            self.folder.checkpoints,
            config.algorithm,
            config.batch,
            config.optimizer,
            save_every=config.checkpoints.every,
            gradient_checkpointing=config.resources.gradient_checkpointing,
            temperature=config.rollout.temperature,
            report_to=reports,
            cpu=config.resources.device == "cpu",
        )
        arguments.disable_tqdm = True
        # Its warnings about tied weights would come at each resume.
        arguments.log_level = arguments.log_level_replica = "error"
        arguments.project, arguments.run_name = config.logging.project, self.folder.path.name
        return arguments

    def run(self) -> None:
        """Trains from the newest complete checkpoint to the last step, and evaluates as configured.

        Raises:
            TrainingError: training can't continue; the newest checkpoint is intact.
        """
        if not self.done:
            newest = self.newest
            self.trainer.train(resume_from_checkpoint=str(newest.path) if newest else None)
        self._send_weights()
        self._evaluate_if_due(self.config.optimizer.steps)

    def generate(self, indices: Sequence[int], group_size: int) -> list[Rollout]:
        """Rolls out samples with the weights of the current step.

        Args:
            indices: indexes of samples.
            group_size: G rollouts of each.

        Returns:
            len(indices) * G rollouts, those of a sample adjacent.
        """
        step = self.trainer.step + 1
        if self._begun != step:
            self._begin(step)
        early, self._early = self._early, None
        if early is not None and early[0] == tuple(indices):
            return early[1]
        requests = self._requests(step, indices, group_size)
        self.watch.begin_rolling(len(requests))
        return self.rolling.roll(
            requests,
            self.policy,
            kept=self._keeps(step),
            on_done=lambda _: self.watch.note_rollout(),
        )

    def _requests(self, step: int, indices: Sequence[int], group_size: int) -> list[RolloutRequest]:
        """Makes the requests of a step's next groups."""
        requests: list[RolloutRequest] = []
        for index in indices:
            group = group_id(step, self._groups * self.process.count + self.process.index)
            sample = self.data.sample(index, self._epoch(step, index))
            self._groups += 1
            for place in range(group_size):
                name = rollout_id(group, place)
                seed = seed_of(self.config.optimizer.seed, name)
                requests.append(RolloutRequest(sample, group, name, seed))
        return requests

    def _epoch(self, step: int, index: int) -> int:
        """Returns the epoch of a step's next group: no sample comes twice in a step, even where it replaces a group.

        An epoch has each sample once, so samples outside the batch are new in the batch's own epoch.
        """
        share = self.config.batch.groups
        if self._groups >= share and index in self.trainer.order.batch(step - 1):
            return FURTHER + step
        first = ((step - 1) * self.process.count + self.process.index) * share
        return (first + min(self._groups, share - 1)) // len(self.data)

    def _keeps(self, step: int) -> bool:
        """Returns whether a step's runs stay in the store."""
        every = self.config.logging.runs
        return every > 0 and step % every == 0

    def _begin(self, step: int) -> None:
        """Prepares a step; every process calls it once, before the step's first rollouts."""
        waits = time.perf_counter()
        self._early = self._ahead.take(step)  # before the weights change
        behind = {
            "rollouts/steps_behind": float(self._early is not None),
            "rollouts/waited_s": time.perf_counter() - waits,
        }
        self._begun = step
        self._groups = 0 if self._early is None else len(self._early[0])
        due, meter = self.held_out.is_due(step - 1), self.policy.meter
        self._measured = meter.read() if due and self._early is not None else None
        self._send_weights()
        self._evaluate_if_due(step - 1)
        if due or self._early is None:
            meter.read()  # from here on the meter counts this step's rollouts
        if self.config.rollout.ahead:
            self.trainer.note(behind)  # only now: an evaluation's log would take it

    def _roll_ahead(self, step: int) -> None:
        """Starts the rollouts of a step with the weights that the server has."""
        if not self.config.rollout.ahead or step > self.config.optimizer.steps:
            return
        indices = self.trainer.order.part(step - 1, self.process.index, self.process.count)
        self._groups = 0
        requests = self._requests(step, indices, self.config.batch.group_size)
        kept = self._keeps(step)
        self._ahead.start(
            step,
            indices,
            lambda: self.rolling.roll(requests, self.policy, kept=kept, on_done=lambda _: None),
        )

    def _send_weights(self) -> None:
        sampler = self.rolling.sampler
        if isinstance(sampler, RemoteSampler):
            served = WeightTransfer(
                sampler, self.folder.path / "served", self.config.rollout.weights
            )
            served.send(self.trainer, self.rolling.loop)

    def _evaluate_if_due(self, step: int) -> None:
        if not self.held_out.is_due(step):
            return
        kept = self.config.logging.runs > 0
        figures = self.held_out.evaluate(step, self.rolling, kept=kept, watch=self.watch)
        means = {f"{SEPARATE}{length}": cell["mean"] for length, cell in figures.items()}
        self.trainer.log({name: mean for name, mean in means.items() if mean is not None})

    def log_rollouts(
        self, step: int, rollouts: Sequence[Rollout], advantages: Sequence[float | None]
    ) -> None:
        """Logs a step's rollouts and the engine's utilisation, and starts the next step's if they are made ahead."""
        reading = self.policy.meter.read()
        reading = (self._measured or reading).as_metrics()
        self.trainer.note({f"engine/{name}": value for name, value in reading.items()})
        self._roll_ahead(step + 1)
        every = self.config.logging.rollouts
        if not every or step % every:
            return
        write_rollouts(
            log_path(self.folder.rollouts, step, self.process.index),
            step,
            rollouts,
            advantages={
                rollout.rollout_id: advantage
                for rollout, advantage in zip(rollouts, advantages, strict=True)
            },
            decode=self.rolling.tokenizer.decode,
        )

    def _note_step(self, step: int, figures: Mapping[str, Any]) -> None:
        self.watch.note_step(step, figures)  # the watcher is set only after the keeper is made

    def close(self) -> None:
        """Ends what the session started."""
        self._ahead.close()
        self.rolling.close()
