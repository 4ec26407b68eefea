"""The trainer: TRL's, with rollouts of many conversations instead of single completions.

One row is one conversation. Groups, rewards and logs refer to rollouts; a rollout's advantage goes to all its rows.
TRL's loss, optimizer, distribution and checkpoints are used unchanged; their inputs are made here.
"""

# ruff: noqa: N806  (names of tensors end in their dimensions)

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from peft import PeftConfig, PeftModel
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head, use_adapter

from memagent.errors import ConfigError
from memagent_train import advantages
from memagent_train.advantages import Group, TrainingRow, check_groups, check_rollout, compare
from memagent_train.algorithm import AlgorithmSettings, BatchSettings
from memagent_train.arguments import check_arguments
from memagent_train.batches import deal, padding_row, rows_of_updates, token_shares, weigh_rows
from memagent_train.engine_gap import EngineGap
from memagent_train.errors import CheckpointMismatch, TrainingError
from memagent_train.estimators import truncated_weights
from memagent_train.extremes import keep_extremes
from memagent_train.figures import facts, figures, raise_if_nothing_scored, warn_of_failures
from memagent_train.order import DataOrder, StepSampler
from memagent_train.packing import Bundle, Packed, bundle, even_length, pass_of, rows_of_passes
from memagent_train.quiet import Quiet
from memagent_train.reference import copy_frozen, prepare_reference
from memagent_train.refill import StepGroups, roll_informative
from memagent_train.rollouts import Rollout
from memagent_train.scoring import LastScored
from memagent_train.sharding import backward_options, hold_gradients, shard_gradients

Generate = Callable[[Sequence[int], int], list[Rollout]]
"""Makes G rollouts for each of the given indices of the data, sample by sample. Called in every process with that
process's indices, with the weights of the step in place; a failed rollout is returned as such."""
OnBatch = Callable[[int, Sequence[Rollout], Sequence[float | None]], None]
"""Called with the step (from 1), this process's rollouts, including dropped ones, and the advantages of `Group`s."""
Batch = dict[str, Any]
TOKEN_MEANS = ("kl", "entropy", *(f"clip_ratio/{name}_mean" for name in ("low", "high", "region")))
"""TRL's metrics that are means over tokens."""


