"""A run that is interrupted goes on where it was. What was committed is not sent again.

    python examples/04_resume.py

Here a limit of two calls interrupts it. A kill or a dead server would do as well. The model is
`MEMAGENT_MODEL`, else the stand-in `extractive`.
"""

import os
import tempfile
from pathlib import Path

from memagent import Limits, MemoryAgent, Recorder, Result, open_model

BOOK = Path(__file__).with_name("epilogue.txt")
QUESTION = "When did Natasha marry?"


def session(store: Path, limits: Limits | None = None) -> tuple[Result, int]:
    """One process's part of the run: what became of it, and how many calls were sent."""
    # The recorder is only here to count: it sees each call that leaves.
    recorder = Recorder(open_model(os.environ.get("MEMAGENT_MODEL", "extractive")))
    with MemoryAgent(recorder, gate="update", store=store, limits=limits) as agent:
        # An unfinished run of that name is taken up again. `memagent resume natasha` does the same.
        result = agent.ask(BOOK, QUESTION, run_id="natasha")
    return result, len(recorder.conversations)


with tempfile.TemporaryDirectory() as folder:  # a run of your own stays: leave `store` out
    store = Path(folder) / "runs.sqlite"
    result, first = session(store, Limits(calls=2))
    print(f"{result.stop_reason}: {result.detail}")
    result, second = session(store)
    print(f"{result.stop_reason}: {result.answer}")
    print(f"sent: {first} calls, then {second}; the run has {result.usage.calls} in all")
