from pathlib import Path

import pytest

from memagent import open_model
from memagent.errors import ConfigError
from memagent.models import spec
from memagent.models.policy import policy_of


def test_a_build_without_weights_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "FOLDER", tmp_path)
    with pytest.raises(ConfigError, match=r"not in this build.*model\.safetensors"):
        open_model("nano")


def test_it_is_the_policy_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "FOLDER", tmp_path)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).touch()
    (tmp_path / "memagent.toml").write_text("window = 700")
    model = open_model("nano")
    assert model.name == "nano"
    assert policy_of(model).window == 700
