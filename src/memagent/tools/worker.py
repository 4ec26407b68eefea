"""The program run in a process of `memagent.tools.processes`: one call per line, one reply per line."""

import json
import os
import queue
import select
import signal
import sys
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import IO, Any

from memagent.errors import ToolError
from memagent.texts import message, name_error
from memagent.tools.base import ToolContext
from memagent.tools.function import as_text
from memagent.tools.processes import find
from memagent.tools.signature import Signature


def main() -> None:
    """Serves calls until the other side closes."""
    # The pipes are only for calls: a function's prints go to the error output, and it can't read.
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    process, pipes = os.getpid(), [requests.fileno(), replies.fileno()]
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _close(pipes))
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines), daemon=True).start()
    while True:
        request = json.loads(lines.get())
        with _end_with(requests.fileno()):
            reply = serve(request)
            if os.getpid() != process:  # a child that the function forked: its parent replies
                os._exit(reply.get("error", "SystemExit") not in ("SystemExit", "SystemExit: 0"))
        try:
            replies.write(json.dumps({**reply, "id": request["id"]}).encode() + b"\n")
            replies.flush()
        except BrokenPipeError:
            os._exit(0)


def _close(pipes: list[int]) -> None:
    """Closes the pipes in a forked process, once: it may outlive ours, and whoever waits for our reply must see us end.

    Its own children inherit the empty list, since by then the numbers may be those of its own files.
    """
    while pipes:
        os.close(pipes.pop())


@contextmanager
def _end_with(pipe: int) -> Generator[None]:
    """Makes the system end this process when the pipe's other end is closed, if possible.

    A function that holds the interpreter lock (a regular expression, say) keeps our threads from noticing. On Linux a
    pipe signals events to its owner, and SIGIO ends a process that doesn't handle it. During a call nothing is
    written to the pipe, so only its closing can be signalled.
    """
    if sys.platform != "linux":
        yield
        return
    import fcntl

    flags = fcntl.fcntl(pipe, fcntl.F_GETFL)
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        poll = select.poll()
        poll.register(pipe, 0)
        if poll.poll(0):  # it was closed before
            os._exit(0)
        yield
    finally:
        fcntl.fcntl(pipe, fcntl.F_SETFL, flags)


def _read(requests: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    """Passes calls on; ends the process, even while a function runs, once nobody is listening."""
    for line in requests:
        lines.put(line)
    os._exit(0)


def serve(request: Mapping[str, Any]) -> dict[str, str]:
    """Makes one call.

    Args:
        request: `path` (where to look for modules), `place` (`module:name`), `arguments`, and maybe `context`.

    Returns:
        `text`, or `error` with the message for the model.
    """
    try:
        sys.path[:] = request["path"]
        function = find(request["place"])
        context = ToolContext(**fields) if (fields := request.get("context")) else None
        return {"text": as_text(_signature(function).bind(request["arguments"], context)())}
    except ToolError as error:
        return {"error": message(error)}
    except BaseException as error:  # noqa: BLE001 - whatever a function raises is its outcome; SystemExit too
        return {"error": name_error(error)}


_signature = cache(Signature.of)
"""Cached, since making one takes longer than many functions."""
