"""The processes that train together: a single one, or as many as `accelerate launch` started."""

import atexit
import gc
import os
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from memagent.errors import ConfigError
from memagent_train.config.sections import ProcessSettings
from memagent_train.runs.folder import RunFolder, open_run


@dataclass(frozen=True)
class Process:
    """One of the processes."""

    index: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes for all."""
        return self.index == 0


def this_process(settings: ProcessSettings) -> Process:
    """Returns this process, as numbered by its launcher.

    Raises:
        ConfigError: the number of processes differs from the settings.
    """
    process = Process(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
    if process.count != settings.processes:
        raise ConfigError(
            f"resources.processes = {settings.processes!r}, but {process.count} were started: start as many with "
            f"`accelerate launch --num_processes {settings.processes} -m memagent_train ...`, or set it to "
            f"{process.count}"
        )
    return process


@contextmanager
def open_shared(
    path: Path,
    settings: Mapping[str, Any],
    free: Collection[str],
    process: Process,
    resources: ProcessSettings,
    kind: type[BaseModel] | None = None,
) -> Generator[RunFolder]:
    """Yields the folder of a run: the first process opens it (see `open_run`), the others wait until it is ready."""
    if process.count > 1:
        from accelerate import PartialState

        # Opens the process group, whose timeout can't be changed later, not even by the trainer's `ddp_timeout`.
        PartialState(
            cpu=resources.device == "cpu", timeout=timedelta(seconds=resources.ddp_timeout)
        )
    if process.first:
        with open_run(path, settings, free=free, kind=kind) as folder:
            _wait_for_all(process)
            yield folder
    else:
        _wait_for_all(process)
        yield RunFolder(path)
    _wait_for_all(process)
    if process.count > 1:
        atexit.register(leave_group)


def leave_group() -> None:
    """Closes the process group and ends its threads, which could abort the process when the interpreter exits."""
    import torch.distributed
    from torch.distributed.device_mesh import DeviceMesh

    if torch.distributed.is_initialized():
        # With sharded weights (FSDP2), caches keep meshes forever, and these keep their group.
        for mesh in [obj for obj in gc.get_objects() if type(obj) is DeviceMesh]:
            getattr(mesh, "_pg_registry", {}).clear()
        gc.collect()
        torch.distributed.destroy_process_group()


def _wait_for_all(process: Process) -> None:
    if process.count > 1:
        from accelerate import PartialState

        PartialState().wait_for_everyone()
