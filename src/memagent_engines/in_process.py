"""Shared code of models in an engine in this process: calls, ids, adapters, new weights."""

import asyncio
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from memagent.errors import ConfigError, EngineFailed, ModelError
from memagent.messages import ChatRequest, Completion, TokenIds, Usage
from memagent.models.base import check_window, refuse_overflow
from memagent.models.policy import Policy
from memagent.texts import expand, quote
from memagent.threads import in_thread
from memagent.tokens import TokenizerFile
from memagent.tokens.template import TEXT_PROTOCOL
from memagent_engines.sharing import DrawOptions, Engine, EngineReply, SharedEngine, lease, release

DIGITS = 16
"""Hex digits of a digest: 64 bits, as in other digests of memagent."""
T = TypeVar("T")


class OwnModel(ABC):
    """Base of models in this process: a reply is drawn for the ids of the messages."""

    name: str
    _closed = False
    _tokens: bool
    """Whether replies include token ids and log-probabilities."""
    _source: str
    _adapter: Path | None

    @cached_property
    def weights_digest(self) -> str:
        """Digest of the weights in the model's folder, and of its adapter's; empty if unknown.

        It is unknown for a name on the hub, and for files of other kinds than `weights_sha256` reads.

        Blocks: reads all of them once, as loading does.
        """
        folders = [Path(f) for f in (self._source, self._adapter) if f and Path(f).is_dir()]
        if not folders:
            return ""
        # It imports torch.
        from memagent_engines.transformers.adapter import NO_WEIGHTS, weights_sha256

        digests = map(weights_sha256, folders)
        return "+".join(digest[:DIGITS] for digest in digests if digest != NO_WEIGHTS)

    async def complete(self, request: ChatRequest) -> Completion:
        """Draws a reply.

        Raises:
            ContextOverflow: prompt plus `max_tokens` exceed the window; nothing was computed.
            TokenizerError: the chat template rejects the messages.
            DeviceFull: the prompt is too long for the device.
            ConfigError: the model can't be loaded, or the request has pictures or tools to call.
            EngineFailed: the engine didn't start, or died.
            ModelError: the model failed or refused the request, or is closed.
        """
        refuse_unread(self.name, request)
        counter = await self.counter()
        ids = await in_thread(
            counter.prompt_ids,
            request.messages,
            thinking=request.thinking,
            tools=request.tools,
        )
        reply = await self.draw(ids, request)
        tokens = TokenIds(prompt=ids, sampled=reply.ids, logprobs=reply.logprobs)
        return Completion(
            text=reply.text,
            finish_reason=reply.finish,
            usage=Usage(
                calls=1,
                prompt_tokens=len(ids),
                completion_tokens=len(reply.ids),
                cached_tokens=reply.cached,
            ),
            tokens=tokens if self._tokens else None,
        )

    @abstractmethod
    async def counter(self) -> TokenizerFile:
        """Returns the model's own tokenizer with its chat template: counts are exact. Raises like `complete`."""

    @abstractmethod
    async def draw(self, ids: Sequence[int], request: ChatRequest) -> EngineReply:
        """Continues P ids instead of the request's messages. Raises like `complete`."""

    def _check_open(self) -> None:
        if self._closed:
            raise ModelError(f"the model {self.name!r} is closed: open it again", attempts=0)


