"""`warm_start`: supervised fine-tuning on traces with TRL's SFTTrainer, as a start for reinforcement learning."""

import hashlib
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import is_peft_model
from datasets import Dataset
from torch.utils.data import Sampler
from transformers import PrinterCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from memagent_train.arguments import device_arguments
from memagent_train.config.sft import EARLIER, FREE_SFT, SftConfig
from memagent_train.order import DataOrder, StepSampler
from memagent_train.quiet import Quiet
from memagent_train.rollout.template import Template
from memagent_train.runs import metrics
from memagent_train.runs.faults import translate_faults
from memagent_train.runs.folder import RunFolder
from memagent_train.runs.identity import ADDED, digest_weights, identify_tokenizer
from memagent_train.runs.keeping import Keeper
from memagent_train.runs.policy import (
    check_fit,
    embeddings,
    load_model,
    load_tokenizer,
    with_adapter,
)
from memagent_train.runs.processes import open_shared, this_process
from memagent_train.runs.progress import Board, SilentWatcher
from memagent_train.runs.randomness import own_randomness
from memagent_train.runs.reports import report_targets
from memagent_train.runs.signals import stop_on_signals
from memagent_train.runs.traces import TraceRow, Traces, check_ids, read_traces
from memagent_train.sharding import shard_gradients

SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear"}
"""transformers' names of schedules."""
NOT_LEARNT = -100
"""The label that torch's cross entropy ignores."""


@dataclass(frozen=True)
class WarmStart:
    """What a warm start achieved."""

    out: Path
    steps: int
    rows: int
    """Conversations trained on."""
    dropped: int
    """Overlong conversations that were dropped."""
    loss: float | None
    """Loss of the last step, in nats per token."""


def warm_start(
    config: SftConfig, out: Path, *, watch: Callable[[Board], SilentWatcher] = SilentWatcher
) -> WarmStart:
    """Learns the replies of traces, resuming from the newest complete checkpoint in `out` if there is one.

    Prompts are rendered as in rollouts; only replies count in the loss, with equal weight for every token of a batch.

    Args:
        config: the settings.
        out: the folder of the run.
        watch: creates the progress display once everything is ready.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        DataError: a trace is unusable, too long, or there is none.
        RunBusy, CheckpointMismatch, DiskFull, OutOfMemory: see `memagent_train.runs.grpo.train`.
    """
    process = this_process(config.resources)
    plain = config.model_dump(mode="json", exclude_none=True)
    free = FREE_SFT + EARLIER
    run = open_shared(out, plain, free, process, config.resources, SftConfig)
    reporting = report_targets(config.logging)
    randomness = own_randomness()
    with reporting as reports, randomness, stop_on_signals(), translate_faults(out), run as folder:
        tokenizer = load_tokenizer(config.model)
        traces = read_traces(config.traces, Template(tokenizer), tokenizer.eos_token_id)
        if process.first:
            facts = {"rows": len(traces.rows), "traces": digest(traces.rows)}
            facts |= identify_tokenizer(tokenizer)
            facts["weights"] = digest_weights(Path(config.model.path))
            accept = config.checkpoints.accept_changes
            folder.bind_data(facts, later=ADDED, accept=accept)
        newest = folder.find_newest()
        board = Board(config.optimizer.steps, newest.step if newest else 0)
        if board.done < board.steps:
            model = load_model(config.model)
            check_fit(model, tokenizer)
            check_ids(traces.rows, embeddings(model))
            policy, adapter = with_adapter(model, config.lora)
            watching = watch(board)
            with watching.screen:
                trainer = ReplyTrainer(
                    model=policy,
                    args=_arguments(config, folder, reports),
                    train_dataset=dataset(traces.rows),
                    processing_class=tokenizer,
                    peft_config=adapter,
                    callbacks=[
                        Keeper(
                            folder,
                            updates_per_step=1,
                            keep=config.checkpoints.keep,
                            on_step=watching.note_step,
                        )
                    ],
                )
                trainer.remove_callback(PrinterCallback)
                shard_gradients(trainer.accelerator)
                trainer.train(resume_from_checkpoint=str(newest.path) if newest else None)
        return _outcome(folder, config, traces)


