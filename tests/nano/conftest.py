from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from memagent_nano import command, processes, sizes
from memagent_nano.errors import StageFailed
from memagent_nano.sizes import PICO, SIZES, Size
from memagent_nano.tokenizer import new_tokenizer
from memagent_train.cli.app import app as training

TINY = replace(PICO, hidden=32, feed_forward=64, layers=1)
"""Pico's words and windows, and a model that takes no time."""


@pytest.fixture(scope="session")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Size -> folder of its tokenizer. Only to be read."""
    folder = tmp_path_factory.mktemp("tokenizers")
    for name, size in SIZES.items():
        new_tokenizer(size).save_pretrained(folder / name)
    return {name: folder / name for name in SIZES}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Size:
    """Pico with a tiny model."""
    monkeypatch.setitem(sizes.SIZES, "pico", TINY)
    return TINY


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stages run their commands in this process: each process of its own would import torch anew.

    Returns:
        The commands that were run.
    """
    said: list[str] = []
    apps: dict[str, typer.Typer] = {"memagent_train": training, "memagent_nano": command.app}

    def run(log: Path, module: str, *arguments: str) -> None:
        said.append(arguments[0])
        ended = CliRunner().invoke(apps[module], arguments)
        log.write_text(ended.output)
        if ended.exit_code:
            raise StageFailed(ended.output)

    monkeypatch.setattr(processes, "python", run)
    return said
