"""`export`: writes a trained policy and its trajectories for other programs."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel

from memagent.budget import DEFAULT_WINDOW
from memagent.errors import ConfigError
from memagent.messages import Sampling
from memagent.models.policy import FILE, Policy, ReadingSettings
from memagent.replacing import replacing
from memagent_engines.transformers.adapter import BASE, WEIGHTS, weights_sha256
from memagent_engines.transformers.sampler import end_ids, window_of
from memagent_engines.vllm import largest_rank
from memagent_train.agents import MEMORY, TOOLS
from memagent_train.config.toml import Table, read_toml
from memagent_train.data.games import list_games
from memagent_train.errors import TrainingError
from memagent_train.runs.faults import translate_faults
from memagent_train.runs.folder import RunFolder
from memagent_train.runs.neutral import write_records
from memagent_train.runs.policy import ADAPTER, DTYPES, Tokenizer, embeddings
from memagent_train.runs.rollout_log import read_rollouts
from memagent_train.runs.signals import stop_on_signals
from memagent_train.runs.target import Target, run_target
from memagent_train.sessions import SessionSettings

PROMPTS, README = "prompts.toml", "README.md"
SAMPLED = {"do_sample": True, "temperature": 0.7, "top_p": 0.95}
"""Sampling of the published system at inference."""
CHECKED = 8
"""Number of prompt ids used to compare an export with the original."""


@dataclass(frozen=True)
class Exported:
    """What was exported."""

    out: Path
    step: int
    prompts: bool
    """Whether it has a prompt set; custom agents have none."""


def export(run: Path, out: Path, *, step: int | None = None, dtype: str | None = None) -> Exported:
    """Writes weights, tokenizer, prompts and settings for generating, reading and serving; then loads it all back.

    Args:
        run: the folder of a run.
        out: a new or empty folder.
        step: the checkpoint's step; None: the newest complete one.
        dtype: dtype of the weights; None: the run's.

    Raises:
        ConfigError: there is no such checkpoint or dtype, or `out` is not empty.
        DiskFull: it can't be written.
        TrainingError: the export does not load as the same model.
    """
    target = run_target(run, step)
    assert target.checkpoint is not None
    _check_new(out, dtype)
    # In fp32, so that small adapter weights aren't lost by rounding them in a half-precision base model first.
    model, tokenizer = target.load(merge=torch.float32)
    model = model.to(DTYPES[dtype or target.model.dtype])  # pyright: ignore[reportArgumentType]: torch's stub knows no dtype here
    agent, held = _agent(run)
    held = held or window_of(model)
    with stop_on_signals(), translate_faults(out), replacing(out) as half:
        half.mkdir()
        _write(model, tokenizer, half)
        window = _window(agent, held)
        prompts = _write_wording(run, half, window)
        (half / README).write_text(_readme(run, target, window, prompts), encoding="utf-8")
        check_export(model, half, code=target.model.trust_remote_code)
    return Exported(out, target.checkpoint.step, prompts)


def export_adapter(
    run: Path, out: Path, *, step: int | None = None, dtype: str | None = None
) -> Exported:
    """Writes only a run's adapter, for peft, vLLM, `smol:DIR` and `lora.start`, without a tokenizer.

    The metadata of its weights has the digest of the model that it was trained on (`base_sha256`).

    Args:
        run: the folder of a run with `[lora]`.
        out: a new or empty folder.
        step: the checkpoint's step; None: the newest complete one.
        dtype: dtype of the adapter; None: the one it was trained in, float32.

    Raises:
        ConfigError: there is no such checkpoint, adapter or dtype, or `out` is not empty.
        DiskFull: it can't be written.
    """
    target = run_target(run, step)
    assert target.checkpoint is not None
    _check_new(out, dtype)
    held = target.checkpoint.path
    if not (held / ADAPTER).is_file():
        raise ConfigError(f"the run {str(run)!r} trained all weights: leave --adapter out")
    weights = load_file(held / WEIGHTS)
    if dtype is not None:
        weights = {name: weight.to(DTYPES[dtype]) for name, weight in weights.items()}
    settings = json.loads((held / ADAPTER).read_text(encoding="utf-8"))
    base = Path(target.model.path)
    bound: dict[str, str] = {}
    if base.is_dir():
        # Only the folder's name: its path on this machine means nothing elsewhere.
        settings["base_model_name_or_path"] = base.name
        bound = {BASE: weights_sha256(base)}
    with stop_on_signals(), translate_faults(out), replacing(out) as half:
        half.mkdir()
        save_file(weights, half / WEIGHTS, metadata={"format": "pt"} | bound)
        (half / ADAPTER).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
        agent, room = _agent(run)
        window = _window(agent, room) if room else agent.get("window")
        prompts = _write_wording(run, half, window)
        text = _readme(run, target, window, prompts, rank=settings["r"])
        (half / README).write_text(text, encoding="utf-8")
    return Exported(out, target.checkpoint.step, prompts)


def export_trajectories(run: Path, file: Path) -> int:
    """Writes all logged rollouts as neutral records.

    Returns:
        The number of conversations.

    Raises:
        DataError: the run has no rollout logs.
        DiskFull: the file can't be written.
    """
    with stop_on_signals(), translate_faults(file.parent):
        return write_records(file, read_rollouts(RunFolder(run).rollouts))


def _check_new(out: Path, dtype: str | None) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {str(out)!r} is not empty: give a new folder")
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"--dtype {dtype!r}: give one of {', '.join(DTYPES)}")


def _write(model: PreTrainedModel, tokenizer: Tokenizer, folder: Path) -> None:
    model.generation_config = GenerationConfig(
        eos_token_id=list(end_ids(model, tokenizer)), pad_token_id=tokenizer.pad_token_id, **SAMPLED
    )
    model.config.use_cache = True  # training switches it off, but an export is for generating
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def check_export(model: PreTrainedModel, folder: Path, *, code: bool = False) -> None:
    """Loads the export, running its own code if `code`.

    Raises:
        TrainingError: it loads as a different model.
    """
    again = AutoModelForCausalLM.from_pretrained(folder, dtype=model.dtype, trust_remote_code=code)
    AutoTokenizer.from_pretrained(folder, trust_remote_code=code)
    ids = torch.arange(CHECKED)[None] % embeddings(model)
    with torch.no_grad():
        was, now = model.eval()(ids).logits.float(), again.eval()(ids).logits.float()
    gap, scale = (now - was).abs().max().item(), was.abs().max().item()
    # A model loaded in half precision keeps its rotary frequencies, so rounding errors scale with the logits;
    # a different model differs by their full size.
    if not gap <= (1e-4 if model.dtype == torch.float32 else 0.05) * max(1.0, scale):
        raise TrainingError(
            f"{str(folder)!r} does not load as the model that was exported (logits of up to {scale:.3g} differ by "
            f"{gap:.3g}): please report it"
        )


def _agent(run: Path) -> tuple[dict[str, Any], int | None]:
    """Returns the agent's settings, and the window of rollouts if it is set."""
    settings = read_toml(RunFolder(run).settings)
    return settings.get("agent", {}), settings.get("rollout", {}).get("window")


