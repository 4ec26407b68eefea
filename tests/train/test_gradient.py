"""Contract: the gradient of a whole update is that of the algorithm, written out separately in `reference.py`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tests.train.handmade import (
    VOCABULARY,
    Gradients,
    Lenient,
    distance,
    groups,
    log_probabilities,
    policy,
    sessions,
    trainer,
)
from tests.train.launch import run_two
from tests.train.reference import Reference
from transformers import GPT2Config, GPT2LMHeadModel

from memagent_train.algorithm import AlgorithmSettings, BatchSettings
from memagent_train.rollouts import Rollout, Row
from memagent_train.trainer import RolloutTrainer

LIMIT = 1e-5
"""Relative L2; what is left is the rounding of float32."""


def settings(reference: Reference) -> AlgorithmSettings:
    return AlgorithmSettings(
        scale=reference.scale,  # pyright: ignore[reportArgumentType]
        token_mean=reference.token_mean,  # pyright: ignore[reportArgumentType]
        ratio=reference.ratio,  # pyright: ignore[reportArgumentType]
        ratio_cap=reference.cap,
        beta=reference.beta,
        overlong_mask=reference.overlong_mask,
        step_weight=reference.step_weight,
        weights=dict(reference.weights),  # pyright: ignore[reportArgumentType]
        rejected=reference.rejected,  # pyright: ignore[reportArgumentType]
        dynamic_sampling=False,
    )


def compared(
    tmp_path: Path,
    reference: Reference,
    batch: BatchSettings,
    *,
    noise: float = 0.1,
    lora: LoraConfig | None = None,
    make: Callable[[], Any] = policy,
    change: Callable[[list[Rollout]], list[Rollout]] = list,
    **others: Any,
) -> tuple[list[float], list[int]]:
    """Distances and clipped tokens of every update of a step."""
    rollouts = change(groups(make(), seed=3, noise=noise))
    seen = Gradients()
    trained = trainer(
        tmp_path,
        lambda indices, size: rollouts,
        algorithm=settings(reference),
        batch=batch,
        model=make(),
        callbacks=[seen],
        peft_config=lora,
        **others,
    )
    trained.train()
    start, live = make(), make()
    if lora is not None:
        live = get_peft_model(live, lora)
    distances: list[float] = []
    clipped: list[int] = []
    for gradient, weights in zip(seen.gradients, seen.weights, strict=True):
        live.load_state_dict(weights, strict=False)
        live.zero_grad()
        reference.loss(live, rollouts, start=start, reference=make()).backward()
        wanted = {n: p.grad for n, p in live.named_parameters() if p.grad is not None}
        distances.append(distance(gradient, wanted))
        clipped.append(reference.clipped)
    return distances, clipped


BATCH = BatchSettings(groups=3, group_size=4, micro_batches=4)


@pytest.mark.parametrize(
    "reference",
    [
        Reference(),
        Reference(token_mean="batch"),
        Reference(scale="std"),
        Reference(beta=0.05),
        Reference(overlong_mask=True),
        Reference(overlong_mask=True, token_mean="batch", beta=0.05),
        Reference(step_weight=0.7),
        Reference(step_weight=0.7, scale="std"),
        Reference(ratio="recomputed"),
        Reference(ratio="truncated", cap=1.05),
        Reference(ratio="truncated", cap=1.05, beta=0.05),
    ],
    ids=repr,
)
def test_the_gradient_of_an_update_is_the_algorithms(tmp_path: Path, reference: Reference) -> None:
    distances, _ = compared(tmp_path, reference, BATCH)
    assert len(distances) == 1
    assert distances[0] < LIMIT


FROZEN = (("summary", 0.0),)


@pytest.mark.parametrize(
    "reference",
    [
        Reference(),
        Reference(weights=FROZEN),
        Reference(weights=FROZEN, token_mean="batch", beta=0.05),
        Reference(weights=(("act", 0.0),)),
        Reference(weights=(("summary", 0.5), ("act", 2.0)), beta=0.05),
        Reference(rejected="leave_out"),
        Reference(rejected="leave_out", weights=(("summary", 3.0),), overlong_mask=True),
        Reference(overlong_mask=True, token_mean="batch", scale="std"),
    ],
    ids=repr,
)
def test_sessions_train_actions_and_summaries_as_told(tmp_path: Path, reference: Reference) -> None:
    distances, _ = compared(tmp_path, reference, BATCH, change=sessions)
    assert distances[0] < LIMIT


def learned_positions(longest: int = 23) -> GPT2LMHeadModel:
    """A policy that learns a vector for each position; it has one for each token of the longest row."""
    torch.manual_seed(0)
    config: Any = GPT2Config
    return GPT2LMHeadModel(
        config(
            vocab_size=VOCABULARY,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=longest,
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
            initializer_range=0.2,
            eos_token_id=1,
            bos_token_id=1,
            loss_type="ForCausalLM",
        )
    )


class Sharing(Lenient):
    """Has rows that share a sequence with others."""

    def micro_batches(self, rows: Any, groups: Any) -> Any:
        made = super().micro_batches(rows, groups)
        saved = self._metrics["train"]["tokens/shared"][-1]
        packed = [one["packed"] for passes in made for one in passes]
        assert saved > 0.2 * sum(len(row.row.ids) for row in rows)
        assert sum(len(one.ids) for one in packed) < sum(len(one.numbers) for one in packed)
        return made


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize(
    "others",
    [
        {},
        {"ratio": "truncated"},
        {"make": partial(learned_positions, 30)},
        {"gradient_checkpointing": True},
        {"lora": LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)},
        {"batch": BATCH.model_copy(update={"iterations": 2, "micro_batch_tokens": 60})},
    ],
    ids=["full", "truncated", "positions", "checkpoints", "adapter", "iterations"],
)
def test_what_rows_share_is_passed_once(tmp_path: Path, others: dict[str, Any]) -> None:
    more = {"batch": BATCH, "ratio": "rollout", **others}
    batch = more.pop("batch")
    reference = Reference(ratio=more.pop("ratio"), cap=1.05, beta=0.05)
    distances, _ = compared(tmp_path, reference, batch, change=sessions, kind=Sharing, **more)
    assert len(distances) == batch.iterations
    assert max(distances) < LIMIT


def test_frozen_summaries_change_the_gradient(tmp_path: Path) -> None:
    distances, _ = compared(
        tmp_path, Reference(weights=FROZEN), BATCH, change=sessions, kind=Unfrozen
    )
    assert distances[0] > 0.05


@pytest.mark.parametrize("token_mean", ["group", "batch"])
def test_overlong_rollouts_change_the_gradient(tmp_path: Path, token_mean: str) -> None:
    reference = Reference(overlong_mask=True, token_mean=token_mean)
    distances, _ = compared(tmp_path, reference, BATCH, kind=Unmasked)
    assert distances[0] > 0.05


def alike(rollouts: list[Rollout]) -> list[Rollout]:
    """The same with a first conversation that all rollouts of a group have, and a second that some have."""
    return [
        replace(
            one,
            rows=(rollouts[at // 4 * 4].rows[0], *rollouts[at // 2 * 2].rows[1:2], *one.rows[1:]),
            step_rewards=None,
        )
        for at, one in enumerate(rollouts)
    ]


@pytest.mark.parametrize(
    "reference",
    [
        Reference(),
        Reference(token_mean="batch"),
        Reference(beta=0.05),
        Reference(overlong_mask=True),
        Reference(ratio="truncated", cap=1.05, beta=0.05),
    ],
    ids=repr,
)
def test_conversations_that_are_alike_are_trained_on_once(
    tmp_path: Path, reference: Reference
) -> None:
    distances, _ = compared(tmp_path, reference, BATCH, noise=0.0, change=alike)
    assert distances[0] < LIMIT


def test_but_not_where_older_weights_sampled_them(tmp_path: Path) -> None:
    same = {"noise": 0.5, "change": alike}
    distances, clipped = compared(tmp_path / "a", Reference(), BATCH, ahead=True, **same)
    assert clipped[0]
    assert distances[0] < LIMIT
    merged, _ = compared(tmp_path / "b", Reference(), BATCH, **same)
    assert merged[0] > 0.05, "clipping depends on the sign of the advantage"


def older(rollouts: list[Rollout]) -> list[Rollout]:
    """The same as drawn with weights that are a step older."""
    model = policy()
    torch.manual_seed(9)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.03 * torch.randn_like(weight)

    def drawn(row: Row) -> Row:
        with torch.no_grad():
            found = log_probabilities(model, row).tolist()
        return replace(
            row, logprobs=tuple(p * m for p, m in zip(found, row.loss_mask, strict=True))
        )

    return [replace(one, rows=tuple(map(drawn, one.rows))) for one in rollouts]


@pytest.mark.parametrize("iterations", [1, 2])
def test_rollouts_of_older_weights_are_corrected_by_truncated_weights(
    tmp_path: Path, iterations: int
) -> None:
    reference = Reference(ratio="truncated", cap=1.2, beta=0.05)
    batch = BATCH.model_copy(update={"iterations": iterations})
    stale = {"change": older, "ahead": True}
    distances, _ = compared(tmp_path / "a", reference, batch, **stale)
    assert len(distances) == iterations
    assert max(distances) < LIMIT
    for place, kind in enumerate((Uncorrected, Untruncated)):
        wrong, _ = compared(tmp_path / str(place), reference, batch, kind=kind, **stale)
        assert wrong[0] > 0.05


@pytest.mark.parametrize("ratio", ["rollout", "recomputed", "truncated"])
def test_and_that_of_later_iterations_where_ratios_are_clipped(tmp_path: Path, ratio: str) -> None:
    reference = Reference(ratio=ratio, beta=0.05)
    batch = BATCH.model_copy(update={"iterations": 3})
    distances, clipped = compared(tmp_path, reference, batch, learning_rate=3e-2)
    assert len(distances) == 3
    assert max(distances) < LIMIT
    assert min(clipped[1:]) > 10  # without clipping the test would show nothing


@pytest.mark.parametrize("micro_batches", [1, 7, 64])
def test_the_number_of_micro_batches_changes_nothing(tmp_path: Path, micro_batches: int) -> None:
    batch = BatchSettings(groups=3, group_size=4, micro_batches=micro_batches)
    distances, _ = compared(tmp_path, Reference(beta=0.05), batch)
    assert distances[0] < LIMIT


@pytest.mark.parametrize("iterations", [1, 2])
def test_nor_does_the_size_of_a_pass(tmp_path: Path, iterations: int) -> None:
    batch = BatchSettings(
        groups=3, group_size=4, micro_batches=2, micro_batch_tokens=40, iterations=iterations
    )
    distances, _ = compared(tmp_path, Reference(beta=0.05), batch, kind=Small)
    assert len(distances) == iterations
    assert max(distances) < LIMIT


class Small(Lenient):
    """Has passes within their limit, and several of them per micro-batch."""

    def micro_batches(self, rows: Any, groups: Any) -> Any:
        made = super().micro_batches(rows, groups)
        assert min(map(len, made)) > 1
        for one in (one for passes in made for one in passes):
            assert len(one["packed"].ids) == 1 or one["packed"].ids.numel() <= 40
        return made


def test_activations_computed_twice_change_nothing(tmp_path: Path) -> None:
    reference = Reference(ratio="truncated", beta=0.05)
    distances, _ = compared(tmp_path, reference, BATCH, gradient_checkpointing=True)
    assert distances[0] < LIMIT


@pytest.mark.filterwarnings(
    "ignore:`is_gradient_checkpointing`:FutureWarning"
)  # peft asks transformers
def test_an_adapter_gets_the_same_gradient_and_its_base_is_the_reference(tmp_path: Path) -> None:
    lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    reference = Reference(beta=0.05)
    batch = BATCH.model_copy(update={"iterations": 2})
    distances, _ = compared(tmp_path, reference, batch, lora=lora)
    assert len(distances) == 2
    assert max(distances) < LIMIT


def test_the_updates_of_a_step_add_up_to_it(tmp_path: Path) -> None:
    rollouts = groups(policy(), seed=4, noise=0.1)
    seen = Gradients()
    reference = Reference(beta=0.05)
    batch = BatchSettings(groups=3, group_size=4, micro_batches=2, updates=3)
    # At such a rate the weights stay as they are, and each update has a third of one whole gradient.
    trained = trainer(
        tmp_path,
        lambda indices, size: rollouts,
        algorithm=settings(reference),
        batch=batch,
        callbacks=[seen],
        learning_rate=1e-30,
    )
    trained.train()
    live = policy()
    reference.loss(live, rollouts, reference=policy()).backward()
    wanted = {n: p.grad for n, p in live.named_parameters() if p.grad is not None}
    assert len(seen.gradients) == 3
    mean = {name: sum(one[name] for one in seen.gradients) / 3 for name in wanted}
    assert distance(mean, wanted) < LIMIT  # pyright: ignore[reportArgumentType]
    assert distance(seen.gradients[0], wanted) > 0.1


class Apart(Lenient):
    """Has each row in a sequence of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._even = 0


