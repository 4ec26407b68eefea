"""Functions in separate processes, which can be killed: tools, and training rewards.

A process runs one function at a time and serves many calls in turn; it has private pipes, so
a process that dies or is killed affects nothing else. `multiprocessing` and libraries built on it aren't used: they
would rerun the user's script in each process, with all its side effects.
"""

import asyncio
import atexit
import inspect
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pkgutil import resolve_name
from typing import IO, Any, cast

from memagent.errors import ConfigError, ToolError
from memagent.threads import in_own_thread
from memagent.tools.base import Tool, ToolContext

PROCESSES = max(1, os.cpu_count() or 1)
"""Maximum number of processes: one per core, since their functions keep a core busy."""
_START = "import sys; sys.path[:] = sys.argv[1:]; from memagent.tools.worker import main; main()"


def place_of(function: Callable[..., Any]) -> str:
    """Returns where a function can be imported from, according to its attributes: `module:name`.

    Raises:
        ConfigError: another process couldn't import it from there.
    """
    name = getattr(function, "__qualname__", repr(function))
    module: str | None = getattr(function, "__module__", None)
    if inspect.iscoroutinefunction(function):
        remedy = "remove async or process=True"
        raise ConfigError(f"{name} is async, so it cannot run in a process; {remedy}")
    if not inspect.isfunction(function) or "<" in name or module is None:
        raise ConfigError(
            f"{name} cannot run in a process, which could not import it; use def at the top level of a module"
        )
    if module in ("__main__", "__mp_main__"):
        raise ConfigError(
            f"{name} cannot run in a process, which would have to rerun the script to import it; move it to a "
            f"separate module, and import it from there"
        )
    return f"{module}:{name}"


def find(place: str) -> Any:
    """Imports the function at a place; None if there is none."""
    try:
        target = resolve_name(place)
    except AttributeError:
        return None
    # A function decorated by `tool` is replaced by its tool.
    if isinstance(target, Tool):
        return getattr(getattr(target.run, "signature", None), "function", None)
    return target


@dataclass(frozen=True)
class ProcessCall:
    """A call of a function in another process."""

    place: str
    """The function: `module:name`."""
    arguments: Mapping[str, Any]
    """Arguments that follow the function's JSON schema."""
    limit: float | None = None
    """Seconds that it may take once a process runs it."""
    context: ToolContext | None = None


def _path() -> list[str]:
    """Returns where Python looks for modules, without non-text entries, which it ignores and no request could hold."""
    return [entry for entry in cast("list[object]", sys.path) if isinstance(entry, str)]


class _Worker:
    def __init__(self) -> None:
        # A separate session: we handle Ctrl-C, and what the function started is killed with it.
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, *_path()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._requests = cast("IO[bytes]", self.process.stdin)
        self._replies = cast("IO[bytes]", self.process.stdout)

    def ask(self, call: ProcessCall) -> dict[str, str]:
        """Sends one call and waits for its outcome.

        Raises:
            TimeoutError: it takes longer than its limit.
            ToolError: the process ended, or replied to another call.
        """
        request = {
            "id": secrets.token_hex(8),
            "path": _path(),
            "place": call.place,
            "arguments": dict(call.arguments),
            "context": call.context and asdict(call.context),
        }
        with suppress(BrokenPipeError):
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        if call.limit is not None:
            replies = select.poll()
            replies.register(self._replies, select.POLLIN)
            if not replies.poll(call.limit * 1000):
                raise TimeoutError(f"it took longer than {call.limit:g} s")
        line = self._replies.readline()
        if not line.endswith(b"\n"):
            self.end()
            raise ToolError(f"the process that ran it ended {_ending(self.process.returncode)}")
        reply = json.loads(line)
        if reply.pop("id", None) != request["id"]:
            raise ToolError("its process replied to another call, so its result is not known")
        return reply

    def kill(self) -> None:
        """Kills it with everything that it started. Waiters in `ask` are woken."""
        # Not reaped yet, so its id can't have been reused.
        if self.process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Releases its resources. Blocks until it has ended."""
        with suppress(OSError):
            self._requests.close()
        self._replies.close()
        # It closed its pipe and may be about to end; otherwise it is killed, as is what it started.
        until = time.monotonic() + 1.0
        while not self.has_ended() and time.monotonic() < until:
            time.sleep(0.005)
        self.kill()
        self.process.wait()

    def has_ended(self) -> bool:
        """Returns whether it has ended. It isn't reaped, so that `kill` still finds what it started."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self.process.poll() is not None
        with suppress(ChildProcessError):
            flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
            return os.waitid(os.P_PID, self.process.pid, flags) is not None
        return True


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        cause = ", possibly for lack of memory" if code == -signal.SIGKILL else ""
        return f"by signal {-code} ({signal.Signals(-code).name}){cause}"
    return f"with exit code {code}"