def _window(agent: dict[str, Any], held: int) -> int:
    """Returns the window of an agent in rollouts that held `held` tokens, which only the memory agent never fills."""
    is_memory = agent.get("use", MEMORY) == MEMORY
    return min(agent.get("window") or DEFAULT_WINDOW, held) if is_memory else held


def _write_wording(run: Path, folder: Path, window: int | None) -> bool:
    """Writes the prompts, if any, and the settings of memagent's agents in training (see `memagent.models.policy`)."""
    wording, settings = RunFolder(run).prompts, read_toml(RunFolder(run).settings)
    agent, sampling = settings.get("agent", {}), _drawing(settings.get("evaluation", {}))
    fields: Table = {"prompts": PROMPTS}
    if agent.get("use") == TOOLS:
        # Runs of earlier versions have no copy of the prompts.
        changes = {"prompts": wording} if wording.is_file() else {}
        text = _session(agent).model_copy(update=changes).wording().source
        (folder / PROMPTS).write_text(text, encoding="utf-8")
        fields |= _tool_settings(agent, window)
    elif wording.is_file():
        shutil.copy(wording, folder / PROMPTS)
        fields |= {"window": window} if window else {}
        fields |= {name: agent[name] for name in ReadingSettings.model_fields if name in agent}
    else:
        return False
    fields |= {"sampling": sampling} if sampling else {}
    text = tomli_w.dumps({"tools": fields} if agent.get("use") == TOOLS else fields)
    note = "# memagent's default settings for this policy.\n"
    if agent.get("use") == TOOLS and _session(agent).protocol == "compact":
        note += "# It writes compact calls: ToolAgent(memagent_train.compact.CompactCalls(model), tools).\n"
    (folder / FILE).write_text(note + text, encoding="utf-8")
    Policy.load(folder)
    return True


def _tool_settings(agent: Table, window: int | None) -> Table:
    """Returns the arguments of `ToolAgent` in training, without prompts and sampling."""
    session = _session(agent)
    context = session.working_context or DEFAULT_WINDOW
    fields = session.model_dump(exclude={"protocol", "prompts"}, exclude_none=True)
    fields |= {"working_context": min(context, window or context)}
    fields |= {"protocol": "text"} if session.protocol == "text" else {}
    return {name: value for name, value in fields.items() if value != ""}


