"""verl's own workers roll out memagent's agent, its own queue takes the rows, and its own code gives them advantages.

Only the server and the trainer's update are not verl's: transformers draws, on the CPU. Run by `make test-verl`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
import tomli_w
import torch
import transfer_queue as tq
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from tensordict import NonTensorData, NonTensorStack, TensorDict
from transformers import AutoModelForCausalLM, AutoTokenizer
from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.protocol import DataProto
from verl.trainer.ppo.v1 import AgentLoopManagerTQ
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.router import GlobalRequestLoadBalancer

from memagent_engines.transformers.loading import text_counter
from memagent_train.config.train import load_train
from memagent_train.data.open import open_data
from memagent_train.rollouts import Rollout, Row, Status
from memagent_train.smoke.model import tiny_model
from memagent_train.smoke.task import Relay
from memagent_train.smoke.tokenizer import word_tokenizer
from memagent_train.verl_loop import _VerlSampler, outputs

pytestmark = pytest.mark.timeout(600)  # Ray starts a process for each worker

GROUP = 4
"""Rollouts of a prompt."""
STEP = 7
"""The version of the weights."""
SAMPLES = (0, 1, 10**9)
"""Numbers of samples; the data does not have the last one."""
REWARD = """
async def share_of_long_words(answer, sample):
    words = (answer or "").split()
    return {"reward": sum(len(word) > 3 for word in words) / max(1, len(words)), "words": len(words)}
"""


@ray.remote
class Server:
    """Replies as verl's vLLM server does."""

    def __init__(self, model: str) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(model)
        self.asked: list[dict[str, Any]] = []

    async def generate(
        self, *, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        self.asked.append(sampling_params)
        ids, logprobs = list(prompt_ids), []
        for _ in range(sampling_params["max_tokens"]):
            with torch.no_grad():
                logits = self.model(torch.tensor([ids])).logits[0, -1]
            scores = (logits / sampling_params["temperature"]).log_softmax(-1)
            ids.append(int(torch.multinomial(scores.exp(), 1)))
            logprobs.append(float(scores[ids[-1]]))
            if ids[-1] == self.model.config.eos_token_id:
                break
        return TokenOutput(
            token_ids=ids[len(prompt_ids) :],
            log_probs=logprobs if sampling_params["logprobs"] else None,
            stop_reason="completed",
            extra_fields={"global_steps": STEP},
        )

    async def params(self) -> list[dict[str, Any]]:
        return self.asked


def write_task(folder: Path) -> Path:
    """Writes what a user of verl writes: memagent's settings, and a file that names the loop."""
    tokenizer = word_tokenizer()
    tokenizer.save_pretrained(folder / "model")
    tiny_model(tokenizer, seed=0).save_pretrained(folder / "model")
    (folder / "rewards_of_test.py").write_text(REWARD)
    task = {
        "model": {"path": "model"},
        "data": {"source": [{"kind": "task", "use": f"{Relay.__module__}:Relay", "count": 20}]},
        "agent": {
            "prompts": str(resources.files("memagent_train.smoke") / "prompts.toml"),
            "window": 128,
            "chunk_tokens": 40,
            "memory_tokens": 6,
        },
        "reward": {"use": "rewards_of_test:share_of_long_words"},
    }
    (folder / "task.toml").write_text(tomli_w.dumps(task))
    loop = {
        "name": "memagent",
        "_target_": "memagent_train.verl_loop.MemagentLoop",
        "config": str(folder / "task.toml"),
    }
    (folder / "loops.yaml").write_text(json.dumps([loop]))
    return folder


def verl_config(folder: Path) -> Any:
    rollout = "actor_rollout_ref.rollout"
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_trainer",
            [
                f"actor_rollout_ref.model.path={folder / 'model'}",
                *(f"{rollout}.name=vllm", f"{rollout}.n={GROUP}", f"{rollout}.agent.num_workers=1"),
                *(f"{rollout}.prompt_length=96", f"{rollout}.response_length=32"),
                f"{rollout}.agent.agent_loop_config_path={folder / 'loops.yaml'}",
                f"{rollout}.agent.default_agent_loop=memagent",
                "algorithm.adv_estimator=grpo",
                "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
            ],
        )
    OmegaConf.resolve(config)
    return config


async def roll_out(config: Any) -> dict[str, Any]:
    """Has verl roll out the samples; returns its queue's tags and rows, and what the server was asked."""
    server = Server.remote(config.actor_rollout_ref.model.path)
    balancer = ray.remote(GlobalRequestLoadBalancer).remote({"server": server})
    client = LLMServerClient(config, load_balancer_handle=balancer)
    manager = await AgentLoopManagerTQ.create(config=config, llm_client=client)
    uids = [f"uid{number}" for number in SAMPLES]
    prompts = {
        "uid": NonTensorStack(*uids),
        "index": NonTensorStack(*SAMPLES),
        "raw_prompt": NonTensorStack(*([{"role": "user", "content": "?"}] for _ in SAMPLES)),
        "global_steps": NonTensorData(STEP),
    }
    await asyncio.to_thread(
        manager.generate_sequences, TensorDict(prompts, batch_size=len(SAMPLES))
    )
    tags: Mapping[str, Any] = {}
    while not all(tags.get(uid, {}).get("status") in ("finished", "failure") for uid in uids):
        await asyncio.sleep(0.2)
        tags = tq.kv_list(partition_id="train").get("train", {})
    keys = [key for key in tags if key not in uids]
    rows = tq.kv_batch_get(keys=keys, partition_id="train")
    return {"tags": tags, "keys": keys, "rows": rows, "asked": await server.params.remote()}


