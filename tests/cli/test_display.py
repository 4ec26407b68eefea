import io
import sys

import pytest

from memagent.cli.display import SilentWatcher, watcher
from memagent.cli.live import LiveWatcher
from memagent.cli.options import Display
from memagent.cli.plain import PlainWatcher
from memagent.cli.progress import Tally
from memagent.events import ChunkRead


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_a_terminal_gets_the_full_display(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", terminal)
    assert isinstance(watcher(Display.FULL, Tally()), LiveWatcher)
    assert isinstance(watcher(Display.PLAIN, Tally()), PlainWatcher)


@pytest.mark.parametrize("display", [Display.JSON, Display.NONE])
def test_data_on_standard_output_leaves_standard_error_for_progress(
    display: Display, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(watcher(display, Tally()), SilentWatcher)
    monkeypatch.setattr(sys, "stderr", terminal)
    assert isinstance(watcher(display, Tally()), LiveWatcher)


def test_the_silent_watcher_counts(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally()
    with SilentWatcher(tally) as silent:
        silent.event(ChunkRead(chunk=0, start=0, end=5, tokens=5, last=True))
    assert tally.chunks == 1
    assert capsys.readouterr() == ("", "")
