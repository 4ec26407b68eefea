"""Runs in a process of the reward pool. Imports the user's function, and nothing heavy itself."""

import base64
import pickle

from memagent.tasks import Sample
from memagent_train.rewards.functions import RewardFunction, describe, load_reward
from memagent_train.rewards.verdict import Verdict, read_verdict

_loaded: dict[str, RewardFunction] = {}
"""Functions loaded in this process, by name."""


def pack(answer: str | None, sample: Sample) -> str:
    """Packs an answer and its sample, of any class, as text."""
    return base64.b64encode(pickle.dumps((answer, sample))).decode()


def begin(spec: str) -> None:
    """Prepares a new process. Importing the function doesn't count towards its time limit.

    Raises:
        ConfigError: there is no such function.
    """
    _loaded[spec] = load_reward(spec)


def judge(spec: str, judged: str) -> Verdict:
    """Calls the function for a `pack`ed answer and sample. Anything it raises becomes a verdict."""
    answer, sample = pickle.loads(base64.b64decode(judged))
    try:
        return read_verdict(_loaded[spec](answer, sample))
    except BaseException as error:  # noqa: BLE001 - `sys.exit` too
        return Verdict(None, error=f"the reward function raised {describe(error)}")
