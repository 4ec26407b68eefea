"""A Python program cut off from the network, the disk and the machine's other processes, with limits on the rest."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memagent.errors import ConfigError, ToolError
from memagent.texts import clip, quote

WALLS = Path(__file__).with_name("walls.py")
SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/alternatives",
)
"""Folders of programs and their libraries; nothing personal."""
START = 20.0
"""Seconds to build the sandbox, on a busy machine."""
KIB, MIB = 1 << 10, 1 << 20


class NoSandbox(ConfigError):
    """Raised if this machine can't isolate foreign code, so none is run."""


class SandboxEnded(ToolError):
    """The program in a sandbox ended, or was ended for exceeding a limit."""


@dataclass(frozen=True)
class Limits:
    """Limits of a sandboxed program.

    Memory is limited per process, so `memory` times `processes`, plus `scratch`, bounds the total.
    """

    seconds: float = 10.0
    """Maximum seconds per request."""
    cpu: int = 600
    """Maximum processor seconds of each process, for all requests together."""
    memory: int = 512 * MIB
    """Maximum bytes of address space of each process."""
    processes: int = 16
    """Maximum processes and threads at the same time."""
    file: int = 16 * MIB
    """Maximum bytes of a file."""
    scratch: int = 64 * MIB
    """Bytes of the writable folder, which is in memory and temporary."""
    message: int = MIB
    """Maximum bytes of a request, and of a reply."""


class Sandbox:
    """Runs a program that answers requests: one line of JSON in, one line out.

    The program sees a read-only copy of the interpreter and its packages, a writable /tmp in memory, and nothing
    else: no network, no other processes, no files of yours. `docs/adr/0023` says what that promises.

    Args:
        source: the program. It reads requests from standard input and writes replies to standard output; its
            error output is discarded.
        limits: of its resources.
        what: its name in messages, such as the file that it comes from.
        read: folders that it may read, beside the interpreter's.

    Raises:
        NoSandbox: this machine can't isolate it; the message says what is missing.
    """

    def __init__(self, source: str, limits: Limits, what: str, read: Sequence[Path] = ()) -> None:
        self.what, self._limits = what, limits
        self._mutex, self._buffer = threading.Lock(), bytearray()
        self._ended = ""
        if sys.platform != "linux":
            raise NoSandbox(
                f"{what} is foreign code, and only Linux can isolate it: run this on Linux, in a virtual machine for "
                f"example"
            )
        self._root = tempfile.TemporaryDirectory(prefix="memagent-sandbox-")
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(WALLS), self._root.name],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                env={},
                start_new_session=True,
            )
        try:
            reply = self._exchange(_settings(source, limits, read), START)
        except ToolError as error:
            reply = {"unavailable": str(error)}
        if "up" not in reply:
            self.close()
            raise NoSandbox(
                f"{what} is foreign code, and this machine cannot isolate it "
                f"({clip(str(reply.get('unavailable')), 300)}). "
                f"It needs Linux 5.14 or newer with user namespaces: in Docker add --security-opt seccomp=unconfined "
                f"--security-opt apparmor=unconfined, on Ubuntu set kernel.apparmor_restrict_unprivileged_userns=0, "
                f"or use a virtual machine"
            )

    def ask(self, request: object) -> dict[str, Any]:
        """Sends a request and waits for the reply. Blocks; one request at a time.

        Args:
            request: any JSON value.

        Raises:
            ToolError: the request is too large; nothing was sent.
            SandboxEnded: the program ended, took too long, sent too much, or didn't send JSON.
        """
        line = json.dumps(request)
        if len(line) > self._limits.message:
            raise ToolError(
                f"the call has {len(line):,} bytes, and {self._limits.message:,} is the most: send less"
            )
        with self._mutex:
            if self._ended:
                raise SandboxEnded(self._ended)
            try:
                return self._exchange(line, self._limits.seconds)
            except SandboxEnded as error:
                self._ended = str(error)
                self._kill()
                raise

    def close(self) -> None:
        """Ends the program and everything that it started. Blocks until it is gone."""
        self._kill()
        self._root.cleanup()
        self._ended = self._ended or f"{self.what} was closed"

    def _kill(self) -> None:
        self._socket.close()  # which ends the program
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()

    def _exchange(self, line: str, seconds: float) -> dict[str, Any]:
        deadline = time.monotonic() + seconds
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(line.encode() + b"\n")
            while (end := self._buffer.find(b"\n")) < 0:
                if len(self._buffer) > self._limits.message:
                    raise SandboxEnded(
                        f"{self.what} replied with more than {self._limits.message:,} bytes and was ended"
                    )
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                received = self._socket.recv(64 * KIB)
                if not received:
                    raise SandboxEnded(
                        f"{self.what} ended on its own, possibly for lack of memory ({self._limits.memory // MIB} MiB)"
                    )
                self._buffer += received
        except TimeoutError:
            raise SandboxEnded(
                f"{self.what} took longer than {seconds:g} seconds and was ended"
            ) from None
        except OSError as error:
            raise SandboxEnded(f"{self.what} ended ({error})") from error
        reply, self._buffer = bytes(self._buffer[:end]), self._buffer[end + 1 :]
        return _read(reply, self.what)


def _read(reply: bytes, what: str) -> dict[str, Any]:
    try:
        value = json.loads(reply)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise SandboxEnded(
            f"{what} replied {quote(clip(repr(reply), 200))}, which is not a JSON object"
        )
    return value  # pyright: ignore[reportUnknownVariableType]


def _settings(source: str, limits: Limits, read: Sequence[Path]) -> str:
    prefixes = dict.fromkeys(
        os.path.realpath(path) for path in (sys.base_prefix, sys.prefix, *read)
    )
    python = Path(os.path.realpath(sys.prefix), "bin", Path(sys.executable).name)
    return json.dumps(
        {
            "source": source,
            "read": [path for path in (*SYSTEM, *prefixes) if Path(path).exists()],
            "python": str(python),
            "scratch": limits.scratch,
            "limits": {
                "AS": limits.memory,
                "CPU": limits.cpu,
                "CORE": 0,
                "FSIZE": limits.file,
                "NOFILE": 256,
                "NPROC": limits.processes,
            },
            # Threads of numerical libraries count as processes.
            "env": {
                "HOME": "/tmp",
                "PATH": "/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            },
        }
    )
