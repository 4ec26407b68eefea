"""What trainers of TRL do besides training, switched off."""

from typing import Any


class Quiet:
    """Put before a trainer of TRL among the bases of a class."""

    def _send_telemetry(self) -> None:
        """Nothing is sent."""

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Nothing is written: TRL's card of a checkpoint knows neither the model's name nor how it is used."""
