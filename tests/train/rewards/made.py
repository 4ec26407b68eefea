"""Samples and rollouts for tests of rewards."""

from typing import Any

from memagent_train.data.samples import TrainingSample
from memagent_train.rollouts import Rollout, Row, Status


def sample(*outputs: str, **fields: Any) -> TrainingSample:
    given: dict[str, Any] = {
        "task": "toy",
        "index": 0,
        "length": 100,
        "tokens": 90,
        "context": "The mill has 12 wheels and 3 doors.",
        "question": "How many wheels?",
        "outputs": outputs or ("12",),
        "generate": 16,
    }
    return TrainingSample(**(given | fields))


def row(**fields: Any) -> Row:
    given: dict[str, Any] = {
        "prompt_ids": (1, 2),
        "response_ids": (3,),
        "loss_mask": (1,),
        "logprobs": (-0.5,),
    }
    return Row(**(given | fields))


def rollout(answer: str | None = "12", **fields: Any) -> Rollout:
    given: dict[str, Any] = {
        "group_id": "g",
        "rollout_id": "g-0",
        "sample": sample(),
        "rows": (row(),),
        "answer": answer,
        "status": Status.UNSCORED,
        "seconds": 2.0,
    }
    return Rollout(**(given | fields))
