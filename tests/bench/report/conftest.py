"""Small pictures: what is on them does not depend on their size."""

from __future__ import annotations

import pytest

from memagent_bench.report import canvas


@pytest.fixture(autouse=True)
def small_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas, "DPI", 40)
