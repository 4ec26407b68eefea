"""One process, or several that a launcher numbered."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.train.launch import run_two

from memagent.errors import ConfigError
from memagent_train.config.sections import ResourceSettings
from memagent_train.runs.processes import Process, open_shared, this_process


def test_alone_it_is_the_first() -> None:
    assert this_process(ResourceSettings()) == Process(0, 1)
    assert Process().first


def test_a_launcher_numbers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    process = this_process(ResourceSettings(processes=2))
    assert process == Process(1, 2)
    assert not process.first


def test_other_processes_than_were_set_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"resources\.processes = 2, but 1 .*--num_processes 2"):
        this_process(ResourceSettings(processes=2))


def test_the_first_opens_the_folder(tmp_path: Path) -> None:
    with open_shared(tmp_path / "run", {"a": 1}, (), Process(), ResourceSettings()) as folder:
        assert folder.settings.exists()


GROUP = """
import sys
from pathlib import Path
import torch
from memagent_train.config.sections import ResourceSettings
from memagent_train.runs.processes import open_shared, this_process

resources = ResourceSettings(processes=2, device="cpu", ddp_timeout=77)
with open_shared(Path(sys.argv[1]), {"a": 1}, (), this_process(resources), resources):
    from memagent_train.algorithm import AlgorithmSettings, BatchSettings, OptimizerSettings
    from memagent_train.arguments import trl_arguments

    trl_arguments(Path(sys.argv[1]), AlgorithmSettings(), BatchSettings(), OptimizerSettings(), cpu=True)
    group = torch.distributed.group.WORLD._get_backend(torch.device("cpu"))
    assert group.options._timeout.total_seconds() == 77, group.options._timeout
"""


def test_processes_wait_for_each_other_as_long_as_was_set(tmp_path: Path) -> None:
    script = tmp_path / "group.py"
    script.write_text(GROUP)
    run_two(script, tmp_path / "run")
