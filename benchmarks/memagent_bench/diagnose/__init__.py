"""Why answers were wrong: what the memories of a benchmark's runs contained, and where they lost it."""

from memagent_bench.diagnose.diagnosis import Diagnosis, Hazard, diagnose, hazard, hazard_per_note
from memagent_bench.diagnose.fatal import Fatal, fatal
from memagent_bench.diagnose.show import show, to_json
from memagent_bench.diagnose.traces import Fate, Trace

__all__ = [
    "Diagnosis",
    "Fatal",
    "Fate",
    "Hazard",
    "Trace",
    "diagnose",
    "fatal",
    "hazard",
    "hazard_per_note",
    "show",
    "to_json",
]
