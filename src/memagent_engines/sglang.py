"""A model in SGLang's engine, which runs in a separate process.

When a part of SGLang fails, it kills the process that hosts it, with all children. It also needs the main thread,
for signals, and replaces the handlers of logging. Checked with SGLang 0.5.23 on a CPU.
"""

import asyncio
import itertools
import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any, ClassVar, TypeAlias, cast

from memagent.errors import BadResponse, EngineFailed, ModelError, RequestRefused
from memagent.messages import ChatRequest
from memagent_engines.in_process import EngineModel
from memagent_engines.sharing import FINISH, DrawOptions, Engine, EngineReply

STOP_LIMIT = 30.0
"""Seconds that the process has to exit before it is killed."""
_UNUSABLE = (ImportError, OSError, TypeError, ValueError)
"""Errors at the start which mean that the engine is missing, or that a setting or the folder is wrong."""
_Outcome: TypeAlias = EngineReply | tuple[type[ModelError], str] | None
"""Outcome of a call, sent by the engine's process: a reply, an error and its message, or None for loaded weights."""


class SglangModel(EngineModel):
    """A model in SGLang's engine beside this process, like `sglang:` at a server. `settings` are `sglang.Engine`'s.

    It uses defaults of the model's generation config (top-k, penalties), as SGLang's server does;
    `sampling_defaults="openai"` leaves them out. Log-probabilities are after temperature. Seeds require
    `enable_deterministic_inference=True`. Replies end a few tokens before the window does.
    """

    scheme: ClassVar[str] = "sglang-engine"

    async def _start(self) -> Engine:
        return _Sglang(
            {"model_path": self._source, "context_length": self._window, **self._settings}
        )


