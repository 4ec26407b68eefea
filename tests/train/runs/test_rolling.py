"""Agent, reward and engine at work on one event loop."""

from __future__ import annotations

import asyncio
import resource
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import torch
from peft import get_peft_model
from peft.tuners.lora import LoraLayer
from tests.train.runs.tiny import write_run

from memagent.errors import ConfigError
from memagent.messages import Sampling
from memagent.runstore import RunStore
from memagent_train.config.sections import LoraSettings
from memagent_train.config.train import load_train
from memagent_train.errors import DiskFull
from memagent_train.rollout.roll import RolloutRequest
from memagent_train.rollouts import Status
from memagent_train.runs.policy import adapter_settings, load_model, load_tokenizer
from memagent_train.runs.rolling import Rolling
from memagent_train.runs.signals import Signalled
from memagent_train.smoke.task import Relay

DRAWN = Sampling(temperature=1.0, top_p=1.0)
REQUESTS = [RolloutRequest(Relay().sample(n), "group", f"rollout-{n}", seed=n) for n in range(3)]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("rolling"))


@pytest.fixture
def rolling(settings: Path, tmp_path: Path) -> Iterator[Rolling]:
    config = load_train(settings)
    opened = Rolling(config, tmp_path / "runs.sqlite")
    opened.attach(load_model(config.model), load_tokenizer(config.model))
    yield opened
    opened.close()


def test_rollouts_come_in_the_order_of_requests_with_their_rewards(rolling: Rolling) -> None:
    ended: list[str] = []
    rollouts = rolling.roll(
        REQUESTS,
        rolling.policy(DRAWN),
        kept=False,
        on_done=lambda one: ended.append(one.rollout_id),
    )
    names = [request.rollout_id for request in REQUESTS]
    assert [one.rollout_id for one in rollouts] == names == sorted(ended)
    assert all(one.status is Status.SCORED for one in rollouts)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_an_adapter_is_in_the_weights_while_rollouts_are_drawn(settings: Path) -> None:
    config = load_train(settings)
    base = load_model(config.model).to(torch.bfloat16)  # pyright: ignore[reportArgumentType]
    policy = get_peft_model(base, adapter_settings(LoraSettings(rank=4)))
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.01)
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}

    def merged() -> set[bool]:
        return {bool(part.merged) for part in policy.modules() if isinstance(part, LoraLayer)}

    with closing(Rolling(config, None)) as rolling:
        rolling.attach(
            base, load_tokenizer(config.model)
        )  # as in training: the adapter lies in its layers
        seen: list[set[bool]] = []
        drawn = rolling.policy(DRAWN)
        rolling.roll(REQUESTS, drawn, kept=False, on_done=lambda _: seen.append(merged()))
    assert seen == [{True}] * len(REQUESTS)
    assert merged() == {False}
    assert all(torch.equal(weight, before[name]) for name, weight in policy.state_dict().items())


@pytest.mark.parametrize("kept", [True, False])
def test_runs_are_kept_where_it_is_asked_for_without_their_locks(
    rolling: Rolling, tmp_path: Path, kept: bool
) -> None:
    rolling.roll(REQUESTS[:1], rolling.policy(DRAWN), kept=kept, on_done=lambda _: None)
    store = RunStore(tmp_path / "runs.sqlite")
    assert [record.id for record in store.runs()] == (["rollout-0"] if kept else [])
    store.close()
    locks = tmp_path / "runs.sqlite.locks"
    assert not locks.exists() or not list(locks.iterdir())


def test_a_store_that_is_full_ends_it(rolling: Rolling) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
    try:
        with pytest.raises(DiskFull, match=r"set logging\.runs = 0"):
            rolling.roll(REQUESTS, rolling.policy(DRAWN), kept=True, on_done=lambda _: None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_what_interrupts_the_loop_cancels_what_it_ran(rolling: Rolling) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            asyncio.get_running_loop().call_later(0.01, interrupt)
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    def interrupt() -> None:
        raise Signalled(15)

    with pytest.raises(Signalled):
        rolling.drive(work())
    assert ended == ["cancelled"]
    assert rolling.drive(asyncio.sleep(0, "still of use")) == "still of use"


@pytest.mark.parametrize("override", ["reward.use=no_such_score", "agent.prompts=none.toml"])
def test_what_cannot_be_had_is_told_before_a_model_is_loaded(settings: Path, override: str) -> None:
    with pytest.raises(ConfigError):
        Rolling(load_train(settings, [override]), None)
