import asyncio
from pathlib import Path

import pytest

from memagent import MemoryAgent
from memagent.messages import ChatRequest, Message
from memagent.tasks import SCORERS
from memagent_train.smoke.expert import Expert
from memagent_train.smoke.folder import read, reader
from memagent_train.smoke.task import Relay

SAMPLES = 60


def reward(agent: MemoryAgent) -> float:
    task = Relay(seed=5)
    samples = [task.sample(index) for index in range(SAMPLES)]
    with agent:
        results = asyncio.run(read(agent, samples))
    scores = [
        SCORERS[task.scorer](result.answer or "", sample.outputs)
        for result, sample in zip(results, samples, strict=True)
    ]
    return sum(scores) / SAMPLES


def test_one_who_forgets_nothing_is_always_right(laid_out: Path) -> None:
    assert reward(reader(laid_out, Expert())) == 1.0


def test_one_who_forgets_one_time_in_five_is_right_in_a_third(laid_out: Path) -> None:
    right = reward(reader(laid_out, Expert(forgets=0.2, seed=1)))
    assert 0.8**5 - 0.2 < right < 0.8**5 + 0.2


class Forgetful(Expert):
    """Reads well, and never looks at its memory."""

    def __call__(self, request: ChatRequest) -> str:
        return super().__call__(
            request.model_copy(update={"parts": {**request.parts, "memory": ""}})
        )


def test_without_a_memory_nobody_is_right(laid_out: Path) -> None:
    assert reward(reader(laid_out, Forgetful())) == 0.0


@pytest.mark.parametrize(
    ("parts", "reply"),
    [
        ({"memory": "", "chunk": "the sun was red low"}, "red"),
        ({"memory": "", "chunk": "the sun was low"}, "none"),
        ({"memory": "red", "chunk": "the cat was low"}, "red"),
    ],
)
def test_an_update(parts: dict[str, str], reply: str) -> None:
    request = ChatRequest(
        messages=(Message(role="user", content="ask"),),
        max_tokens=4,
        kind="update",
        parts={"question": "colour", **parts},
    )
    assert Expert()(request) == reply
    assert Expert(forgets=1.0)(request) == "none"
