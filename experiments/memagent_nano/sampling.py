"""Arm (e), rejection sampling: a policy imitates the right ones of its own rollouts."""

from __future__ import annotations

import json
from contextlib import closing

from memagent_engines.transformers.loading import text_counter
from memagent_nano.stages import HERE, TRACES, Place, grpo_settings
from memagent_train.config.sections import ModelSettings
from memagent_train.config.train import load_train
from memagent_train.data.open import open_data
from memagent_train.rollout.roll import RolloutRequest
from memagent_train.runs.rolling import Rolling
from memagent_train.runs.rollout_log import log_path, write_rollouts
from memagent_train.runs.target import Target

GROUP = 64
"""Documents rolled out before they are written."""


def sample(place: Place, stage: str, first: int, documents: int) -> None:
    """Makes one rollout per training document, and writes them. Resumes if it was stopped. Blocks.

    Args:
        place: place of the course.
        stage: stage whose policy answers.
        first: index of the first document, a multiple of `GROUP`.
        documents: number of documents, rounded down to a multiple of `GROUP`.
    """
    policy = str(place.policy(stage))
    config = load_train(
        HERE / "grpo.toml", [f"model.path={json.dumps(policy)}", *grpo_settings(place)]
    )
    folder = place.of(stage) / TRACES
    with closing(Rolling(config, None)) as rolling:
        model, tokenizer = Target(ModelSettings(path=policy, dtype="float32")).load()
        rolling.attach(model, tokenizer)
        data = open_data(config.data, counter=text_counter(tokenizer))
        drawn = rolling.policy(config.rollout.sampling)
        for step in range(first // GROUP, (first + documents) // GROUP):
            file = log_path(folder, step)
            if file.is_file():
                continue
            requests = [
                RolloutRequest(data.sample(index), f"{index}", f"{index}-0", index)
                for index in range(step * GROUP, (step + 1) * GROUP)
            ]
            rollouts = rolling.roll(requests, drawn, kept=False, on_done=lambda _: None)
            write_rollouts(file, step, rollouts, advantages={}, decode=tokenizer.decode)