@pytest.mark.parametrize("iterations", [1, 2])
def test_what_rows_share_changes_no_update(tmp_path: Path, iterations: int) -> None:
    prompt = tuple(range(2, 40))
    rollouts = [
        replace(one, rows=tuple(replace(row, prompt_ids=prompt) for row in one.rows))
        for one in groups(policy(), seed=4, count=2)[:4]
    ]
    found: list[list[dict[str, torch.Tensor]]] = []
    for kind in (Sharing, Apart):
        trained = trainer(
            tmp_path / kind.__name__,
            lambda indices, size: rollouts,
            algorithm=settings(Reference()),
            batch=BatchSettings(
                groups=1, group_size=4, micro_batches=1, updates=3, iterations=iterations
            ),
            callbacks=[seen := Gradients()],
            kind=kind,
        )
        trained.train()
        found.append(seen.gradients)
    assert len(found[0]) == 3 * iterations
    for packed, apart in zip(*found, strict=True):
        assert distance(packed, apart) < LIMIT


@pytest.mark.parametrize("ratio", ["rollout", "truncated"])
def test_padding_moves_no_row_to_other_positions(tmp_path: Path, ratio: str) -> None:
    reference = Reference(ratio=ratio, beta=0.05)
    batch = BATCH.model_copy(update={"micro_batches": 1})
    distances, _ = compared(tmp_path, reference, batch, make=learned_positions)
    assert distances[0] < LIMIT


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what `two_processes.py` found."""
    out = tmp_path_factory.mktemp("two")
    run_two(Path(__file__).with_name("two_processes.py"), out)
    return out


def test_two_processes_with_unequal_rows_get_the_gradient_of_the_whole_batch(
    two_processes: Path,
) -> None:
    first, second = (sessions(groups(policy(), seed=seed, noise=0.1)) for seed in (7, 8))
    live = policy()
    reference = Reference(beta=0.05)
    reference.loss(live, [*first, *second[:4]], reference=policy()).backward()
    wanted = {n: p.grad for n, p in live.named_parameters() if p.grad is not None}
    for rank in range(2):
        gradient = torch.load(two_processes / f"gradient-{rank}.pt")
        assert distance(gradient, wanted) < LIMIT


def test_processes_refill_by_themselves_and_stay_together(two_processes: Path) -> None:
    first, second = (
        json.loads((two_processes / f"refills-{rank}.json").read_text()) for rank in range(2)
    )
    assert [len(first["asked"]), len(second["asked"])] == [2, 6]
    for step in range(2):
        parts = [first["asked"][step], *second["asked"][3 * step : 3 * step + 3]]
        indices = [index for part in parts for index in part]
        assert len(set(indices)) == len(indices) == 8  # no sample twice in a step
    assert first["weights"] == second["weights"]


class SequenceMeans(RolloutTrainer):
    """TRL's `grpo` loss: a mean over rows of each row's mean, padding rows among them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.loss_type = "grpo"


