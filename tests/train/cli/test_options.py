"""Options that are shared by commands are the same in each."""

from __future__ import annotations

from typing import get_type_hints

from memagent_train.cli.evaluate import evaluate
from memagent_train.cli.export import export
from memagent_train.cli.grpo import config, grpo
from memagent_train.cli.sft import sft


def test_commands_share_their_options() -> None:
    hints = [get_type_hints(one, include_extras=True) for one in (grpo, sft, config, evaluate)]
    assert all(one["settings"] == hints[0]["settings"] for one in hints)
    assert get_type_hints(grpo, include_extras=True)["out"] == hints[1]["out"]
    evaluated = get_type_hints(evaluate, include_extras=True)["checkpoint"]
    assert get_type_hints(export, include_extras=True)["checkpoint"] == evaluated
