"""What a policy wants is what a benchmark measures it with."""

from pathlib import Path
from typing import Any

import pytest

from memagent.messages import Sampling
from memagent.prompts import PromptSet
from memagent_bench.cli.measure import benchmark_of
from memagent_bench.cli.options import Measure


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").touch()
    (tmp_path / "prompts.toml").write_text(PromptSet.load("boxed").source)
    (tmp_path / "memagent.toml").write_text(
        "prompts = 'prompts.toml'\nwindow = 900\nmemory_tokens = 70\ncuts = 'sentence'\n"
        "[sampling]\ntemperature = 0\ntop_p = 0.5\n"
    )
    return tmp_path


def measured(model: str, out: Path, **given: Any) -> Any:
    return benchmark_of("ruler", Measure(model=model, out=out, lengths="4k", **given))


def test_a_policys_settings_are_the_defaults(folder: Path) -> None:
    bench = measured(f"transformers:{folder}", folder / "out")
    settings = bench.settings
    assert (settings.window, settings.memory_tokens, settings.cuts) == (900, 70, "sentence")
    assert settings.sampling == Sampling(temperature=0, top_p=0.5)
    assert bench.prompts.hash == PromptSet.load("boxed").hash


def test_options_win(folder: Path) -> None:
    given: dict[str, Any] = {"window": 800, "temperature": 0.2, "prompts": "plain", "cuts": "exact"}
    bench = measured(f"transformers:{folder}", folder / "out", **given)
    assert (bench.settings.window, bench.settings.memory_tokens) == (800, 70)
    assert (bench.settings.cuts, bench.prompts.name) == ("exact", "plain")
    assert bench.settings.sampling == Sampling(temperature=0.2, top_p=0.5)


def test_other_models_are_measured_as_before(tmp_path: Path) -> None:
    bench = measured("extractive", tmp_path / "out")
    assert (bench.settings.cuts, bench.prompts.name) == ("exact", "plain")
    assert bench.settings.sampling == Sampling()
