"""Who shows the policy how it is done: a program that reads as a memory agent should, and forgets at times."""

from __future__ import annotations

import random

from memagent.messages import ChatRequest
from memagent_train.smoke.tokenizer import KINDS, NOTHING


class Expert:
    """Replies to a memory agent's calls in the relay; `ScriptedModel` makes a model of it.

    It notes the value that the question asks for, and carries it. What it forgets, it has lost for good. A policy that
    imitates it forgets as often, and has all that it takes to find out that it should not: so there is something left
    to learn from rewards, and a start to learn it from.

    Args:
        forgets: chance that an update loses a value, 0 to 1.
        seed: of when that is.
    """

    def __init__(self, *, forgets: float = 0.0, seed: int = 0) -> None:
        self._forgets, self._seed = forgets, seed

    def __call__(self, request: ChatRequest) -> str:
        """The reply: the value, or `none`."""
        memory = request.parts["memory"] or NOTHING
        if request.kind == "answer":
            return memory
        values = KINDS[request.parts["question"]]
        said = [word for word in request.parts["chunk"].split() if word in values]
        # By what is read, not by what came before: calls come in any order.
        if random.Random(f"{self._seed}:{request.parts['chunk']}").random() < self._forgets:
            return NOTHING
        return said[0] if said else memory