class ReplyTrainer(Quiet, SFTTrainer):
    """Projects only the learned positions onto the vocabulary.

    TRL does so on GPUs. On a CPU it scores every position, and a prompt is ten times as long as its reply: with a
    vocabulary of 49,152 and 135M weights that took as long as everything else together.
    """

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Runs a micro-batch. Checkpoints keep the number of tokens so far, which TRL resets to 0 in each session."""
        self._total_train_tokens = int(self.state.num_input_tokens_seen)
        loss = super().training_step(*args, **kwargs)
        self.state.num_input_tokens_seen = self._total_train_tokens
        return loss

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler:
        """Returns a sampler whose passes follow without a break, so that no update has fewer conversations."""
        args, rows = self.args, cast("Any", self.train_dataset)
        passes = args.gradient_accumulation_steps * args.world_size
        order = DataOrder(len(rows), args.train_batch_size * passes, args.seed)
        return StepSampler(order, args.max_steps, 1)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """Computes the mean negative log-likelihood of a batch's learned tokens, in nats."""
        if return_outputs or inputs["input_ids"].device.type != "cpu":
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        bare = self.accelerator.unwrap_model(model)
        bare = bare.get_base_model() if is_peft_model(bare) else bare
        labels = inputs["labels"][:, 1:]  # for each position, the id that comes next
        learnt = labels != NOT_LEARNT
        read = {name: inputs[name] for name in inputs if name != "labels"}
        read["shift_labels"] = labels[learnt][None]

        def cut(module: Any, args: Any, output: Any) -> Any:
            output.last_hidden_state = output.last_hidden_state[:, :-1][learnt][None]
            return output

        hook = bare.base_model.register_forward_hook(cut)
        try:  # TRL's head scales or caps logits like the model's own
            return super().compute_loss(model, read, num_items_in_batch=num_items_in_batch)
        finally:
            hook.remove()


def dataset(rows: Sequence[TraceRow]) -> Dataset:
    """Converts rows to SFTTrainer's prepared form: `input_ids`, and `labels` for what is learned."""
    return Dataset.from_dict(
        {
            "input_ids": [[*row.prompt_ids, *row.response_ids] for row in rows],
            "labels": [
                [NOT_LEARNT] * len(row.prompt_ids)
                + [
                    token if learnt else NOT_LEARNT
                    for token, learnt in zip(row.response_ids, row.loss_mask, strict=True)
                ]
                for row in rows
            ],
        }
    )


def digest(rows: Sequence[TraceRow]) -> str:
    """Returns the first 16 hex digits of the SHA-256 of all rows."""
    running = hashlib.sha256()
    for row in rows:
        for part in (row.prompt_ids, row.response_ids, row.loss_mask):
            running.update(array("q", [len(part), *part]).tobytes())
    return running.hexdigest()[:16]


def _arguments(config: SftConfig, folder: RunFolder, reports: Sequence[str]) -> SFTConfig:
    optimizer, batch = config.optimizer, config.batch
    cpu = config.resources.device == "cpu"
    return SFTConfig(
        output_dir=str(folder.checkpoints),
        per_device_train_batch_size=batch.rows // batch.micro_batches,
        gradient_accumulation_steps=batch.micro_batches,
        max_steps=optimizer.steps,
        learning_rate=optimizer.learning_rate,
        lr_scheduler_type=SCHEDULES[optimizer.schedule],
        warmup_steps=optimizer.warmup_steps,
        weight_decay=optimizer.weight_decay,
        max_grad_norm=optimizer.max_grad_norm,
        **device_arguments(
            optimizer, cpu=cpu, gradient_checkpointing=config.resources.gradient_checkpointing
        ),
        seed=optimizer.seed,
        # Rows are already prepared, with the rollouts' template; none is longer than the window.
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        logging_steps=1,
        save_strategy="steps",
        save_steps=config.checkpoints.every,
        save_total_limit=None,
        report_to=list(reports),
        project=config.logging.project,
        run_name=folder.path.name,
        disable_tqdm=True,
    )


def _outcome(folder: RunFolder, config: SftConfig, traces: Traces) -> WarmStart:
    lines: list[dict[str, Any]] = metrics.read(folder.metrics)
    return WarmStart(
        out=folder.path,
        steps=config.optimizer.steps,
        rows=len(traces.rows),
        dropped=traces.dropped,
        loss=lines[-1].get("loss") if lines else None,
    )