def _session(agent: Table) -> SessionSettings:
    return SessionSettings.model_validate(agent.get("tools", {}))


def _drawing(evaluation: Table) -> Table:
    return {name: evaluation[name] for name in ("temperature", "top_p") if name in evaluation}


def _readme(
    run: Path, target: Target, window: int | None, prompts: bool, *, rank: int | None = None
) -> str:
    """Describes how to use the policy; `rank` is that of an adapter without its model."""
    assert target.checkpoint is not None
    settings = read_toml(RunFolder(run).settings)
    agent = settings.get("agent", {})
    plays = agent.get("use") == TOOLS
    native = plays and _session(agent).protocol == "native"
    length = "" if window is None else f" --max-model-len {window}"
    parser = " --enable-auto-tool-choice --tool-call-parser PARSER" if native else ""
    base = target.model.path
    # A folder's path on this machine means nothing elsewhere.
    base = Path(base).name if Path(base).is_dir() or Path(base).is_absolute() else base
    kind, served = "A policy", ". --served-model-name policy"
    if rank is not None:
        kind = "An adapter"
        max_rank = largest_rank(rank)
        served = f"{base} --enable-lora --max-lora-rank {max_rank} --lora-modules policy=."
    parts = [
        f"# {kind} trained with memagent-train\n\nTrained from {base} in {target.checkpoint.step} steps.\n",
        "## Serve it\n",
        f"```\nvllm serve {served}{length}{parser}\n```\n",
    ]
    if rank is not None:
        parts.append(
            f"It fits only `{base}`: give the path or name under which you have that model.\n"
        )
    if native:
        parts.append("PARSER is the one for the model's tool calls, such as `hermes`.\n")
    if plays:
        parts.append(_playing(settings, window, served=native or rank is not None))
    elif prompts:
        usual = ReadingSettings().model_dump()
        agent |= {"window": window} if window else {}
        flags = [
            f"--{name.replace('_', '-')} {agent[name]}"
            for name in usual
            if name in agent and agent[name] != usual[name]
        ]
        alone = (
            f"Without a server, memagent runs it in its own process and reads them from `{FILE}`:\n"
        )
        spec = "transformers:."
        if rank is not None:
            alone = f"If it was trained from `smol`, no server is needed; `{FILE}` has the sizes:\n"
            spec = "smol:."
        parts += [
            "It was trained with the wording in `prompts.toml` and these sizes, so use the same ones:\n",
            f"```\nmemagent ask DOCUMENT QUESTION --model vllm:policy --prompts {PROMPTS} {' '.join(flags)}\n```\n",
            alone,
            f"```\nmemagent ask DOCUMENT QUESTION --model {spec}\n```\n",
        ]
    else:
        parts.append(f"It was trained with the agent `{agent.get('use', 'of a warm start')}`.\n")
    return "\n".join(parts)


def _playing(settings: Table, window: int | None, *, served: bool) -> str:
    """Shows in Python how to make a tool agent with the policy that plays a game of its training."""
    session = _session(settings["agent"])
    open_it = 'open_model("vllm:policy")  # served as above'
    if not served:
        open_it = 'open_model(f"transformers:{folder}")  # or "vllm:policy", served as above'
    arguments = _tool_settings(settings["agent"], window)
    arguments |= {"sampling": Sampling(**_drawing(settings.get("evaluation", {})))}
    compact = session.protocol == "compact"
    source = next(section for section in settings["data"]["source"] if section["kind"] == "game")
    return PLAYING.format(
        imported="from memagent_train.compact import CompactCalls\n" if compact else "",
        game=f'"{list_games(source["games"])[0]}", seed=0, difficulty={source["difficulties"][0]}',
        model=open_it,
        alone="" if served else f" (without a server, you can leave them out: `{FILE}` has them)",
        wrapped="CompactCalls(model)" if compact else "model",
        settings="".join(f"    {name}={value!r},\n" for name, value in arguments.items()),
    )


PLAYING = """\
## Use it

It was trained as the agent `tools` with the wording in `prompts.toml` and these settings, so use the same ones{alone}.
This plays a game as in training; give your own tools and task in the same way:

```python
from memagent import Sampling, ToolAgent, open_model
{imported}from memagent_train.data.games import deal

folder = "."  # the path of this one from where you run it
game = deal({game})
model = {model}
with ToolAgent(
    {wrapped},
    game.tools,
    prompts=f"{{folder}}/prompts.toml",
{settings}) as agent:
    result = agent.run(game.task)
print(result.answer, result.stop_reason, game.finish(result.answer or ""))
```
"""
