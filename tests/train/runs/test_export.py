"""An export is the policy of the checkpoint, as transformers loads it, with its wording."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import torch
from peft import PeftModel
from safetensors.torch import load_file
from tests.train.runs.tiny import PROMPTS, give_own_code, write_run
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

from memagent.errors import ConfigError
from memagent.memory.agent import MemoryAgent
from memagent.memory.plan import MemorySettings
from memagent.models import open_model
from memagent.models.policy import Policy
from memagent.prompts import PromptSet
from memagent.prompts.session import SessionPrompts
from memagent.session.agent import ToolAgent
from memagent_engines.transformers.loading import load
from memagent_train.compact import CompactCalls, compact_wording
from memagent_train.config.toml import read_toml
from memagent_train.config.train import load_train
from memagent_train.errors import DataError, TrainingError
from memagent_train.runs import metrics
from memagent_train.runs.export import check_export, export, export_adapter, export_trajectories
from memagent_train.runs.folder import RunFolder
from memagent_train.runs.grpo import train
from memagent_train.runs.target import run_target

PEFT = "ignore:.*is_gradient_checkpointing:FutureWarning"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of an adapter: always the same, since batches that depend on time would round differently."""
    folder = tmp_path_factory.mktemp("export")
    lora, fast = {"rank": 4, "alpha": 64}, {"steps": 2, "learning_rate": 0.05}
    file = write_run(folder, lora=lora, optimizer=fast, rollout={"concurrency": 1})
    return train(load_train(file), folder / "run").out


pytestmark = pytest.mark.filterwarnings(PEFT)


def test_an_export_loads_as_the_policy_of_the_checkpoint(run: Path, tmp_path: Path) -> None:
    made = export(run, tmp_path / "out")
    assert (made.step, made.prompts) == (2, True)
    policy, _ = run_target(run).load()
    base = AutoModelForCausalLM.from_pretrained(run.parent / "model")
    loaded = AutoModelForCausalLM.from_pretrained(made.out)
    ids = torch.arange(10)[None]
    with torch.no_grad():
        logits = [model.eval()(ids).logits for model in (loaded, policy, base)]
    assert torch.allclose(logits[0], logits[1], atol=1e-5)
    assert not torch.allclose(logits[0], logits[2], atol=1e-3)


def test_the_window_is_the_one_of_rollouts(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"window": None, "chunk_tokens": None, "memory_tokens": None}
    file = write_run(tmp_path, agent=sizes, rollout={"window": 96}, optimizer={"steps": 1})
    made = export(train(load_train(file), tmp_path / "run").out, tmp_path / "out")
    found = Policy.load(made.out)
    assert found is not None
    assert found.window == 96
    readme = (made.out / "README.md").read_text()
    assert "--max-model-len 96" in readme
    assert "--window 96" in readme


def changed(run: Path, out: Path, **sections: dict[str, Any]) -> Path:
    """A copy of a run that says it was trained with other settings."""
    copy = RunFolder(shutil.copytree(run, out))
    copy.settings.write_text(tomli_w.dumps(read_toml(copy.settings) | sections))
    return copy.path


def test_the_window_is_the_one_that_the_agent_read_with(run: Path, tmp_path: Path) -> None:
    """By default at most 8192, also where rollouts had room for more."""
    roomy = changed(run, tmp_path / "run", agent={"use": "memory"}, rollout={"window": 16384})
    for out in (
        export(roomy, tmp_path / "out").out,
        export_adapter(roomy, tmp_path / "adapter").out,
    ):
        assert "--max-model-len 8192" in (out / "README.md").read_text()
        found = Policy.load(out)
        assert found is not None
        assert found.window == 8192
    own = changed(roomy, tmp_path / "own", agent={"use": "mine:read"})
    RunFolder(own).prompts.unlink()
    readme = (export(own, tmp_path / "own-out").out / "README.md").read_text()
    assert "--max-model-len 16384" in readme
    model = shutil.copytree(run.parent / "model", tmp_path / "model") / "config.json"
    model.write_text(json.dumps(json.loads(model.read_text()) | {"max_position_embeddings": 32768}))
    large = changed(own, tmp_path / "large", model={"path": str(model.parent)}, rollout={})
    readme = (export(large, tmp_path / "all").out / "README.md").read_text()
    assert "--max-model-len 32768" in readme, "by default rollouts have the model's window"


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_an_adapter_of_half_precision_is_rounded_only_at_the_end(
    run: Path, tmp_path: Path, dtype: str | None
) -> None:
    model = {"path": str(run.parent / "model"), "dtype": "bfloat16"}
    out = export(changed(run, tmp_path / "run", model=model), tmp_path / "out", dtype=dtype).out
    newest = RunFolder(run).find_newest()
    assert newest is not None
    base: Any = AutoModelForCausalLM.from_pretrained(model["path"], dtype=torch.bfloat16)
    adapted: Any = PeftModel.from_pretrained(base.to(torch.float32), str(newest.path))
    expected = adapted.merge_and_unload().state_dict()
    for name, weight in load_file(out / "model.safetensors").items():
        assert weight.dtype == (torch.bfloat16 if dtype is None else torch.float32)
        assert torch.equal(weight, expected[name].to(weight.dtype)), name


