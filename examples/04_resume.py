"""An interrupted run resumes where it stopped. Committed calls are not sent again.

    python examples/04_resume.py

Here a limit of two calls interrupts it; a kill or a dead server has the same effect. The model is
`MEMAGENT_MODEL`, else the stand-in `extractive`.
"""

import os
import tempfile
from pathlib import Path

from memagent import Limits, MemoryAgent, Recorder, Result, open_model

BOOK = Path(__file__).with_name("epilogue.txt")
QUESTION = "When did Natasha marry?"


def session(store: Path, limits: Limits | None = None) -> tuple[Result, int]:
    """Runs one process's part of the run; returns its result, and how many calls were sent."""
    # The recorder only counts: it sees each call that is sent.
    recorder = Recorder(open_model(os.environ.get("MEMAGENT_MODEL", "extractive")))
    with MemoryAgent(recorder, gate="update", store=store, limits=limits) as agent:
        # Resumes an unfinished run of that name, as `memagent resume natasha` does.
        result = agent.ask(BOOK, QUESTION, run_id="natasha")
    return result, len(recorder.conversations)


with tempfile.TemporaryDirectory() as folder:  # to keep your own run, leave out `store`
    store = Path(folder) / "runs.sqlite"
    result, first = session(store, Limits(calls=2))
    print(f"{result.stop_reason}: {result.detail}")
    result, second = session(store)
    print(f"{result.stop_reason}: {result.answer}")
    print(f"sent: {first} calls, then {second}; the run has {result.usage.calls} in all")
