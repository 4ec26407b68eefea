"""All stages, with a few steps each: what they learn is the smoke training's own matter."""

import re
from pathlib import Path

import pytest

from memagent.runstore import RunStore
from memagent_train.config.toml import read_toml
from memagent_train.smoke.folder import GRPO, SFT, lay_out
from memagent_train.smoke.stages import learn

SHORTER = {
    SFT: {"rows = 128": "rows = 16", "steps = 200": "steps = 4", "every = 200": "every = 4"},
    GRPO: {
        "groups = 16": "groups = 2",
        "group_size = 8": "group_size = 2",
        "steps = 20": "steps = 2",
        "every = 10": "every = 2",
        "runs = 10": "runs = 1",
        "n = 256": "n = 8",
        "count = 4000": "count = 40",
    },
}


@pytest.fixture
def shorter(tmp_path: Path) -> Path:
    folder = tmp_path / "new"
    lay_out(folder, seed=3, documents=5)
    for name, changes in SHORTER.items():
        text = (folder / name).read_text(encoding="utf-8")
        for old, new in changes.items():
            assert len(re.findall(rf"^{re.escape(old)}$", text, re.MULTILINE)) == 1, old
            text = re.sub(rf"^{re.escape(old)}$", new, text, flags=re.MULTILINE)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_policy_and_control_are_trained_from_the_same_start(shorter: Path) -> None:
    said: list[str] = []
    findings = learn(shorter, seed=3, say=said.append)
    for reward in (findings.before, findings.after, findings.control, findings.longer_after):
        assert 0 <= reward.low <= reward.mean <= reward.high <= 1
        assert reward.high - reward.low > 0.2  # eight samples say little
    assert [line for line in said if line.startswith("==")] == [
        "== warm start: the policy imitates the expert",
        "== GRPO: it learns from rewards",
        "== control: the same GRPO with random rewards",
        "== the control answers the held-out questions",
    ]

    trained, control = (read_toml(shorter / run / "config.toml") for run in ("grpo", "control"))
    assert (
        trained["model"] == control["model"] == {**trained["model"], "path": str(shorter / "warm")}
    )
    assert control["reward"]["use"] == "memagent_train.smoke.control:toss"
    differing = {name for name in trained if trained[name] != control.get(name)}
    assert differing == {"reward", "evaluation"}
    assert trained["optimizer"]["seed"] == trained["data"]["seed"] == 3

    store = RunStore(shorter / "grpo" / "runs.sqlite")
    runs = store.runs()
    store.close()
    assert {run.status for run in runs} == {"finished"}
    assert len([run for run in runs if run.id.startswith("step-00001-")]) >= 4
