"""Switches off what TRL's trainers do besides training."""

from typing import Any


class Quiet:
    """A mixin that goes before the TRL trainer among the bases of a class."""

    def _send_telemetry(self) -> None:
        """Sends nothing."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Writes nothing: TRL's model card of a checkpoint knows neither the model's name nor its use."""
