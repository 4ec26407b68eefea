"""Where metrics are sent in addition to the run's folder."""

from __future__ import annotations

import os
from importlib.util import find_spec

from memagent.errors import ConfigError
from memagent_train.config.sections import LoggingSettings


def report_targets(settings: LoggingSettings) -> tuple[str, ...]:
    """Names of the requested transformers integrations.

    Raises:
        ConfigError: a package is not installed.
    """
    wanted = [name for name in ("trackio", "wandb") if getattr(settings, name)]
    for name in wanted:
        if find_spec(name) is None:
            raise ConfigError(
                f"logging.{name} = true, but the package {name} is not installed: pip install {name}, or set it to "
                f"false (metrics.jsonl in the run's folder has the same figures)"
            )
    if "wandb" in wanted:
        os.environ.setdefault("WANDB_PROJECT", settings.project)
    return tuple(wanted)