class RolloutTrainer(Quiet, GRPOTrainer):
    """Trains a policy on rollouts made by a function."""

    largest_gap = 0.2
    """Mean difference of log-probabilities, in nats per token, above which a step stops. Different arithmetic (bf16 or
    fp32) gives a few hundredths; a server that kept its initial weights gave 0.4."""
    _packed: Packed
    """The current pass's rows, as the model gets them."""

    def __init__(
        self,
        model: PreTrainedModel | PeftModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        args: GRPOConfig,
        algorithm: AlgorithmSettings,
        batch: BatchSettings,
        generate: Generate,
        size: int,
        ahead: bool = False,
        peft_config: PeftConfig | None = None,
        callbacks: list[TrainerCallback] | None = None,
        on_batch: OnBatch | None = None,
    ) -> None:
        """Prepares a training; `train()` starts it.

        Args:
            model: the loaded policy. Without PEFT, and with a KL term, a copy of it becomes the reference.
            tokenizer: only its padding and end tokens are used.
            args: made by `trl_arguments` from the same settings.
            algorithm: how rewards become a loss.
            batch: what a step rolls out.
            generate: makes the rollouts.
            size: number of samples in the data.
            ahead: whether rollouts may come from the weights before the last update.
            peft_config: trains an adapter; the reference is then the model without it.
            callbacks: transformers' callbacks.
            on_batch: called once per step, after its rollouts and before its first update.

        Raises:
            ConfigError: there is no data, or `args` were made from other settings.
        """
        if size < 1:
            raise ConfigError(f"the data has {size!r} samples: at least one is needed")
        check_arguments(args, algorithm, batch)
        self.algorithm, self.batch = algorithm, batch
        self._generate_rollouts = generate
        self._on_batch = on_batch
        self._merges = batch.updates_per_step == 1 and not ahead
        self.order = DataOrder(size, batch.groups * args.world_size, args.seed)
        self._scored_logps = torch.zeros(0)
        self._even = even_length(model)
        self._gap = EngineGap(self.largest_gap)
        reference = copy_frozen(model, args, peft_config)
        super().__init__(
            model=model,
            reward_funcs=_no_reward,
            args=args,
            train_dataset=Dataset.from_dict({"prompt": [""] * size, "index": list(range(size))}),
            processing_class=tokenizer,
            callbacks=callbacks,
            peft_config=peft_config,
        )
        shard_gradients(self.accelerator)
        if reference is not None:
            self._adopt(reference)

    @property
    def step(self) -> int:
        """Batches of rollouts trained on, excluding the current one."""
        return self.state.global_step // self.batch.updates_per_step

    def note(self, values: Mapping[str, float]) -> None:
        """Adds figures to the log of the current update, beside the trainer's own."""
        for name, value in values.items():
            self._metrics["train"][name].append(value)

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """Computes TRL's loss of one micro-batch. Also runs the backward passes of all its passes but the last.

        Before the first update of a step, the trainer's log-probabilities are compared with the sampling engine's.

        Raises:
            EngineMismatch: these differ too much.
            TrainingError: the loss isn't finite.
        """
        total = torch.zeros((), device=self.accelerator.device)
        for pass_inputs in inputs[:-1]:
            with hold_gradients(self.accelerator, model):
                loss = self._loss_of_pass(model, pass_inputs)
                self.accelerator.backward(loss, **backward_options(self.accelerator))
            total += loss.detach()
        loss = self._loss_of_pass(model, inputs[-1]) + total
        if not loss.isfinite():
            raise TrainingError(
                f"the loss of step {self.step + 1} is {loss.item()!r}: resume from the last checkpoint with a lower "
                f"learning rate, or with fp32"
            )
        if self._step % self._micro_steps == self.batch.micro_batches - 1:
            self.note(self._gap.measure(self.step + 1, self.accelerator))
        return loss

    def _loss_of_pass(self, model: Any, inputs: Batch) -> Tensor:
        self._packed = inputs["packed"]
        loss = super().compute_loss(model, inputs)
        for name in TOKEN_MEANS:  # TRL logs the mean over passes, which differ in their tokens
            if values := self._metrics["train"].get(name):
                values[-1] *= inputs["token_share"].item()
                if math.isnan(values[-1]):  # an update of padding alone has no tokens
                    del self._metrics["train"][name]
        for name, values in self._metrics["train"].items():
            keep_extremes(name, values)
        if self._step % self._micro_steps < self.batch.micro_batches:
            self._gap.add(
                self._scored_logps, inputs["sampling_per_token_logps"], inputs["tool_mask"]
            )
        return loss

    def get_train_dataloader(self) -> DataLoader:
        """Returns a loader with one batch of indices per micro-batch; the first of a step is rolled out."""
        return self._get_dataloader(
            dataset=cast("Any", self.train_dataset),
            description="Training",
            batch_size=self.batch.groups,
            sampler_fn=self._get_train_sampler,
            is_training=True,
        )

    def _get_train_sampler(self, dataset: Any = None) -> Sampler:
        steps = self.args.max_steps // self.batch.updates_per_step
        return StepSampler(self.order, steps, self._micro_steps)

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, **kw: Any
    ) -> Any:
        call = LastScored(model, self.accelerator.unwrap_model(model), self._packed)
        scored = super()._get_per_token_logps_and_entropies(
            call, input_ids, attention_mask, logits_to_keep, **kw
        )
        self._scored_logps = scored[0].detach()
        return scored

    @property
    def _micro_steps(self) -> int:
        """Micro-batches per step, over all of its updates."""
        return self.batch.micro_batches * self.batch.updates_per_step

    def _prepare_inputs(self, inputs: Any) -> Any:
        if self._step % self._micro_steps == 0 or self._buffered_inputs is None:
            self._buffered_inputs = None  # frees its tensors to make room for the next rollouts
            self._buffered_inputs = self._collect([sample["index"] for sample in inputs])
        return self._buffered_inputs[self._step % len(self._buffered_inputs)]

    def _collect(self, indices: Sequence[int]) -> list[list[Batch]]:
        """Rolls out a step's batch and splits it into the micro-batches of one iteration."""
        if not self.batch.between_steps(self.state.global_step):
            raise CheckpointMismatch(
                f"the checkpoint was written after {self.state.global_step!r} updates, in the middle of a step of "
                f"{self.batch.updates_per_step}: resume from a multiple of that"
            )
        rolled = self._roll(indices)
        if self._on_batch is not None:
            both = (*rolled.kept, *rolled.dropped)
            self._on_batch(
                self.step + 1,
                [rollout for group in both for rollout in group.rollouts],
                [advantage for group in both for advantage in group.advantages],
            )
        group_facts = gather_object(
            [facts(group, kept=True) for group in rolled.kept]
            + [facts(group, kept=False) for group in rolled.dropped]
        )
        raise_if_nothing_scored([fact for group in group_facts for fact in group.rollouts])
        if self.accelerator.is_main_process:
            warn_of_failures(self.step + 1, group_facts)
        groups = gather_object([group.rows for group in rolled.kept])
        rows = [row for group in groups for row in group]
        numbers = [n for n, group in enumerate(groups) for _ in group]
        self.state.num_input_tokens_seen += sum(r.tokens for g in group_facts for r in g.rollouts)
        passes = (self.step + 1) * self.order.per_step / self.order.size  # without refills
        self.note(figures(group_facts) | {"rows": float(len(rows)), "data/passes": passes})
        if self._merges:
            rows, numbers = advantages.merge_rows(rows, numbers)
            self.note({"rows/different": float(len(rows))})
        self.note({"tokens/seen": float(self.state.num_input_tokens_seen)})
        return self.micro_batches(rows, numbers)

    def _roll(self, indices: Sequence[int]) -> StepGroups:
        if not self.algorithm.dynamic_sampling:
            return StepGroups(tuple(self._groups(indices)), ())
        process, processes = self.accelerator.process_index, self.accelerator.num_processes
        return roll_informative(
            indices,
            self.order.draw_further(self.step)[process::processes],
            self._groups,
            max_refills=self.algorithm.max_refills,
        )

    def _groups(self, indices: Sequence[int]) -> list[Group]:
        size = self.batch.group_size
        rollouts = self._generate_rollouts(indices, size)
        cast("Any", self.model).train()  # sampling engines leave a model in evaluation mode
        groups = check_groups(rollouts, len(indices), size)
        return [compare([*map(check_rollout, group)], self.algorithm) for group in groups]

    def micro_batches(
        self, rows: Sequence[TrainingRow], groups: Sequence[int]
    ) -> list[list[Batch]]:
        """Builds the passes of this process's micro-batches. An update's rows don't depend on what rows share.

        Args:
            rows: the rows of all processes, in the same order in each.
            groups: number of each row's group.
        """
        moving, weights, tokens = weigh_rows(
            rows, groups, by_group=self.algorithm.token_mean == "group", kl=bool(self.beta)
        )
        lines = [row.row.ids for row in moving]
        moving.append(padding_row(cast("int", self._tokenizer.eos_token_id)))
        weights.append(0.0)
        counted = [w * sum(row.row.loss_mask) for w, row in zip(weights, moving, strict=True)]

        def make(parts: Sequence[Bundle], rows: int, share: float) -> Batch:
            pad, device = cast("int", self._tokenizer.pad_token_id), self.accelerator.device
            sequences = [[(moving[at], weights[at]) for at in part.rows] for part in parts]
            inputs = pass_of(sequences, rows, pad=pad, device=device)
            facts = {"num_items_in_batch": float(tokens), "token_share": share}
            totals = {name: torch.tensor(value, device=device) for name, value in facts.items()}
            return self._with_log_probabilities(inputs) | totals

        batches: list[list[Batch]] = []
        saved, ranks, max_tokens = 0, self.accelerator.num_processes, self.batch.micro_batch_tokens
        number, seed = self.batch.micro_batches, f"{self.args.seed}/{self.step}"
        for rows_of in rows_of_updates(len(lines), self.batch.updates, seed):
            update_lines = {at: lines[at] for at in rows_of}
            total = sum(map(len, update_lines.values()))
            room = max_tokens or total / ranks / number
            bundles = bundle(update_lines, even=self._even, most=room, ranks=ranks)
            sizes = [entry.size for entry in bundles]
            saved += total - sum(sizes)
            dealt = deal(sizes, ranks=ranks, micro_batches=number, most_tokens=max_tokens)
            bundles.append(Bundle((len(lines),), 0))
            shares = token_shares(dealt, [sum(counted[at] for at in b.rows) for b in bundles])
            mine = dealt[self.accelerator.process_index]
            for part in zip(mine, rows_of_passes(dealt, bundles), shares, strict=True):
                passes = zip(*part, strict=True)
                batches.append(
                    [make([bundles[n] for n in ns], size, share) for ns, size, share in passes]
                )
        self.note({"tokens/shared": float(saved)})
        return batches

    def _with_log_probabilities(self, chunk: Batch) -> Batch:
        """Adds log-probabilities from before the first update, and the reference's, if the loss needs them."""
        ratio = self.algorithm.ratio
        sampled_NT = chunk["sampling_per_token_logps"]
        with torch.no_grad():
            if ratio == "rollout":
                chunk["old_per_token_logps"] = sampled_NT
            elif ratio == "truncated" or self.batch.updates_per_step > 1:
                chunk["old_per_token_logps"] = self._logps(self.model, chunk)
            if ratio == "truncated":
                chunk["advantages"] = chunk["advantages"][:, None] * truncated_weights(
                    chunk["old_per_token_logps"], sampled_NT, self.algorithm.ratio_cap
                )
            if self.beta:
                chunk["ref_per_token_logps"] = self._reference_logps(chunk)
        return chunk

    def _reference_logps(self, chunk: Batch) -> Tensor:
        if self.ref_model is not None:
            return self._logps(self.ref_model, chunk)
        model = self.accelerator.unwrap_model(self.model)
        with use_adapter(model, "ref" if "ref" in model.peft_config else None):
            return self._logps(self.model, chunk)

    def _logps(self, model: Any, chunk: Batch) -> Tensor:
        self._packed = chunk["packed"]
        return self._get_per_token_logps_and_entropies(
            model,
            input_ids=torch.cat([chunk["prompt_ids"], chunk["completion_ids"]], dim=1),
            attention_mask=torch.cat([chunk["prompt_mask"], chunk["completion_mask"]], dim=1),
            logits_to_keep=chunk["completion_ids"].size(1),
        )[0]

    def _adopt(self, reference: PreTrainedModel) -> None:
        self.beta = self.algorithm.beta
        cast("GRPOConfig", self.args).beta = self.beta
        add_fused_lm_head(reference, temperature=self.temperature)
        self.ref_model = prepare_reference(reference, self.accelerator)


def _no_reward(prompts: Sequence[str], **_: Any) -> list[float | None]:
    """Takes the place of TRL's rewards; ours come with the rollouts."""
    return [0.0] * len(prompts)
