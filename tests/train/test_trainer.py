import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.handmade import Gradients, log_probabilities, policy, rollout, row, trainer
from transformers import TrainerCallback

from memagent.errors import ConfigError
from memagent_train.algorithm import AlgorithmSettings, BatchSettings
from memagent_train.errors import (
    CheckpointMismatch,
    EngineMismatch,
    RewardFailed,
    RolloutsFailed,
    TrainingError,
)
from memagent_train.rollouts import Rollout, Status
from memagent_train.trainer import RolloutTrainer

BATCH = BatchSettings(groups=2, group_size=2, micro_batches=2)
PLAIN = AlgorithmSettings(beta=0.0)


class Data:
    """Makes rollouts that depend on the index alone; notes what it was asked for."""

    def __init__(self, *rewards: float | None, status: Status | None = None) -> None:
        self.rewards = rewards or (1.0, 0.0)
        self.status = status
        self.asked: list[list[int]] = []
        self.model = policy()

    def __call__(self, indices: Sequence[int], size: int) -> list[Rollout]:
        self.asked.append(list(indices))
        return [
            one for place, index in enumerate(indices) for one in self.group(index, place, size)
        ]

    def group(self, index: int, place: int, size: int) -> list[Rollout]:
        chance = random.Random(index)
        name = f"{len(self.asked)}-{place}"
        fields: dict[str, Any] = {"status": self.status} if self.status else {}
        return [
            rollout(
                name,
                n,
                [row(self.model, chance) for _ in range(chance.randint(1, 3))],
                self.rewards[n % len(self.rewards)],
                **({"error": f"of {index}"} if self.rewards[0] is None else {}),
                **fields,
            )
            for n in range(size)
        ]


def weights(trained: RolloutTrainer) -> dict[str, torch.Tensor]:
    model: Any = trained.model
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def logged(trained: RolloutTrainer, name: str) -> list[float]:
    return [line[name] for line in trained.state.log_history if name in line]


class TestResume:
    def test_goes_on_with_the_very_next_batch(self, tmp_path: Path) -> None:
        batch = BatchSettings(groups=2, group_size=2, micro_batches=2, updates=2, iterations=2)
        settings = AlgorithmSettings(beta=0.05, max_refills=1)
        made: dict[str, Any] = {"algorithm": settings, "batch": batch, "size": 9, "steps": 6}
        whole = Data()
        straight = trainer(tmp_path / "straight", whole, **made)
        straight.train()

        class StopAfter3(TrainerCallback):
            def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                control.should_training_stop = state.global_step == 3 * batch.updates_per_step

        first = Data()
        halted = trainer(tmp_path / "halves", first, save_every=3, callbacks=[StopAfter3()], **made)
        halted.train()
        assert halted.step == 3
        torch.manual_seed(123)  # another process would not have this one's random state
        second = Data()
        resumed = trainer(tmp_path / "halves", second, save_every=3, **made)
        resumed.train(resume_from_checkpoint=str(tmp_path / "halves/checkpoint-12"))

        assert len(whole.asked) == 6
        assert first.asked + second.asked == whole.asked
        assert resumed.step == 6
        assert resumed.state.num_input_tokens_seen == straight.state.num_input_tokens_seen
        for name, value in weights(straight).items():
            torch.testing.assert_close(weights(resumed)[name], value, rtol=0, atol=1e-6)

    def test_not_from_the_middle_of_a_batch(self, tmp_path: Path) -> None:
        batch = BATCH.model_copy(update={"updates": 2})
        made: dict[str, Any] = {"algorithm": PLAIN, "batch": batch, "steps": 2, "save_every": 1}
        trained = trainer(tmp_path, Data(), **made)
        trained.args.save_steps = 1
        trained.train()
        with pytest.raises(
            CheckpointMismatch, match="after 1 updates, in the middle of a step of 2"
        ):
            trainer(tmp_path, Data(), **made).train(
                resume_from_checkpoint=str(tmp_path / "checkpoint-1")
            )


