"""One process, or several that a launcher numbered."""

from __future__ import annotations

from pathlib import Path

import pytest

from memagent.errors import ConfigError
from memagent_train.config.sections import ResourceSettings
from memagent_train.runs.processes import Process, opened, this_process


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
    with pytest.raises(ConfigError, match=r"resources\.processes = 2, and 1 were started"):
        this_process(ResourceSettings(processes=2))


def test_the_first_opens_the_folder(tmp_path: Path) -> None:
    with opened(tmp_path / "run", {"a": 1}, (), Process()) as folder:
        assert folder.settings.exists()
