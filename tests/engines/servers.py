"""A real server of an engine, as a child process of the tests."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

import httpx
from tests.engines import commands, groups, venvs
from tests.engines.metrics import Metrics

# Below the range from which systems take the ports of outgoing connections, so that no other process
# takes the port between a kill and a restart.
PORTS = range(20_000, 32_000)
# Starting takes 12 to 20 s, and several times as long on a busy machine.
START_LIMIT = 240.0
# vLLM takes 0.5 s to end by itself, SGLang 4 s.
STOP_LIMIT = 5.0
POLL = 0.1
TAIL = 40


class ServerDied(Exception):
    """The server ended, or was not ready in time; the message has the end of its log."""


class EngineServer:
    """One server with the tiny model. It can be stopped or killed, and started again."""

    model = commands.MODEL

    def __init__(
        self,
        engine: str,
        log: Path,
        *,
        window: int = 2048,
        api_key: str | None = None,
        port: int | None = None,
        flags: Sequence[str] | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Describes a server; nothing runs before `start`.

        Args:
            engine: "vllm" or "sglang".
            log: the file that its output is added to.
            window: tokens of prompt and output together.
            api_key: the key that requests must carry; None asks for none.
            port: None takes a free one.
            flags: more of the engine's own flags; None takes those of `commands.REPORTING`.
            variables: of its environment, which win over those of `commands.ENVIRONMENT`.
        """
        self.engine = engine
        self.log = log
        self.window = window
        self.api_key = api_key
        self.port = port or free_port()
        self.flags = commands.REPORTING[engine] if flags is None else flags
        self._variables = dict(variables or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._temporary = Path()

    @property
    def root(self) -> str:
        """The address without the `/v1` of the OpenAI API."""
        return f"http://{commands.HOST}:{self.port}"

    @property
    def url(self) -> str:
        """What a client takes as its base URL."""
        return f"{self.root}/v1"

    @property
    def group(self) -> int | None:
        """The process group, while the server runs or has died without being stopped."""
        return self._process.pid if self._process else None

    @property
    def alive(self) -> bool:
        """Whether its first process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, window: int | None = None) -> Self:
        """Starts the server and returns when it answers.

        Args:
            window: its window from now on; None leaves it as it was.

        Raises:
            NotMade: the engine is not installed; the message has the remedy.
            ServerDied: it ended, or was not ready within START_LIMIT.
        """
        if self._process:
            raise RuntimeError(f"{self!r} was started already: stop it first")
        self.window = window or self.window
        if lacking := venvs.missing(self.engine):
            raise venvs.NotMade(venvs.remedy(self.engine, lacking))
        try:
            self._launch()
            self._wait_until_ready()
        except BaseException:
            # Also when the tests are interrupted while it starts.
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Asks the server to end; what is left of it after STOP_LIMIT is killed."""
        self._end(grace=STOP_LIMIT)

    def kill(self) -> None:
        """Ends all its processes at once, as `kill -9` does."""
        self._end(grace=0.0)

    def halt(self) -> None:
        """Has all its processes stand still, as `kill -STOP` does; only `kill` is of use then."""
        if self._process:
            os.killpg(self._process.pid, signal.SIGSTOP)

    def restart(self) -> Self:
        """Starts it again on the same port, stopping it before if it runs."""
        self.stop()
        return self.start()

    def metrics(self) -> Metrics:
        """Returns the numbers that it has for Prometheus."""
        return Metrics.parse(self._get(f"{self.root}/metrics").text)

    def requests(self) -> int:
        """Returns how many requests the engine has answered since it was started."""
        if self.engine == "vllm":
            return int(self.metrics().total("vllm:request_success_total"))
        return int(self.metrics().total("sglang:num_requests_total"))

    def running(self) -> int:
        """Returns how many requests the engine is working at, those that wait included."""
        if self.engine == "vllm":
            names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
            metrics = self.metrics()
            return int(sum(metrics.total(name) for name in names))
        # SGLang's metrics are some steps old.
        loads = self._get(f"{self.url}/loads").json()["loads"]
        return sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads)

    def tail(self, lines: int) -> str:
        """Returns the last lines of its log."""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            return "".join(deque(log, lines))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"EngineServer({self.engine!r}, port={self.port}, window={self.window})"

    def _launch(self) -> None:
        # Not in the tests' own folder: sockets lie in it, and their paths are at most 107 bytes long.
        self._temporary = Path(tempfile.mkdtemp(prefix=f"{self.engine}-"))
        with self.log.open("ab") as output:
            options = commands.Options(self.window, self.port, self.api_key, self.flags)
            self._process = subprocess.Popen(
                commands.command(self.engine, options),
                env=commands.environment(self.engine, self._temporary) | self._variables,
                cwd=self._temporary,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guard = subprocess.Popen(
            [sys.executable, groups.__file__, str(self._process.pid), str(self._temporary)],
            stdin=subprocess.PIPE,
            # Out of reach of a Ctrl-C that is meant for the tests.
            start_new_session=True,
        )

    def _wait_until_ready(self) -> None:
        assert self._process
        last = time.monotonic() + START_LIMIT
        while self._process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                self._get(f"{self.url}/models")
                return
            if time.monotonic() > last:
                raise ServerDied(self._report(f"was not ready within {START_LIMIT} s"))
            time.sleep(POLL)
        status = self._process.returncode
        raise ServerDied(self._report(f"ended with status {status} while it started"))

    def _report(self, what: str) -> str:
        return f"{self!r} {what}. The end of {self.log}:\n{self.tail(TAIL)}"

    def _end(self, grace: float) -> None:
        if self._process:
            groups.end(self._process.pid, self._temporary, grace)
            self._process.wait()
            self._process = None
        if self._guard:
            self._guard.communicate()
            self._guard = None

    def _get(self, url: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        response = httpx.get(url, headers=headers, timeout=10, trust_env=False)
        return response.raise_for_status()


def free_port() -> int:
    """Returns a port that nobody listens on."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((commands.HOST, port))
            return port
    raise OSError(f"no free port between {PORTS.start} and {PORTS.stop}")
