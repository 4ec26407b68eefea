"""Standard streams that were closed when the process started."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def open_streams() -> None:
    """Makes up for closed standard streams.

    Raises:
        SystemExit: code 1: standard output is closed.
    """
    # Files that are opened later must not get the numbers of closed streams: a stray line would be written to them.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    # None, whatever their types say, where the stream was closed.
    streams: tuple[object, object] = sys.stdout, sys.stderr
    if streams[1] is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    if streams[0] is None:
        print("error: standard output is closed", file=sys.stderr)
        raise SystemExit(1)
