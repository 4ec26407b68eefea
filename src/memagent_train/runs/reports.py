"""Where metrics are sent in addition to the run's folder."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec

from memagent.errors import ConfigError
from memagent_train.config.sections import ReportSettings

PROJECT = "WANDB_PROJECT"


@contextmanager
def report_targets(settings: ReportSettings) -> Generator[tuple[str, ...]]:
    """Yields the names of the requested transformers integrations, which know the project's name in the block.

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
    sets = "wandb" in wanted and PROJECT not in os.environ
    if sets:
        os.environ[PROJECT] = settings.project
    try:
        yield tuple(wanted)
    finally:
        if sets:  # the next training in this process may have another project
            os.environ.pop(PROJECT, None)
