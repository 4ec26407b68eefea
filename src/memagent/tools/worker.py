"""What runs in a process of `memagent.tools.processes`: one call a line, one reply a line."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import IO, Any

from memagent.errors import ToolError
from memagent.tools.function import as_text
from memagent.tools.processes import Place
from memagent.tools.signature import Signature
from memagent.tools.wording import message, named


def main() -> None:
    """Serves calls until the other side is gone."""
    # The pipes are the calls' alone: what a function prints goes to the error output, and it reads nothing.
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, lines), daemon=True).start()
    while True:
        reply = serve(json.loads(lines.get()))
        try:
            replies.write(json.dumps(reply).encode() + b"\n")
            replies.flush()
        except BrokenPipeError:
            os._exit(0)


def _read(requests: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    """Passes calls on; ends the process, also while a function runs, when nobody is there to hear of it."""
    for line in requests:
        lines.put(line)
    os._exit(0)


def serve(request: Mapping[str, Any]) -> dict[str, str]:
    """Makes one call.

    Args:
        request: `path` (where modules are looked for), `module`, `name` and `arguments`.

    Returns:
        `text`, or `error` with what a model is told.
    """
    try:
        sys.path[:] = request["path"]
        function = Place(request["module"], request["name"]).find()
        by_place, by_name = _signature(function).convert(request["arguments"])
        return {"text": as_text(function(*by_place, **by_name))}
    except ToolError as error:
        return {"error": message(error)}
    except BaseException as error:  # noqa: BLE001 - whatever a function raises is its outcome; SystemExit too
        return {"error": named(error)}


@cache
def _signature(function: Callable[..., Any]) -> Signature:
    """Made once: it takes longer than many a function."""
    return Signature.of(function)
