"""Which watcher a display needs."""

from __future__ import annotations

import sys

from memagent.cli.options import Display
from memagent.cli.plain import PlainWatcher
from memagent.cli.progress import Tally
from memagent.cli.session import Watcher
from memagent.events import Event
from memagent.terminal import on_terminal


class SilentWatcher:
    """Counts and says nothing.

    Args:
        tally: counts along.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def __enter__(self) -> SilentWatcher:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to put back."""

    def event(self, event: Event) -> None:
        """Counts the event."""
        self._tally.add(event)


def watcher(display: Display, tally: Tally, *, changes_only: bool = False) -> Watcher:
    """Shows a run as `display` says.

    Where standard output carries data (`json`, `none`), standard error gets a progress bar if it is a terminal.

    Args:
        display: how.
        tally: what the watcher counts with.
        changes_only: plain lines only for chunks that changed the memory.
    """
    if display is Display.PLAIN:
        return PlainWatcher(tally, changes_only=changes_only)
    if display is Display.FULL:
        from memagent.cli.live import LiveWatcher

        return LiveWatcher(tally, sys.stdout)
    if on_terminal(sys.stderr):
        from memagent.cli.live import LiveWatcher

        return LiveWatcher(tally, sys.stderr, memory=False)
    return SilentWatcher(tally)