@pytest.mark.parametrize(("dtype", "gap"), [(None, 1e-5), ("bfloat16", 0.05)])
def test_an_adapter_is_exported_by_itself(
    run: Path, tmp_path: Path, dtype: str | None, gap: float
) -> None:
    out = export_adapter(run, tmp_path / "out", dtype=dtype).out
    assert str(run.parent) not in (out / "adapter_config.json").read_text()
    base = AutoModelForCausalLM.from_pretrained(run.parent / "model")
    policy, _ = run_target(run).load()
    ids = torch.arange(10)[None]
    with torch.no_grad():
        expected = policy.eval()(ids).logits
        made = PeftModel.from_pretrained(base, str(out)).eval()(ids).logits
    assert torch.allclose(made, expected, atol=gap, rtol=gap)
    merged, _ = load(str(run.parent / "model"), device="cpu", adapter=out)
    assert torch.allclose(merged(ids).logits, expected, atol=gap, rtol=gap)
    with pytest.raises(ConfigError, match="was not trained on"):
        load(str(export(run, tmp_path / "merged").out), device="cpu", adapter=out)
    found = Policy.load(out)
    assert found is not None
    assert (found.window, found.chunk_tokens, found.memory_tokens) == (128, 40, 6)
    readme = (out / "README.md").read_text()
    serve = (
        "vllm serve model --enable-lora --max-lora-rank 8 --lora-modules policy=. --max-model-len"
    )
    assert f"\n{serve} 128\n" in readme
    assert "--window 128 --chunk-tokens 40 --memory-tokens 6" in readme
    assert "--model smol:." in readme
    size = sum(file.stat().st_size for file in out.iterdir())
    assert size < sum(file.stat().st_size for file in export(run, tmp_path / "whole").out.iterdir())
    with pytest.raises(ConfigError, match="is not empty"):
        export_adapter(run, out)


def test_reinforcement_learning_continues_an_adapter_which_is_its_reference(
    run: Path, tmp_path: Path
) -> None:
    adapter = str(export_adapter(run, tmp_path / "adapter").out)
    found: list[float] = []
    for start in ({"start": adapter}, {}):
        folder = tmp_path / f"{len(found)}"
        folder.mkdir()
        lora = {"rank": 4, "alpha": 64, **start}
        file = write_run(
            folder,
            lora=lora,
            optimizer={"steps": 1},
            algorithm={"beta": 0.01},
            batch={"updates": 1, "iterations": 1},
        )
        made = train(load_train(file), folder / "run").out
        found.append(metrics.read(RunFolder(made).metrics)[0]["kl"])
        weights = load_file(export_adapter(made, folder / "out").out / "adapter_model.safetensors")
        moved = any(weight.abs().max() > 1e-2 for name, weight in weights.items() if "_B" in name)
        assert moved == bool(start)
    assert found == pytest.approx([0.0, 0.0], abs=1e-6)


def test_training_of_all_weights_leaves_no_adapter(tmp_path: Path) -> None:
    made = train(load_train(write_run(tmp_path, optimizer={"steps": 1})), tmp_path / "run").out
    with pytest.raises(ConfigError, match="trained all weights: leave --adapter out"):
        export_adapter(made, tmp_path / "out")


