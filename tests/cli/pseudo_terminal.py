"""A command on a pseudo-terminal of its own, as people run it."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

SECONDS = 60


def converse(
    command: Sequence[str | Path], cwd: Path, *, until: str = "", typed: bytes = b""
) -> tuple[int, str]:
    """Runs a command to its end; types once the screen shows a text. Exit code, and all that was drawn."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
    # A terminal that the first process of a session opens sends that session Ctrl-C.
    shell = ["sh", "-c", 'exec <"$0" >"$0" 2>&1 "$@"', os.ttyname(theirs)]
    process = subprocess.Popen(
        [*shell, *map(str, command)],
        cwd=cwd,
        env=os.environ | {"TERM": "xterm"},
        start_new_session=True,
    )
    seen, deadline = b"", time.monotonic() + SECONDS
    # Our copy of their side stays open, so that reading never fails.
    while select.select([ours], [], [], 0.05)[0] or process.poll() is None:
        assert time.monotonic() < deadline, f"it did not end: {seen!r}"
        if not select.select([ours], [], [], 0)[0]:
            continue
        seen += os.read(ours, 65536)
        if typed and until in texts(seen.decode(errors="replace")):
            sleeps(process.pid, deadline)
            os.write(ours, typed)
            typed = b""
    os.close(ours)
    os.close(theirs)
    return process.wait(), seen.decode()


def sleeps(pid: int, deadline: float) -> None:
    """Waits until a process waits. A Ctrl-C between its prompt and its read would only count after the read."""
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        assert time.monotonic() < deadline, f"process {pid} shows its prompt and goes on working"
        time.sleep(0.01)


def texts(screen: str) -> str:
    """What was drawn, without the sequences that move the cursor and set styles."""
    return re.sub(r"\x1b\[[?\d;]*[A-Za-z]", "", screen)