class TestDynamicSampling:
    def test_groups_without_a_signal_are_made_up_for(self, tmp_path: Path) -> None:
        class Odd(Data):
            def group(self, index: int, place: int, size: int) -> list[Rollout]:
                self.rewards = (1.0, index % 2)
                return super().group(index, place, size)

        seen: list[tuple[int, int, list[float | None]]] = []
        data = Odd()
        settings = AlgorithmSettings(beta=0.0, max_refills=50)
        trained = trainer(
            tmp_path,
            data,
            algorithm=settings,
            batch=BATCH,
            steps=3,
            size=40,
            on_batch=lambda step, rollouts, advantages: seen.append(
                (step, len(rollouts), list(advantages))
            ),
        )
        trained.train()
        assert logged(trained, "groups/trained") == [2.0] * 3
        rolled = logged(trained, "groups/rolled_out")
        assert sum(rolled) == sum(map(len, data.asked)) > 6
        assert [step for step, *_ in seen] == [1, 2, 3]
        assert [rollouts for _, rollouts, _ in seen] == [2 * n for n in rolled]
        assert all(sum(map(bool, advantages)) == 4 for *_, advantages in seen)
        dropped = [advantages.count(None) for *_, advantages in seen]
        assert dropped == [2 * n - 4 for n in rolled], "dropped groups have no advantages"
        again = Odd()
        trainer(tmp_path, again, algorithm=settings, batch=BATCH, steps=3, size=40).train()
        assert again.asked == data.asked

    def test_a_batch_that_teaches_nothing_is_a_step_without_a_gradient(
        self, tmp_path: Path
    ) -> None:
        seen = Gradients()
        data = Data(1.0)
        trained = trainer(
            tmp_path,
            data,
            algorithm=AlgorithmSettings(beta=0.05, max_refills=1),
            batch=BATCH,
            callbacks=[seen],
        )
        trained.train()
        assert [len(indices) for indices in data.asked] == [2, 2]
        assert all(not gradient.any() for gradient in seen.gradients[0].values())
        assert logged(trained, "groups/dropped") == [1.0]
        assert logged(trained, "rows") == [0.0]

    def test_can_be_left_out(self, tmp_path: Path) -> None:
        data = Data(1.0)
        settings = AlgorithmSettings(beta=0.0, dynamic_sampling=False)
        trained = trainer(tmp_path, data, algorithm=settings, batch=BATCH)
        trained.train()
        assert len(data.asked) == 1
        assert logged(trained, "groups/dropped") == [0.0]
        assert logged(trained, "groups/without_signal") == [1.0]


class TestFailures:
    def test_a_batch_without_a_reward(self, tmp_path: Path) -> None:
        with pytest.raises(RewardFailed, match="'of "):
            trainer(tmp_path, Data(None), algorithm=PLAIN, batch=BATCH).train()

    def test_a_batch_without_an_end(self, tmp_path: Path) -> None:
        data = Data(None, status=Status.FAILED)
        with pytest.raises(RolloutsFailed, match="'of "):
            trainer(tmp_path, data, algorithm=PLAIN, batch=BATCH).train()
        assert len(data.asked) == 1

    def test_a_reward_of_nan_leaves_only_its_rollout_out(self, tmp_path: Path) -> None:
        batch = BATCH.model_copy(update={"group_size": 3})
        trained = trainer(tmp_path, Data(1.0, math.nan, 0.0), algorithm=PLAIN, batch=batch)
        trained.train()
        assert logged(trained, "rollouts/unscored") == [pytest.approx(1 / 3)]
        assert logged(trained, "reward") == [0.5]

    def test_rollouts_that_are_missing(self, tmp_path: Path) -> None:
        with pytest.raises(TrainingError, match="3 rollouts were generated"):
            trainer(
                tmp_path,
                lambda indices, size: Data()(indices, size)[:3],
                algorithm=PLAIN,
                batch=BATCH,
            ).train()

    def test_a_loss_that_is_no_number(self, tmp_path: Path) -> None:
        model = policy()
        with torch.no_grad():
            model.lm_head.weight[3] = math.nan
        with pytest.raises(TrainingError, match="the loss of step 1 is nan"):
            trainer(tmp_path, Data(), algorithm=PLAIN, batch=BATCH, model=model).train()

    def test_settings_that_do_not_fit(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="0 samples"):
            trainer(tmp_path, Data(), algorithm=PLAIN, batch=BATCH, size=0)


def test_weights_learn_what_is_rewarded(tmp_path: Path) -> None:
    """The probability of the rewarded rollouts grows, that of the others falls."""
    data = Data()
    one = data([5], 2)

    def gap(model: Any) -> float:
        with torch.no_grad():
            sums = [sum(float(log_probabilities(model, r).sum()) for r in o.rows) for o in one]
        return sums[0] - sums[1]

    def generate(indices: Sequence[int], size: int) -> list[Rollout]:
        return one

    model = policy()
    before = gap(model)
    batch = BatchSettings(groups=1, group_size=2, micro_batches=2)
    trainer(tmp_path, generate, algorithm=PLAIN, batch=batch, model=model, steps=3).train()
    assert gap(model) > before + 0.1