@pytest.fixture(scope="module")
def rolled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = write_task(tmp_path_factory.mktemp("task"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ["PYTHONPATH"]]))
        ray.init(num_cpus=4, include_dashboard=False)
        config = verl_config(folder)
        tq.init(config.transfer_queue)
        yield {**asyncio.run(roll_out(config)), "folder": folder}
        tq.close()
        ray.shutdown()


def sessions(keys: Sequence[str]) -> dict[str, list[int]]:
    """Rows of each rollout, in verl's order."""
    found: dict[str, list[int]] = {}
    for at in sorted(range(len(keys)), key=lambda at: int(keys[at].rsplit("_", 1)[1])):
        found.setdefault(keys[at].rsplit("_", 1)[0], []).append(at)
    return found


def test_each_rollout_is_several_rows(rolled: dict[str, Any]) -> None:
    tags, rows = rolled["tags"], sessions(rolled["keys"])
    assert [tags[f"uid{n}"]["status"] for n in SAMPLES] == ["finished", "finished", "failure"]
    assert set(rows) == {f"uid{n}_{session}" for n in SAMPLES[:2] for session in range(GROUP)}
    for places in rows.values():
        assert len(places) >= 5  # four chunks and the answer; an unusable reply is asked for again
    versions = {
        (tag["min_global_steps"], tag["max_global_steps"])
        for k, tag in tags.items()
        if k in rolled["keys"]
    }
    assert versions == {(STEP, STEP)}


def test_rows_are_the_ids_that_the_agent_saw_and_sampled(rolled: dict[str, Any]) -> None:
    folder, rows = rolled["folder"], rolled["rows"]
    model = AutoModelForCausalLM.from_pretrained(folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    data = open_data(load_train(folder / "task.toml").data, counter=text_counter(tokenizer))
    for session, places in sessions(rolled["keys"]).items():
        sample = data.sample(int(session.removeprefix("uid").split("_")[0]))
        first, last = (tokenizer.decode(rows["prompts"][at]) for at in (places[0], places[-1]))
        assert " ".join(sample.context.split()[:32]) in first
        assert sample.question in last
        for at in places:
            ids, logprobs = rows["input_ids"][at], rows["rollout_log_probs"][at]
            with torch.no_grad():
                scores = model(ids[None]).logits[0].log_softmax(-1)
            drawn = ids[-len(logprobs) :]
            exact = scores[-len(logprobs) - 1 : -1].gather(1, drawn[:, None])[:, 0]
            torch.testing.assert_close(logprobs, exact, rtol=0, atol=1e-4)
            assert rows["response_mask"][at].all()
    assert {(asked["temperature"], asked["logprobs"]) for asked in rolled["asked"]} == {(1.0, True)}


def test_verl_gives_all_rows_of_a_rollout_its_advantage(rolled: dict[str, Any]) -> None:
    rows, keys = rolled["rows"], rolled["keys"]
    tensors = rows.select("response_mask", "rm_scores").to_padded_tensor()
    data = DataProto(batch=tensors, non_tensor_batch={"uid": np.array([*rows["uid"]])})
    data.batch["token_level_rewards"] = data.batch["rm_scores"]
    made = compute_advantage_for_multi_trajectories(data, batch_keys=keys, adv_estimator="grpo")
    rewards = {s: float(rows["rm_scores"][at[-1]].sum()) for s, at in sessions(keys).items()}
    assert len(set(rewards.values())) > 2
    for session, places in sessions(keys).items():
        group = [r for other, r in rewards.items() if other.split("_")[0] == session.split("_")[0]]
        wanted = (rewards[session] - np.mean(group)) / (np.std(group, ddof=1) + 1e-6)
        for at in places:
            found = made.batch["advantages"][at][: len(rows["response_mask"][at])]
            torch.testing.assert_close(found, torch.full_like(found, wanted), rtol=0, atol=1e-4)


def rollout(**changes: Any) -> Rollout:
    answer = Row((3,), (4, 5, 6), (1, 0, 1), (-0.5, 0.0, -1.0), final=True)
    other = Row((7, 8), (9,), (1,), (-0.25,))
    frozen = Row((7,), (9,), (0,), (-0.25,))
    given = {"answer": "a", "status": Status.SCORED, "reward": 0.5, "scores": {"f1": 0.25}}
    sample = Relay().sample(0)
    return Rollout("g", "r", sample, (answer, frozen, other), **{**given, **changes})


def made(played: Rollout, *, overlong_mask: bool = False) -> list[AgentLoopOutput]:
    sampler = _VerlSampler(None, {}, 64, SimpleNamespace(eos_token_id=1))
    sampler.steps += [3, 5, 4]
    return outputs(played, sampler, overlong_mask=overlong_mask)


def test_the_final_call_comes_last_and_untrained_rows_are_left_out() -> None:
    first, last = made(rollout())
    assert (first.response_ids, last.response_ids) == ([9], [4, 5, 6])
    assert (last.response_mask, last.response_logprobs) == ([1, 0, 1], [-0.5, 0.0, -1.0])
    assert (first.reward_score, last.reward_score) == (0.5, 0.5)
    assert last.extra_fields["reward_extra_info"] == {"f1": 0.25, "overlong": 0.0}
    assert (last.extra_fields["min_global_steps"], last.extra_fields["max_global_steps"]) == (3, 5)


def test_an_overlong_rollout_counts_in_its_group_without_a_gradient() -> None:
    rows = made(rollout(overlong=True), overlong_mask=True)
    assert [row.response_mask for row in rows] == [[0], [0, 0, 0]]
    assert [row.reward_score for row in rows] == [0.5, 0.5]
    assert made(rollout(overlong=True))[0].response_mask == [1]


def test_a_rollout_without_a_reward_is_left_out() -> None:
    assert made(rollout(reward=None, status=Status.UNSCORED)) == []
