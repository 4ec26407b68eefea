"""A tiny policy with random weights, and rollouts of random tokens under it, for tests of the trainer."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    TrainerCallback,
)

from memagent.tasks import Sample
from memagent_train.algorithm import AlgorithmSettings, BatchSettings, OptimizerSettings
from memagent_train.arguments import trl_arguments
from memagent_train.rollouts import Rollout, Row, Span, Status
from memagent_train.trainer import Generate, RolloutTrainer

VOCABULARY = 48
SAMPLE = Sample(
    task="t", index=0, length=9, tokens=9, context="c", question="q", outputs=("a",), generate=9
)


def policy(seed: int = 0) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=128,
            initializer_range=0.2,
        )
    )


def words() -> PreTrainedTokenizerFast:
    vocabulary = {"<pad>": 0, "<eos>": 1} | {f"w{n}": n for n in range(2, VOCABULARY)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(vocabulary, unk_token="<eos>")),
        pad_token="<pad>",
        eos_token="<eos>",
    )


def log_probabilities(model: Any, row: Row) -> torch.Tensor:
    """Of the response's ids, the conversation forwarded alone and unpadded."""
    ids = torch.tensor([[*row.prompt_ids, *row.response_ids]])
    logits = model(input_ids=ids).logits[0, len(row.prompt_ids) - 1 : -1]
    return logits.log_softmax(-1)[
        torch.arange(len(row.response_ids)), torch.tensor(row.response_ids)
    ]


def row(model: Any, chance: random.Random, *, noise: float = 0.0) -> Row:
    """Random ids and mask; the log-probabilities are the model's, off by some noise."""
    prompt = tuple(chance.randrange(2, VOCABULARY) for _ in range(chance.randint(2, 9)))
    response = tuple(chance.randrange(1, VOCABULARY) for _ in range(chance.randint(2, 14)))
    mask = (1, *(chance.choice((0, 1, 1, 1)) for _ in response[1:]))
    bare = Row(prompt, response, mask, ())
    with torch.no_grad():
        exact = log_probabilities(model, bare).tolist()
    logprobs = tuple(
        (value + chance.gauss(0, noise)) * sampled
        for value, sampled in zip(exact, mask, strict=True)
    )
    return Row(prompt, response, mask, logprobs)


def rollout(
    group: str, number: int, rows: Sequence[Row], reward: float | None, **fields: Any
) -> Rollout:
    return Rollout(
        group_id=group,
        rollout_id=f"{group}-{number}",
        sample=SAMPLE,
        rows=tuple(rows),
        answer="a",
        status=fields.pop("status", Status.UNSCORED if reward is None else Status.SCORED),
        reward=reward,
        **fields,
    )


def groups(
    model: Any, *, seed: int, count: int = 3, size: int = 4, noise: float = 0.0
) -> list[Rollout]:
    """Groups of rollouts with 1 to 4 conversations; among them a failed, an unscored and an overlong one."""
    chance = random.Random(seed)
    made: list[Rollout] = []
    for group in range(count):
        for number in range(size):
            rows = [row(model, chance, noise=noise) for _ in range(chance.randint(1, 4))]
            steps = tuple(chance.choice((None, 0.0, 1.0)) for _ in rows)
            made.append(
                rollout(
                    f"g{seed}-{group}",
                    number,
                    rows,
                    reward=round(chance.random(), 2) if number else 1.0,
                    step_rewards=steps,
                )
            )
    last = made[-1]
    made[1] = rollout(
        last.group_id.replace(f"-{count - 1}", "-0"), 1, made[1].rows, None, error="slow"
    )
    made[size + 1] = rollout(
        f"g{seed}-1", 1, made[size + 1].rows, None, status=Status.FAILED, error="broken"
    )
    made[-1] = rollout(last.group_id, size - 1, last.rows, 0.25, overlong=True)
    return made


def sessions(rollouts: list[Rollout]) -> list[Rollout]:
    """The same as tool sessions: actions, summaries, a rejected one, and an action that was dropped from the context.

    The first conversation ends with the dropped action; the second begins with the first without it, and its reply is
    a summary.
    """
    made: list[Rollout] = []
    for rollout in rollouts:
        rows: list[Row] = []
        for row in rollout.rows:
            half, size = len(row.response_ids) // 2, len(row.response_ids)
            acts = Span(0, half, "act"), Span(half, size, "act")
            prompt = row.prompt_ids + row.response_ids[:half]
            summary = (Span(0, size, "summary", rejected=len(rows) % 4 == 1),)
            rows += [
                replace(row, spans=acts),
                replace(row, prompt_ids=prompt, spans=summary),
            ]
        made.append(replace(rollout, rows=tuple(rows), step_rewards=None))
    return made


class Gradients(TrainerCallback):
    """Keeps the gradient of every update, and the weights at which it was taken."""

    def __init__(self) -> None:
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.weights: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs["model"]
        self.gradients.append(
            {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        )
        self.weights.append({n: p.detach().clone() for n, p in model.named_parameters()})


class Lenient(RolloutTrainer):
    """Takes the same rollouts again and again, however far the policy is from them."""

    largest_gap = math.inf


def trainer(
    out: Path,
    generate: Generate,
    *,
    algorithm: AlgorithmSettings,
    batch: BatchSettings,
    model: Any = None,
    steps: int = 1,
    learning_rate: float = 1e-3,
    size: int = 100,
    max_grad_norm: float = 1e9,
    gradient_checkpointing: bool = False,
    save_every: int | None = None,
    kind: Callable[..., RolloutTrainer] = Lenient,
    **others: Any,
) -> RolloutTrainer:
    optimizer = OptimizerSettings(
        steps=steps,
        learning_rate=learning_rate,
        warmup_steps=0,
        max_grad_norm=max_grad_norm,
        precision="fp32",
    )
    args = trl_arguments(
        out,
        algorithm,
        batch,
        optimizer,
        save_every=save_every,
        gradient_checkpointing=gradient_checkpointing,
        cpu=True,
    )
    args.disable_tqdm = True
    return kind(
        model if model is not None else policy(),
        words(),
        args=args,
        algorithm=algorithm,
        batch=batch,
        generate=generate,
        size=size,
        **others,
    )


def distance(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    """Relative L2 distance of two gradients."""
    assert found.keys() == wanted.keys()
    off = sum(float((found[name] - wanted[name]).square().sum()) for name in wanted)
    return math.sqrt(off / sum(float(value.square().sum()) for value in wanted.values()))
