"""`nano`: the policy that comes with the package."""

from __future__ import annotations

from pathlib import Path

from memagent.errors import ConfigError
from memagent.models.transformers.model import TransformersModel

FOLDER = Path(__file__).parents[1] / "nano"
"""An export of `memagent-train`: weights, tokenizer, wording, and how it wants to read."""
WEIGHTS = "model.safetensors"


def open_nano(window: int | None = None) -> TransformersModel:
    """The package's own policy; `window` is the most tokens of prompt plus output, by default its own.

    Raises:
        ConfigError: this build came without the weights.
    """
    if not (FOLDER / WEIGHTS).is_file():
        raise ConfigError(
            f"the weights of 'nano' are not in this build of memagent (no {WEIGHTS!r} in {str(FOLDER)!r}): install a "
            f"release that has them, or name another model, such as 'transformers:FOLDER'"
        )
    return TransformersModel(FOLDER, window=window, name="nano")