class EngineModel(OwnModel):
    """Base of models that run in an engine in this process, which batches calls and caches their prefixes.

    The engine starts at the first call. Models with the same source, window and settings share it, from any event
    loops; it ends with the last of them. If it dies, the next call starts a new one.

    Args:
        source: a folder as `save_pretrained` writes it, or a name on the hub. A folder may include settings
            (`memagent.toml`), which agents then use as defaults.
        window: maximum tokens of prompt plus output, for which the engine reserves memory; default: the config's.
        name: the model's name in records; default: the spec.
        tokens: whether replies include token ids and log-probabilities.
        adapter: folder of a LoRA adapter for the model. Its settings (`memagent.toml`) override those of `source`.
        settings: further arguments for the engine.

    Raises:
        ConfigError: there is no such folder, its settings are invalid, or the engine doesn't support adapters.
    """

    scheme: ClassVar[str]
    """Prefix of the model's spec."""

    def __init__(
        self,
        source: str | Path,
        *,
        window: int | None = None,
        name: str | None = None,
        tokens: bool = False,
        adapter: str | Path | None = None,
        **settings: Any,
    ) -> None:
        check_window(window)
        self._source, self.policy = find_model(source)
        if adapter is not None:
            adapter = Path(adapter).absolute()
            self.policy = Policy.load(adapter) or self.policy
            settings = self._allow(adapter) | settings
        self.name = name or f"{self.scheme}:{self._source}"
        self._window, self._adapter, self._settings = window, adapter, settings
        self._tokens = tokens
        self._asked = DrawOptions(tokens, None if adapter is None else str(adapter))
        self._key = (0, type(self), self._source, window, repr(sorted(settings.items())))
        self._shared: SharedEngine | None = None
        self._calls = set[Future[Any]]()
        self._checked = False
        self._lock = threading.Lock()

    async def draw(self, ids: Sequence[int], request: ChatRequest) -> EngineReply:
        """See `OwnModel.draw`. Cancelling aborts the request in the engine."""
        shared, (engine, _) = await self._open()
        refuse_overflow(self.name, len(ids), request.max_tokens, engine.window)
        return await self._call(shared, engine.draw(tuple(ids), request, self._asked))

    async def load(self, folder: Path) -> None:
        """Loads other weights of the same model into the engine, for all models that use it. No call may be running.

        A restarted engine has those of `source` again. On a CPU, vLLM keeps the old output layer if it is tied to
        the embedding.

        Raises:
            ConfigError: the folder has no weights.
            EngineFailed: the engine didn't start, or died.
            ModelError: the engine can't load them, or the model is closed.
        """
        shared, (engine, _) = await self._open()
        await self._call(shared, engine.load(str(await in_thread(find_weights, folder))))

    async def counter(self) -> TokenizerFile:
        """Returns the model's own tokenizer with its chat template: counts are exact. Raises like `complete`."""
        return (await self._open())[1][1]

    async def window(self) -> int:
        """Returns the engine's window. Raises like `complete`."""
        return (await self._open())[1][0].window

    async def aclose(self) -> None:
        """Aborts the model's calls, and ends the engine's processes unless other models use them."""
        with self._lock:
            self._closed = True
            shared, self._shared = self._shared, None
            calls = list(self._calls)
        for call in calls:
            call.cancel()
        if shared is not None and release(self._key, shared):
            await asyncio.to_thread(shared.close)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._source!r})"

    @abstractmethod
    async def _start(self) -> Engine:
        """Starts the engine, on the event loop that will use it."""

    def _allow(self, adapter: Path) -> dict[str, Any]:
        """Returns the settings with which the engine accepts an adapter."""
        raise ConfigError(
            f"{self.scheme} takes no adapter, but got {str(adapter)!r}: merge it into its model (memagent-train export "
            f"does so unless it is given --adapter), and give the merged folder"
        )

    async def _open(self) -> tuple[SharedEngine, tuple[Engine, TokenizerFile]]:
        if self._adapter is not None and not self._checked:
            await in_thread(_check_adapter, self._source, self._adapter)
            self._checked = True
        with self._lock:
            self._check_open()
            if self._shared is None or self._key[0] != os.getpid():  # threads don't survive a fork
                self._key = (os.getpid(), *self._key[1:])
                self._shared = lease(self._key, self._source, self._start)
            shared = self._shared
        try:
            # shield: a cancelled caller must not cancel the start for the others
            return shared, await asyncio.shield(asyncio.wrap_future(shared.started))
        except Exception:
            await self._give_up(shared)
            raise

    async def _call(self, shared: SharedEngine, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._closed:
                work.close()
            self._check_open()
            call = shared.submit(work)
            self._calls.add(call)
        try:
            return await asyncio.wrap_future(call)
        except EngineFailed:
            await self._give_up(shared)
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self._check_open()
            raise EngineFailed(f"the engine of {self.name!r} was stopped: send it again") from None
        finally:
            with self._lock:
                self._calls.discard(call)

    async def _give_up(self, shared: SharedEngine) -> None:
        """Gives up an engine that failed, so that the next call starts a new one."""
        with self._lock:
            if self._shared is not shared:
                return
            self._shared = None
            last = release(self._key, shared, failed=True)
        if last:
            await asyncio.to_thread(shared.close)


def _check_adapter(source: str, adapter: Path) -> None:
    base = Path(source)
    if base.is_dir():  # otherwise a name on the hub
        from memagent_engines.transformers.adapter import check_base  # imports torch

        check_base(base, adapter)


def find_weights(folder: Path) -> Path:
    """Returns the absolute path of a folder with weights; without any, vLLM would exit.

    Raises:
        ConfigError: the folder has none.
    """
    path = folder.absolute()
    if not any(path.glob("*.safetensors")):
        raise ConfigError(
            f"{str(path)!r} has no weights (*.safetensors); save the policy there first"
        )
    return path


def find_model(source: str | Path) -> tuple[str, Policy | None]:
    """Returns the folder as an absolute path, or the name on the hub; and the folder's settings.

    Raises:
        ConfigError: there is no such folder, it has no model, or its settings are invalid.
    """
    text = str(source)
    folder = Path(os.path.abspath(expand(text)))  # noqa: PTH100 - doesn't resolve links
    if not folder.is_dir():
        if isinstance(source, Path) or text.startswith((".", "/", "~")) or text.count("/") > 1:
            raise ConfigError(
                f"there is no folder {str(folder)!r}: give a model folder, as save_pretrained writes it, or "
                f"a name on the hub"
            )
        return text, None
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"the folder {str(folder)!r} has no model (no config.json): give a folder written by save_pretrained or "
            f"memagent-train export"
        )
    return str(folder), Policy.load(folder)


def refuse_unread(who: str, request: ChatRequest) -> None:
    """Raises a `ConfigError` if a request has what these models don't support: calls, or parts that aren't text."""
    if request.tools and request.tool_choice != "none":
        names = [tool.name for tool in request.tools]
        raise ConfigError(
            f"the model {who!r} runs in this process, where replies are not parsed for calls of the tools {names!r}; "
            f"{TEXT_PROTOCOL}, or serve it (vllm:, sglang:)"
        )
    for parts in (message.extra.get("content") for message in request.messages):
        if parts:
            raise ConfigError(
                f"the model {who!r} runs in this process, where it reads text only, and cannot see {quote(parts)}; "
                f"leave it out, or serve the model (vllm:, sglang:)"
            )
