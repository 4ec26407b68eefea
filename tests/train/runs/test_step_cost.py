"""The cost of a step, worked by hand."""

from __future__ import annotations

from pathlib import Path

from tests.train.runs.tiny import write_run

from memagent_train.config.train import load_train
from memagent_train.runs.estimate import GIB
from memagent_train.runs.policy import load_model
from memagent_train.runs.step_cost import StepCost, step_cost

QWEN = """
[model]
path = "Qwen/Qwen2.5-7B-Instruct"
[[data.source]]
kind = "hotpotqa"
lengths = [10_000, 30_000]
[agent]
window = 8192
chunk_tokens = 5000
memory_tokens = 1024
[batch]
groups = 4
group_size = 8
micro_batches = 8
updates = 2
iterations = 2
"""


def cost(tmp_path: Path, *overrides: str) -> StepCost:
    file = tmp_path / "train.toml"
    file.write_text(QWEN)
    return step_cost(load_train(file, overrides))


def test_a_step_by_hand(tmp_path: Path) -> None:
    found = cost(tmp_path)
    assert (found.rollouts, found.most_rollouts) == (32, 96)
    assert found.conversations == (32 * 3, 32 * 7)  # two and six chunks, and the answer
    assert found.tokens == (32 * (10_000 + 2 * 3 * 1024), 32 * (30_000 + 2 * 7 * 1024))
    assert found.updates == 4
    assert found.rows == 14  # 224 conversations in two updates of eight passes
    assert found.window == 8192


def test_a_pass_has_no_more_conversations_than_its_tokens_allow(tmp_path: Path) -> None:
    assert cost(tmp_path, "batch.micro_batch_tokens=50_000").rows == 6
    assert cost(tmp_path, "batch.micro_batch_tokens=5_000").rows == 1


def test_processes_multiply_rollouts_and_not_passes(tmp_path: Path) -> None:
    found = cost(tmp_path, "resources.processes=4", "algorithm.dynamic_sampling=false")
    assert found.rollouts == found.most_rollouts == 128
    assert found.rows == 14


def test_an_agent_of_ones_own_cannot_be_planned(tmp_path: Path) -> None:
    file = tmp_path / "train.toml"
    file.write_text(QWEN.split("[agent]")[0] + '[agent]\nuse = "mine:agent"\n')
    found = step_cost(load_train(file))
    assert found.conversations is None
    lines = dict(found.lines())
    assert lines["conversations per step"].startswith("unknown")
    assert lines["conversations per pass"] == "unknown"


def cost_of_games(tmp_path: Path, *overrides: str) -> StepCost:
    file = tmp_path / "train.toml"
    game = 'kind = "game"\ngames = ["deck"]'
    tools = 'use = "tools"\ntools = { working_context = 4096, max_summaries = 3 }'
    head, _, tail = QWEN.replace('kind = "hotpotqa"\nlengths = [10_000, 30_000]', game).partition(
        "[agent]"
    )
    file.write_text(f"{head}[agent]\n{tools}\n[batch]{tail.partition('[batch]')[2]}")
    return step_cost(load_train(file, overrides))


def test_a_session_has_a_conversation_per_summary_and_one_more_for_each(tmp_path: Path) -> None:
    found = cost_of_games(tmp_path)
    assert found.window == 4096
    # Four stages, and three summaries whose request left out the last turn
    assert found.conversations == (32, 32 * 7)
    assert found.rows == 14  # 224 conversations in two updates of eight passes
    assert found.tokens is None
    assert cost_of_games(tmp_path, "agent.max_calls=4").conversations == (32, 32 * 4)


def test_a_session_that_reasons_has_a_conversation_per_reply(tmp_path: Path) -> None:
    found = cost_of_games(tmp_path)
    # 100 steps and three summaries, in two updates of eight passes
    assert found.reasoning == (32 * 103, 206)
    assert dict(found.lines())["if replies reason"] == "up to 3,296 per step, 206 per pass"
    limits = "agent.max_calls=4", "batch.micro_batch_tokens=25_000"
    assert cost_of_games(tmp_path, *limits).reasoning == (32 * 4, 6)
    assert cost(tmp_path).reasoning is None


def test_a_tool_agents_pass_is_planned_with_what_its_tokens_let_in(tmp_path: Path) -> None:
    one, six, all_of_them = (
        cost_of_games(tmp_path, f"batch.micro_batch_tokens={tokens}")
        for tokens in (4_096, 25_000, 80_000)
    )
    assert (one.rows, six.rows, all_of_them.rows) == (1, 6, 14)
    assert one.memory
    assert six.memory
    masks = [2 * (rows * one.window) ** 2 for rows in (1, 6)]
    assert six.memory.activations - masks[1] == 6 * (one.memory.activations - masks[0])


def test_where_no_number_of_conversations_is_known_the_tokens_of_a_pass_are_planned(
    tmp_path: Path,
) -> None:
    file = tmp_path / "train.toml"
    file.write_text(QWEN.split("[agent]")[0] + '[agent]\nuse = "mine:agent"\n')
    found = step_cost(load_train(file, ["batch.micro_batch_tokens=25_000"]))
    assert found.rows == 25_000 // 8192


def test_calls_end_at_their_limit(tmp_path: Path) -> None:
    assert cost(tmp_path, "agent.max_calls=4").conversations == (32 * 3, 32 * 4)


def test_memory_is_estimated_where_the_shape_is_known(tmp_path: Path) -> None:
    lines = dict(cost(tmp_path, "resources.device_gib=80").lines())
    assert lines["memory: weights"] == "28.4 GiB"
    assert lines["fits 80 GiB"] == "NO"
    assert dict(cost(tmp_path, "model.path=someone/x").lines())["memory"].startswith("unknown")
    server = ["rollout.engine=vllm", "rollout.base_url=http://x"]
    assert dict(cost(tmp_path, *server).lines())["memory: cache"] == "0.0 GiB"
    lora = dict(cost(tmp_path, "lora.rank=8", "model.dtype=bfloat16").lines())
    assert (lora["memory: weights"], lora["memory: reference"]) == ("14.2 GiB", "0.0 GiB")


def test_an_engine_beside_the_trainer_takes_memory_of_its_own(tmp_path: Path) -> None:
    device, engine = "resources.device_gib=80", "rollout.engine=vllm-engine"
    server = cost(tmp_path, "rollout.engine=vllm", "rollout.base_url=http://x", device).memory
    beside = cost(tmp_path, engine, device).memory
    share = "rollout.engine_settings={gpu_memory_utilization=0.25}"
    bounded = cost(tmp_path, engine, device, share).memory
    assert server
    assert beside
    assert bounded
    # Weights of 16 bits, and 64 conversations of 8192 tokens
    assert beside.engine == 2 * 7_615_616_512 + 64 * 8192 * 57_344
    assert beside.peak == server.peak + beside.engine
    assert bounded.peak == server.peak + 20 * GIB


def test_a_model_folder_has_its_own_shape(tmp_path: Path) -> None:
    config = load_train(write_run(tmp_path))
    found = step_cost(config)
    assert found.memory is not None
    assert found.memory.weights == 4 * load_model(config.model).num_parameters()
