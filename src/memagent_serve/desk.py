"""Objects that all routes share."""

from dataclasses import dataclass
from typing import Any

from memagent_serve.engine import Engine
from memagent_serve.overflow import Overflow
from memagent_serve.refusals import Refusal
from memagent_serve.settings import Settings


@dataclass(frozen=True)
class Desk:
    """The model, and what handles requests that exceed its window."""

    settings: Settings
    engine: Engine
    overflow: Overflow

    def check_name(self, fields: dict[str, Any]) -> None:
        """Raises a `Refusal` if a request names another model, which only the engine may know."""
        if (name := fields.get("model")) not in (None, self.engine.name):
            raise Refusal(
                404,
                f"the model {name!r:.80} is not the one that reads here: name {self.engine.name!r}",
                code="model_not_found",
                param="model",
            )