def test_it_has_tokenizer_template_sampling_wording_and_how_to_serve_it(
    run: Path, tmp_path: Path
) -> None:
    out = export(run, tmp_path / "out", step=1).out
    tokenizer = AutoTokenizer.from_pretrained(out)
    said = [{"role": "user", "content": "sun"}]
    assert tokenizer.apply_chat_template(said, tokenize=False) == "<user> sun <end> "
    generation = GenerationConfig.from_pretrained(out)
    assert (generation.temperature, generation.top_p, generation.do_sample) == (0.7, 0.95, True)
    assert PromptSet.load(out / "prompts.toml").hash == PromptSet.load(str(PROMPTS)).hash
    readme = (out / "README.md").read_text()
    assert "vllm serve ." in readme
    assert "--window 128 --chunk-tokens 40 --memory-tokens 6 --cuts exact" in readme
    assert "in 1 steps" in readme
    assert "Made from /" not in readme
    assert "--trust neutral" not in readme, "it is the default"
    assert "--model transformers:." in readme


def test_it_is_read_as_it_was_trained_without_being_told(run: Path, tmp_path: Path) -> None:
    out = export(run, tmp_path / "out", dtype="bfloat16").out
    with MemoryAgent(f"transformers:{out}", store=None) as agent:
        settings = agent.settings
        assert (settings.window, settings.chunk_tokens, settings.memory_tokens) == (128, 40, 6)
        assert settings.cuts == "exact"
        evaluated = load_train(RunFolder(run).settings).evaluation
        assert settings.sampling.temperature == evaluated.temperature
        assert agent.prompts.hash == PromptSet.load(str(PROMPTS)).hash
        result = agent.ask("sun moon sun", "sun")
    assert result.usage.calls == 2
    loaded = AutoModelForCausalLM.from_pretrained(out)
    assert loaded.dtype == torch.bfloat16
    assert loaded.config.use_cache


@pytest.mark.parametrize(
    "scale",
    [
        1.0,
        pytest.param(64.0, id="a policy that is as sure as copying makes it"),
    ],
)
def test_half_precision_may_round_as_much_as_logits_are_large(
    run: Path, tmp_path: Path, scale: float
) -> None:
    policy, _ = run_target(run).load()
    head: Any = policy.get_output_embeddings()
    with torch.no_grad():
        head.weight.mul_(scale)
    policy.to(torch.bfloat16).save_pretrained(tmp_path)  # pyright: ignore[reportArgumentType]
    for file in (run.parent / "model").glob("tok*"):
        shutil.copy(file, tmp_path)
    check_export(policy, tmp_path)
    with torch.no_grad():
        head.weight[:4].mul_(-1)
    with pytest.raises(TrainingError, match="does not load as"):
        check_export(policy, tmp_path)


def test_a_policy_with_code_of_its_own_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", tmp_path / "modules")
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = write_run(tmp_path, model={"trust_remote_code": True}, optimizer={"steps": 1})
    give_own_code(tmp_path / "model")
    out = export(train(load_train(file), tmp_path / "run").out, tmp_path / "out").out
    assert (out / "own.py").is_file()


