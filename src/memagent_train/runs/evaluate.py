"""`evaluate`: answers held-out or training samples with a policy, outside of training."""

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from memagent.messages import Sampling
from memagent.replacing import replacing
from memagent_engines.transformers.loading import text_counter
from memagent_train.config.train import TrainConfig
from memagent_train.data.open import open_data
from memagent_train.figures import RolloutFacts, facts_of, raise_if_nothing_scored
from memagent_train.rollout.settings import OWN_WEIGHTS, RolloutSettings
from memagent_train.rollouts import Rollout
from memagent_train.runs.evaluation import RewardEstimate, by_length, measure, questions
from memagent_train.runs.faults import translate_faults
from memagent_train.runs.folder import RunFolder
from memagent_train.runs.rehearsal import rehearse
from memagent_train.runs.rolling import Rolling
from memagent_train.runs.rollout_log import write_rollouts
from memagent_train.runs.signals import stop_on_signals
from memagent_train.runs.target import Target

logger = logging.getLogger("memagent.train")

PARQUET = ".parquet"
SEEDED = ("game", "ruler", "tracking")
"""Kinds of sources whose samples are all new with another `data.seed`."""


@dataclass(frozen=True)
class Cell:
    """One task at one length."""

    task: str
    length: int
    """Length in tokens; 0 for samples at their natural length."""
    estimate: RewardEstimate


def evaluate(
    target: Target,
    config: TrainConfig,
    *,
    lengths: Sequence[int],
    n: int,
    train: bool = False,
    out: Path | None = None,
    on_begin: Callable[[int], None] = lambda _: None,
    on_done: Callable[[Rollout], None] = lambda _: None,
) -> list[Cell]:
    """Answers samples at each length; logs a warning if the policy's run may have been trained on held-out ones.

    Args:
        target: the policy.
        config: data, agent, reward, and the sampling of evaluations.
        lengths: in tokens; 0 for samples at their natural length.
        n: samples per length: those that a training with this `evaluation.n` holds out, except from sources that don't
            have the length.
        train: answer up to n training samples instead (those that `evaluation.n` leaves), to imitate the right answers:
            once imitated, held-out samples could no longer be evaluated on.
        out: JSON lines, one per sample; or, if it ends in `.parquet`, all conversations as in `rollouts/`, which
            `[[traces.source]]` can imitate. An existing file is replaced.
        on_begin: called with the number of samples, of all lengths.
        on_done: called with each finished sample.

    Raises:
        ConfigError: a setting is wrong, or the data isn't available at a length.
        DiskFull: `out` can't be written.
        RolloutsFailed: no rollout finished; `out` says why.
        RewardFailed: some finished, but none has a reward.
    """
    config = config.model_copy(
        update={"rollout": _in_process(config.rollout), "model": target.model}
    )
    settings, step = config.evaluation, target.checkpoint.step if target.checkpoint else 0
    where = Path.cwd() if out is None else out
    with stop_on_signals(), translate_faults(where), closing(Rolling(config, None)) as rolling:
        model, tokenizer = target.load()
        if config.resources.device == "auto" and torch.cuda.is_available():
            torch.nn.Module.to(model, "cuda")
        data = open_data(config.data, counter=text_counter(tokenizer))
        rehearse(config, tokenizer, data)
        trained, held_out = data.split(settings.n if train else n)
        if not train:
            _warn_of_seen(target, held_out.facts, n)
        rolling.attach(model, tokenizer)
        policy = rolling.policy(Sampling(temperature=settings.temperature, top_p=settings.top_p))
        rollouts: dict[int, list[Rollout]] = {}
        chosen = by_length(trained if train else held_out, lengths)
        places = {length: range(min(n, len(samples))) for length, samples in chosen.items()}
        on_begin(sum(map(len, places.values())))
        for length, samples in chosen.items():
            seed = config.optimizer.seed
            requests = questions(samples, places[length], length=length, step=step, seed=seed)
            rollouts[length] = rolling.roll(requests, policy, kept=False, on_done=on_done)
        answered = [rollout for of_length in rollouts.values() for rollout in of_length]
        if out is not None:
            with replacing(out) as new:
                if out.suffix == PARQUET:
                    write_rollouts(new, step, answered, advantages={}, decode=tokenizer.decode)
                else:
                    _write(new, target, rollouts)
        raise_if_nothing_scored([facts_of(attempt) for attempt in answered], "evaluation")
    return cells(rollouts)


def cells(found: dict[int, list[Rollout]]) -> list[Cell]:
    """Returns means by task and length, and over all tasks if there are several."""
    results: list[Cell] = []
    for length, rollouts in found.items():
        ended = list(map(facts_of, rollouts))
        by_task: defaultdict[str, list[RolloutFacts]] = defaultdict(list)
        for facts in ended:
            by_task[facts.task].append(facts)
        results += [Cell(task, length, measure(group)) for task, group in by_task.items()]
        if len(by_task) > 1:
            results.append(Cell("all", length, measure(ended)))
    return results


def _warn_of_seen(target: Target, facts: Mapping[str, Any], n: int) -> None:
    """Warns if the run may have been trained on these samples: it held out only as many as it evaluated on."""
    folder = Path(target.name).absolute().parent
    if folder.name != "checkpoints" or not (trained := RunFolder(folder.parent).read_facts()):
        return
    held_out = int(trained.get("part", "all but 0").removeprefix("all but "))
    why = f"the run held out {held_out} samples" if n > held_out else ""
    if n < held_out and len(facts["sources"]) > 1:  # rounding then divides them differently
        why = f"the run held out {held_out} samples of several sources"
    if any(facts[name] != trained.get(name) for name in ("sources", "seed")):
        same_seed = facts["seed"] == trained.get("seed")
        kinds = {source["kind"] for source in trained.get("sources", ()) if same_seed}
        new = all(
            entry["kind"] in SEEDED and entry["kind"] not in kinds for entry in facts["sources"]
        )
        why = (
            "" if new else "this isn't the data that the run was trained with, or not its data.seed"
        )
    if why:
        new = f"another data.seed gives new ones of {', '.join(SEEDED)}"
        logger.warning("%s, so it may have been trained on some of these %d (%s)", why, n, new)


def _in_process(settings: RolloutSettings) -> RolloutSettings:
    """Replaces engines that have their own weights, which are not those loaded here, by `padded`."""
    if settings.engine not in OWN_WEIGHTS:
        return settings
    return settings.model_copy(update={"engine": "padded", "base_url": None, "engine_settings": {}})


def _write(out: Path, target: Target, results: dict[int, list[Rollout]]) -> None:
    with out.open("w", encoding="utf-8") as opened:
        for length, rollouts in results.items():
            for rollout in rollouts:
                opened.write(json.dumps(_line(target, length, rollout), ensure_ascii=False) + "\n")


def _line(target: Target, length: int, rollout: Rollout) -> dict[str, Any]:
    sample = rollout.sample
    return {
        "policy": target.name,
        "step": target.checkpoint.step if target.checkpoint else None,
        "length": length,
        "task": sample.task,
        "index": sample.index,
        "question": sample.question,
        "outputs": list(sample.outputs),
        "answer": rollout.answer,
        "reward": rollout.reward,
        "scores": dict(rollout.scores),
        "status": str(rollout.status),
        "error": rollout.error,
        "conversations": len(rollout.rows),
        "sampled": sum(row.sampled for row in rollout.rows),
        "seconds": rollout.seconds,
    }
