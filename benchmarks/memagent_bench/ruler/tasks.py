"""The 13 tasks of RULER by name, in the published order."""

from __future__ import annotations

from functools import partial

from memagent_bench.options import MakeTask
from memagent_bench.ruler.cwe import CweTask
from memagent_bench.ruler.fwe import FweTask
from memagent_bench.ruler.niah import NIAH, NiahTask
from memagent_bench.ruler.qa import qa_1, qa_2
from memagent_bench.ruler.vt import VtTask

TASKS: dict[str, MakeTask] = {
    **{name: partial(NiahTask, name) for name in NIAH},
    "vt": VtTask,
    "cwe": CweTask,
    "fwe": FweTask,
    "qa_1": qa_1,
    "qa_2": qa_2,
}
"""Factories of all tasks; RULER's score is the unweighted mean over them."""