class WorkerPool:
    """Processes for calls, started on demand. Close it after use.

    Args:
        size: maximum number of processes; if all are busy, calls wait.
        first: call made in each process before any other.
    """

    def __init__(self, size: int, first: ProcessCall | None = None) -> None:
        self._size, self._first = size, first
        self.forget()

    def forget(self) -> None:
        """Resets a forked process: its parent's processes don't belong to it."""
        # Kept referenced, since a collected Popen warns about a running process.
        self._parents = getattr(self, "_idle", None)
        self._idle: list[_Worker] = []
        self._jobs: dict[object, _Worker | None] = {}
        """Calls being awaited, and the process that runs each."""
        self._closed = False
        self._mutex = threading.Lock()
        self._slots = threading.BoundedSemaphore(self._size)

    async def run(self, call: ProcessCall) -> str:
        """Makes a call. On cancellation the process is killed, with everything that the function started.

        Returns:
            What the function returned, as text or JSON.

        Raises:
            ToolError: the function failed, its process ended, or the pool is closed.
            TimeoutError: the call took longer than its limit; its process was killed.
        """
        self._jobs[job := object()] = None
        try:
            return await in_own_thread(lambda: self._work(job, call))
        except asyncio.CancelledError:
            with self._mutex:
                if worker := self._jobs.pop(job, None):
                    worker.kill()
            raise

    def run_sync(self, call: ProcessCall) -> str:
        """Sync version of `run`."""
        self._jobs[job := object()] = None
        return self._work(job, call)

    def close(self) -> None:
        """Ends the processes; calls in progress fail. Blocks until they have ended."""
        with self._mutex:
            self._closed = True
            for worker in (*self._idle, *self._jobs.values()):
                if worker is not None:
                    worker.kill()
        for _ in range(self._size):  # a call frees its slot when its process is gone
            self._slots.acquire()
        while self._idle:
            self._idle.pop().end()
        self._slots.release(self._size)

    def _work(self, job: object, call: ProcessCall) -> str:
        try:
            with self._slots:
                self._note(job, None)
                idle = self._take_idle()
                worker = idle or _Worker()
                try:
                    self._note(job, worker)
                    if idle is None and self._first is not None:
                        _text_of(worker.ask(self._first))
                    reply = worker.ask(call)
                    self._note(job, None)
                except BaseException:
                    worker.kill()
                    worker.end()
                    raise
                self._idle.append(worker)
        finally:
            self._jobs.pop(job, None)
        return _text_of(reply)

    def _note(self, job: object, worker: _Worker | None) -> None:
        """Registers the process that runs a call, so that it is killed if the call is abandoned."""
        with self._mutex:
            if self._closed:
                raise ToolError("its processes were closed")
            if job not in self._jobs:
                raise ToolError("it was given up")
            self._jobs[job] = worker

    def _take_idle(self) -> _Worker | None:
        with self._mutex:
            while self._idle:
                worker = self._idle.pop()
                if not worker.has_ended():
                    return worker
                worker.end()
        return None


def _text_of(reply: Mapping[str, str]) -> str:
    if "error" in reply:
        raise ToolError(reply["error"])
    return reply["text"]


tool_pool = WorkerPool(PROCESSES)
"""The processes in which tools run."""
atexit.register(tool_pool.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=tool_pool.forget)