SIZES = {
    "working_context": 400,
    "max_summaries": 2,
    "max_steps": 9,
    "summary_tokens": 8,
    "reply_tokens": 6,
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step of a tool agent with a wording of its own, whose file is lost since."""
    folder = tmp_path_factory.mktemp("played")
    wording = folder / "mine.toml"
    wording.write_text(compact_wording().read_text().replace("Solve the task.", "Play."))
    tools = {"protocol": "compact", "prompts": "mine.toml", **SIZES}
    reading = dict.fromkeys(("prompts", "window", "chunk_tokens", "memory_tokens"))
    file = write_run(
        folder,
        data={"source": [{"kind": "game", "games": ["all"], "difficulties": [10]}]},
        agent={"use": "tools", "tools": tools} | reading,
        rollout={"window": 512},
        reward={"use": "task"},
        optimizer={"steps": 1},
        evaluation={"temperature": 0.5},
    )
    model = folder / "model" / "config.json"
    model.write_text(json.dumps(json.loads(model.read_text()) | {"max_position_embeddings": 4096}))
    made = train(load_train(file), folder / "run").out
    wording.unlink()
    return made


def test_a_tool_agent_plays_as_it_was_trained_as_its_readme_says(
    played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = export(played, tmp_path / "out")
    readme = (made.out / "README.md").read_text()
    assert (made.prompts, "--max-model-len 512\n" in readme) == (True, True)
    monkeypatch.chdir(made.out)
    names = run_python(readme)
    agent: ToolAgent = names["agent"]
    assert agent.settings.model_dump(include=set(SIZES)) == SIZES
    assert agent.settings.sampling.temperature == 0.5
    assert isinstance(agent.model.inner, CompactCalls)
    assert agent.prompts.native.startswith("Play. Call one tool")
    assert names["result"].usage.calls > 0
    spec, tools = f"transformers:{made.out}", names["game"].tools
    with ToolAgent(CompactCalls(open_model(spec)), tools, store=None) as alone:
        assert alone.settings == agent.settings
        assert alone.prompts.hash == agent.prompts.hash
    with ToolAgent(spec, tools, working_context=300, prompts="session", store=None) as other:
        assert other.settings == agent.settings.model_copy(update={"working_context": 300})
        assert other.prompts.hash == SessionPrompts.load().hash
    with MemoryAgent(spec, store=None) as reader:
        assert reader.settings == MemorySettings()


def run_python(readme: str) -> dict[str, Any]:
    """The names that are there after the Python of a README."""
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    return names


def test_other_protocols_of_a_tool_agent(
    played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a run of an earlier version too, which has no copy of its wording."""
    settings = {"protocol": "text", "working_context": 4000, "instructions": "Play\n'well'."}
    text = changed(played, tmp_path / "t", agent={"use": "tools", "tools": settings}, rollout={})
    RunFolder(text).prompts.unlink()
    out = export(text, tmp_path / "text").out
    monkeypatch.chdir(out)
    names = run_python((out / "README.md").read_text())
    agent: ToolAgent = names["agent"]
    assert agent.settings.model_dump(include=set(settings)) == settings
    assert agent.prompts.hash == SessionPrompts.load().hash
    assert names["result"].usage.calls > 0
    with ToolAgent(f"transformers:{out}", names["game"].tools, store=None) as alone:
        assert alone.settings == agent.settings
    native = export(changed(played, tmp_path / "n", agent={"use": "tools"}), tmp_path / "native")
    readme = (native.out / "README.md").read_text()
    assert "--max-model-len 512 --enable-auto-tool-choice --tool-call-parser PARSER\n" in readme
    assert 'model = open_model("vllm:policy")' in readme
    assert "working_context=512," in readme, "by default as much as rollouts had"


def test_a_dtype_that_nobody_knows_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="bf16"):
        export(run, tmp_path / "out", dtype="bf16")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_is_left_alone(run: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(ConfigError, match="is not empty"):
        export(run, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_neighbours_of_what_is_written_are_left_alone(run: Path, tmp_path: Path) -> None:
    for name in ("out.new", "adapter.new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "notes.txt").touch()
    (tmp_path / "t.jsonl.new").write_text("mine")
    export(run, tmp_path / "out")
    export_adapter(run, tmp_path / "adapter")
    export_trajectories(run, tmp_path / "t.jsonl")
    kept = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.txt")}
    assert kept == {"out.new/notes.txt", "adapter.new/notes.txt"}
    assert (tmp_path / "t.jsonl.new").read_text() == "mine"


def test_what_does_not_load_as_the_policy_is_refused(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = PreTrainedModel.save_pretrained

    def damaged(model: PreTrainedModel, folder: Path) -> None:
        whole(model, folder)
        shutil.copy(run.parent / "model" / "model.safetensors", folder)

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", damaged)
    with pytest.raises(TrainingError, match="does not load as the model that was exported"):
        export(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_trajectories_are_the_neutral_record(run: Path, tmp_path: Path) -> None:
    count = export_trajectories(run, tmp_path / "t.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert len(lines) == count > 0
    for line in lines:
        assert len(line["response_ids"]) == len(line["loss_mask"]) == len(line["logprobs"])
    groups = {line["group_id"] for line in lines}
    assert len(groups) == 4
    assert sum(line["is_final"] for line in lines) == 8


def test_without_logs_there_are_no_trajectories(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"with logging.rollouts"):
        export_trajectories(RunFolder(tmp_path).path, tmp_path / "t.jsonl")
