"""Package data of the wheel: a policy in half precision, its wording, its reading settings, and a card."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from memagent.models.policy import FILE, Policy
from memagent_nano.lessons import GREEDY, PROMPTS
from memagent_nano.sizes import Size
from memagent_nano.stages import GATED, HERE, Place
from memagent_train.runs.export import export

CARD = HERE / "card.md"
README, GENERATION = "README.md", "generation_config.json"


def ship(place: Place, stage: str, out: Path) -> None:
    """Writes the policy of a stage as package data. Blocks.

    Args:
        place: place of the course.
        stage: stage that left the policy.
        out: a folder that is new or empty.

    Raises:
        ConfigError: the stage is not done, or `out` isn't empty.
        DiskFull: the data cannot be written.
    """
    place.find_trained(stage)
    export(place.run(stage), out, dtype="bfloat16")
    shutil.copyfile(PROMPTS, out / PROMPTS.name)
    shutil.copyfile(CARD, out / README)
    (out / FILE).write_text(_reading(place.size, stage), encoding="utf-8")
    Policy.load(out)
    settings = json.loads((out / GENERATION).read_text(encoding="utf-8"))
    greedy = {
        name: value for name, value in settings.items() if name not in ("temperature", "top_p")
    }
    text = json.dumps({**greedy, "do_sample": False}, indent=2)
    (out / GENERATION).write_text(f"{text}\n", encoding="utf-8")


def _reading(size: Size, stage: str) -> str:
    """Returns how it was trained and measured."""
    return f"""\
# memagent's default settings for reading with this policy.
prompts = "{PROMPTS.name}"
window = {size.window}
chunk_tokens = {size.chunk_tokens}
memory_tokens = {size.memory_tokens}
cuts = "sentence"
gate = "{"update" if stage == GATED else "off"}"

[sampling]
temperature = {GREEDY.temperature}
"""