def test_the_model_trains_though_the_engine_left_it_in_evaluation_mode(tmp_path: Path) -> None:
    modes: list[bool] = []
    model = policy()

    def generate(indices: Sequence[int], size: int) -> list[Rollout]:
        model.eval()
        return Data()(indices, size)

    class Mode(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            modes.append(model.training)

    trainer(
        tmp_path, generate, algorithm=PLAIN, batch=BATCH, model=model, callbacks=[Mode()]
    ).train()
    assert modes == [True]


class Off(Data):
    """An engine that gives other log-probabilities."""

    def __init__(self, off: float) -> None:
        super().__init__()
        self.off = off

    def __call__(self, indices: Sequence[int], size: int) -> list[Rollout]:
        return [
            replace(one, rows=tuple(self._shifted(r) for r in one.rows))
            for one in super().__call__(indices, size)
        ]

    def _shifted(self, row: Any) -> Any:
        return replace(row, logprobs=tuple(value - self.off for value in row.logprobs))


def test_the_gap_between_engine_and_trainer_is_measured(tmp_path: Path) -> None:
    exact = trainer(tmp_path, Data(), algorithm=PLAIN, batch=BATCH)
    exact.train()
    assert logged(exact, "logprob_gap/max")[0] < 1e-5
    off = trainer(tmp_path, Off(0.125), algorithm=PLAIN, batch=BATCH, kind=RolloutTrainer)
    off.train()
    assert logged(off, "logprob_gap/mean")[0] == pytest.approx(0.125, abs=1e-5)


def test_the_kl_is_a_mean_over_tokens(tmp_path: Path) -> None:
    """In the second update, when the policy is no longer the reference."""
    rollouts, start, live = Data()([5, 6], 4), policy(), policy()
    algorithm = AlgorithmSettings(beta=0.05, token_mean="batch", dynamic_sampling=False)
    batch = BatchSettings(groups=2, group_size=4, micro_batches=3, iterations=2)
    seen = Gradients()
    trained = trainer(
        tmp_path,
        lambda indices, size: rollouts,
        algorithm=algorithm,
        batch=batch,
        model=live,
        learning_rate=3e-2,
        callbacks=[seen],
    )
    trained.train()
    live.load_state_dict(seen.weights[1])
    terms: list[float] = []
    for part in (part for one in rollouts for part in one.rows):
        with torch.no_grad():
            gaps = log_probabilities(start, part) - log_probabilities(live, part)
        mask = torch.tensor(part.loss_mask) > 0
        terms += (gaps.exp() - gaps - 1)[mask].tolist()
    wanted = sum(terms) / len(terms)
    assert logged(trained, "kl")[1] == pytest.approx(wanted, rel=1e-4)


def test_an_engine_with_other_weights_stops_the_step_before_its_first_update(
    tmp_path: Path,
) -> None:
    off = trainer(tmp_path, Off(0.4), algorithm=PLAIN, batch=BATCH, kind=RolloutTrainer)
    before = weights(off)
    with pytest.raises(
        EngineMismatch, match=r"step 1 .* by 0\.400 per token, but the limit is 0\.2"
    ):
        off.train()
    assert all(torch.equal(value, before[name]) for name, value in weights(off).items())


def test_figures_of_others_are_logged_beside_its_own(tmp_path: Path) -> None:
    made: list[RolloutTrainer] = []

    def on_batch(
        step: int, rollouts: Sequence[Rollout], advantages: Sequence[float | None]
    ) -> None:
        made[0].note({"engine/idle": 0.5})
        for value in (0.25, 0.75):
            made[0].note({"idle_min": value, "idle_max": value, "idle": value})

    made.append(trainer(tmp_path, Data(), algorithm=PLAIN, batch=BATCH, on_batch=on_batch))
    made[0].train()
    assert logged(made[0], "engine/idle") == [0.5]
    extremes = [logged(made[0], f"idle{end}") for end in ("_min", "_max", "")]
    assert extremes == [[0.25], [0.75], [0.5]], "TRL would log the means of minima and maxima"
    assert logged(made[0], "data/passes") == [0.02]