class Unweighted(RolloutTrainer):
    """Every token counts the same, though groups should."""

    def micro_batches(self, rows: Any, groups: Any) -> Any:
        made = super().micro_batches(rows, groups)
        return [
            [one | {"tool_mask": (one["tool_mask"] > 0).float()} for one in passes]
            for passes in made
        ]


class CutToSize(RolloutTrainer):
    """Rows that do not fill micro-batches of one size are left out, where padding rows should fill them up."""

    def micro_batches(self, rows: Any, groups: Any) -> Any:
        whole = len(rows) // self.batch.micro_batches * self.batch.micro_batches
        return super().micro_batches(rows[:whole], groups[:whole])


class Changed(Lenient):
    """Has another setting than it was given."""

    changes: Mapping[str, object]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.algorithm = self.algorithm.model_copy(update=self.changes)


class Unfrozen(Changed):
    """Trains every sampled token, whatever it was sampled for."""

    changes: Mapping[str, object] = {"weights": {}}


class Unmasked(Changed):
    """Trains overlong rollouts too."""

    changes: Mapping[str, object] = {"overlong_mask": False}


class Uncorrected(Changed):
    """Takes rollouts for those of its own weights."""

    changes: Mapping[str, object] = {"ratio": "recomputed"}


class Untruncated(Changed):
    """Lets any importance weight through."""

    changes: Mapping[str, object] = {"ratio_cap": 1e9}


@pytest.mark.parametrize("broken", [SequenceMeans, Unweighted, CutToSize])
def test_the_comparison_sees_what_is_wrong(tmp_path: Path, broken: type[RolloutTrainer]) -> None:
    batch = BatchSettings(groups=3, group_size=4, micro_batches=8)
    distances, _ = compared(tmp_path, Reference(), batch, kind=broken)
    assert distances[0] > 0.05
