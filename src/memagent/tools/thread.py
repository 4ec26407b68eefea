"""Work of unknown length in a thread of its own."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from memagent.errors import ToolError
from memagent.tools.wording import named

T = TypeVar("T")


async def in_own_thread(call: Callable[[], T]) -> T:
    """Runs `call` in a thread that is made for it, and awaits it.

    Cancelling does not wait for it: a thread cannot be ended. It goes on unseen, and does not keep the program
    from ending, as one of a pool would.

    Raises:
        Exception: what the call raised. What is no Exception (SystemExit, a cancellation of the call's own) comes
            as a ToolError.
    """
    context = contextvars.copy_context()
    # An outcome and not the future's own exception: asyncio's futures cannot hold a StopIteration, and would hang.
    future: Future[tuple[T | None, BaseException | None]] = Future()

    def work() -> None:
        try:
            outcome = (context.run(call), None)
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            outcome = (None, error)
        if future.set_running_or_notify_cancel():
            future.set_result(outcome)

    threading.Thread(target=work, name="memagent-tool", daemon=True).start()
    result, error = await asyncio.wrap_future(future)
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        raise error
    if error is not None:
        raise ToolError(named(error)) from error
    return result  # pyright: ignore[reportReturnType]
