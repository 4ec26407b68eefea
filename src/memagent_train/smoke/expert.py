"""The expert that the policy imitates: a program that reads as a memory agent should, but sometimes forgets."""

import random

from memagent.messages import ChatRequest
from memagent_train.smoke.tokenizer import KINDS, NOTHING


class Expert:
    """Replies to a memory agent's calls in the relay; `ScriptedModel` turns it into a model.

    It notes the value that the question asks for, and carries it. What it forgets is lost for good. A policy that
    imitates it forgets as often, but can discover that it shouldn't: rewards have something left to
    teach, and a starting point.

    Args:
        forgets: probability that an update loses a value, 0 to 1.
        seed: seed of the forgetting.
    """

    def __init__(self, *, forgets: float = 0.0, seed: int = 0) -> None:
        self._forgets, self._seed = forgets, seed

    def __call__(self, request: ChatRequest) -> str:
        """Returns the reply: the value, or `none`."""
        memory = request.parts["memory"] or NOTHING
        if request.kind == "answer":
            return memory
        values = KINDS[request.parts["question"]]
        words = [word for word in request.parts["chunk"].split() if word in values]
        # Depends on what is read, not on earlier calls, whose order is arbitrary.
        if random.Random(f"{self._seed}:{request.parts['chunk']}").random() < self._forgets:
            return NOTHING
        return words[0] if words else memory