class _Sglang:
    """The caller's end of the pipe to the engine's process."""

    def __init__(self, settings: dict[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child_pipe = context.Pipe()
        self._process = context.Process(target=_run, args=(child_pipe, settings), name="sglang")
        self._process.start()
        child_pipe.close()  # or the pipe wouldn't end with the process
        self._loop = asyncio.get_running_loop()
        self._replies = dict[int, asyncio.Future[Any]]()
        """Replies by request number, kept until the engine has ended the request, even if it was aborted."""
        self._numbers = itertools.count()
        try:
            reply = self._pipe.recv()
        except (EOFError, OSError):
            reply = RuntimeError("its process ended")
        if isinstance(reply, Exception):
            self.stop()
            raise reply
        self.window: int = reply
        self._loop.add_reader(self._pipe.fileno(), self._receive)

    async def draw(
        self, ids: tuple[int, ...], request: ChatRequest, ask: DrawOptions
    ) -> EngineReply:
        return await self._send((_answer, list(ids), _sampling(request), ask.tokens))

    async def load(self, folder: str) -> None:
        await self._send((_take, folder))

    async def _send(self, work: tuple[Any, ...]) -> Any:
        """Calls a function of this module in the engine's process, with the engine as first argument."""
        number = next(self._numbers)
        try:
            self._pipe.send((number, work))
        except OSError as error:
            raise _make_failure() from error
        reply = self._replies[number] = self._loop.create_future()
        try:
            return await reply
        except asyncio.CancelledError:
            with suppress(OSError):  # the process has ended, and its requests with it
                self._pipe.send((number, None))
            raise

    def stop(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()  # ends the process
        self._process.join(STOP_LIMIT)
        self._process.kill()
        self._process.join()

    def _receive(self) -> None:
        try:
            number, outcome = self._pipe.recv()
        except (EOFError, OSError):
            self.stop()
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(_make_failure())
            return
        reply = self._replies.pop(number)
        if reply.done():  # the call was cancelled
            return
        if isinstance(outcome, tuple):
            kind, text = cast("tuple[type[ModelError], str]", outcome)
            reply.set_exception(kind(text))
        else:
            reply.set_result(outcome)


def _make_failure() -> EngineFailed:
    return EngineFailed(
        "SGLang's engine died (its log is on standard error): the next call starts another"
    )


def _sampling(request: ChatRequest) -> dict[str, Any]:
    return {
        "temperature": request.sampling.temperature,
        "top_p": request.sampling.top_p,
        "max_new_tokens": request.max_tokens,
        "sampling_seed": request.seed,
        "stop": list(request.stop) or None,
        "regex": request.pattern,
    }


def _run(pipe: Connection, settings: dict[str, Any]) -> None:
    """Runs the engine's process until the other end of the pipe is closed."""
    os.dup2(2, 1)  # standard output is for answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller gets it too, and decides what to do
    with suppress(BrokenPipeError):  # the caller is gone
        asyncio.run(_serve(pipe, settings))


async def _serve(pipe: Connection, settings: dict[str, Any]) -> None:
    try:
        # By name: type checkers don't know SGLang, which is in none of our environments.
        engine: Any = import_module("sglang").Engine(**settings)
    except Exception as error:  # noqa: BLE001 - the caller is told, whatever the error
        kind = next((kind for kind in _UNUSABLE if isinstance(error, kind)), None)
        # Other errors may not survive pickling.
        pipe.send(kind(str(error)) if kind else RuntimeError(repr(error)))
        return
    loop, messages = asyncio.get_running_loop(), asyncio.Queue[Any]()
    calls = dict[int, asyncio.Task[_Outcome]]()

    def read() -> None:
        with suppress(EOFError, OSError):
            while True:
                loop.call_soon_threadsafe(messages.put_nowait, pipe.recv())
        loop.call_soon_threadsafe(messages.put_nowait, None)

    def send_outcome(number: int, call: asyncio.Task[_Outcome]) -> None:
        del calls[number]
        outcome = (ModelError, "was aborted") if call.cancelled() else call.result()
        with suppress(BrokenPipeError):
            pipe.send((number, outcome))

    pipe.send(engine.tokenizer_manager.context_len)
    # In a thread, so that the two ends don't wait for each other when both are sending.
    threading.Thread(target=read, daemon=True).start()
    while (message := await messages.get()) is not None:
        number, work = message
        if work is not None:
            function, *arguments = work
            call = calls[number] = asyncio.create_task(function(engine, *arguments))
            call.add_done_callback(partial(send_outcome, number))
        elif number in calls:
            calls[number].cancel()  # makes SGLang abort it
    engine.shutdown()


async def _answer(engine: Any, ids: list[int], sampling: dict[str, Any], tokens: bool) -> _Outcome:
    defaults = engine.tokenizer_manager.model_config.get_default_sampling_params()
    try:
        reply = await engine.async_generate(
            input_ids=ids, sampling_params=defaults | sampling, return_logprob=tokens
        )
    except ValueError as error:
        return RequestRefused, f"SGLang refuses the request: {error}"
    except Exception as error:  # noqa: BLE001 - the caller is told, whatever the error
        return ModelError, f"SGLang failed: {type(error).__name__}: {error}"
    meta = reply["meta_info"]
    reason = meta["finish_reason"]
    if reason["type"] not in FINISH:
        return BadResponse, f"SGLang ended a reply early ({reason!r}); see its log"
    logprobs = (
        tuple(min(0.0, entry[0]) for entry in meta["output_token_logprobs"]) if tokens else None
    )
    finish, cached = FINISH[reason["type"]], meta["cached_tokens"]
    return EngineReply(reply["text"], tuple(reply["output_ids"]), logprobs, finish, cached)


async def _take(engine: Any, folder: str) -> _Outcome:
    kind: Any = import_module("sglang.srt.managers.io_struct").UpdateWeightFromDiskReqInput
    try:
        is_done, message, _ = await engine.tokenizer_manager.update_weights_from_disk(
            kind(model_path=folder)
        )
    except Exception as error:  # noqa: BLE001 - the caller is told, whatever the error
        is_done, message = False, f"{type(error).__name__}: {error}"
    return (
        None
        if is_done
        else (RequestRefused, f"SGLang can't take the weights in {folder!r}: {message}")
    )
