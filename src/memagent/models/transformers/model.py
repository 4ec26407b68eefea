"""`TransformersModel`: a causal LM in this process as a chat model."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memagent.errors import ConfigError, ModelError
from memagent.messages import ChatRequest, Completion, TokenIds, Usage
from memagent.models.base import refuse_overflow, refuse_tools
from memagent.models.policy import Policy
from memagent.models.sharing import Once
from memagent.texts import name_extra
from memagent.threads import in_thread
from memagent.tokens import TokenizerFile

if TYPE_CHECKING:
    from memagent.models.transformers.loading import Dtype
    from memagent.models.transformers.padded import PaddedSampler


class TransformersModel:
    """A Hugging Face causal LM that runs in this process, on CUDA's device where there is one, else on the CPU.

    Calls that are made at once, from whatever event loops, are drawn together in padded batches by one thread.
    Everything is loaded with the first call; until then nothing of torch is imported.

    Args:
        source: a folder as `save_pretrained` writes it, or a name on the hub. A folder may bring its own settings
            (`memagent.toml`), which agents then take as their defaults.
        window: most tokens of prompt plus output; default what the model's config says, which it may not pass.
        name: what records call the model; default `transformers:` and the source.
        device: as torch names it; default as above.
        dtype: of the weights; default the checkpoint's own on a GPU, float32 on a CPU.
        adapter: folder of a LoRA adapter for the model in the folder `source`; merged when the model is loaded. Its
            settings (`memagent.toml`) come before those of `source`.
        max_batch: most calls that are drawn together.
        max_batch_tokens: most tokens that they take together, prompts, replies and padding; None sets no limit.
        tokens: whether replies come with their token ids and log-probabilities.

    Raises:
        ConfigError: the folder is none, or its settings are wrong.
    """

    def __init__(
        self,
        source: str | Path,
        *,
        window: int | None = None,
        name: str | None = None,
        device: str | None = None,
        dtype: Dtype | None = None,
        adapter: Path | None = None,
        max_batch: int = 64,
        max_batch_tokens: int | None = 65_536,
        tokens: bool = False,
    ) -> None:
        self._source, self.policy = _find(source)
        if adapter is not None:
            self.policy = Policy.load(adapter) or self.policy
        self.name = name or f"transformers:{self._source}"
        self._asked, self._tokens = window, tokens
        self._weights: dict[str, Any] = {"device": device, "dtype": dtype, "adapter": adapter}
        self._limits: dict[str, Any] = {
            "max_batch": max_batch,
            "max_batch_tokens": max_batch_tokens,
        }
        self._engine = Once(lambda: in_thread(self._load))
        self._closed = False
        self._closing = threading.Lock()
        self._stop = ExitStack()

    async def complete(self, request: ChatRequest) -> Completion:
        """Draws a reply. A request with a seed draws the same again; `pattern` is ignored.

        Raises:
            ContextOverflow: prompt and `max_tokens` are over the window together; nothing was computed.
            TokenizerError: the chat template refuses the messages.
            DeviceFull: the prompt is too long for the device.
            ConfigError: the model cannot be loaded, or the request has tools.
            ModelError: the model failed, or is closed.
        """
        refuse_tools(self.name, request)
        sampler, counter = await self._engine.get()
        ids = await in_thread(counter.prompt_ids, request.messages, thinking=request.thinking)
        refuse_overflow(self.name, len(ids), request.max_tokens, sampler.window)
        self._check_open()
        drawn = await sampler.sample(
            ids,
            max_tokens=request.max_tokens,
            sampling=request.sampling,
            seed=request.seed,
            stopped=partial(_holds, request.stop, counter),
        )
        tokens = TokenIds(prompt=ids, sampled=drawn.ids, logprobs=drawn.logprobs)
        return Completion(
            text=counter.decode(drawn.ids),
            finish_reason=drawn.finish,
            usage=Usage(calls=1, prompt_tokens=len(ids), completion_tokens=len(drawn.ids)),
            tokens=tokens if self._tokens else None,
        )

    async def counter(self) -> TokenizerFile:
        """The model's own tokenizer with its chat template: counts are exact.

        Raises:
            ConfigError, TokenizerError: it cannot be loaded.
        """
        return (await self._engine.get())[1]

    async def window(self) -> int:
        """What the constructor was given, else what the model's config says.

        Raises:
            ConfigError: the model cannot be loaded, or takes fewer tokens than the constructor was given.
        """
        return (await self._engine.get())[0].window

    async def aclose(self) -> None:
        """Ends the thread that draws; calls that still wait fail."""
        self._closed = True
        await in_thread(self._close)

    def __repr__(self) -> str:
        return f"TransformersModel({self._source!r})"

    def _load(self) -> tuple[PaddedSampler, TokenizerFile]:
        try:
            from memagent.models.transformers.loading import load, text_counter
            from memagent.models.transformers.padded import PaddedSampler
            from memagent.models.transformers.sampler import window_of
        except ImportError as error:
            raise ConfigError(name_extra(f"the model {self.name!r}", "transformers")) from error
        self._check_open()
        model, tokenizer = load(self._source, **self._weights)
        most = window_of(model)
        if self._asked is not None and not 0 < self._asked <= most:
            raise ConfigError(
                f"window={self._asked!r}: give a number of tokens from 1 to {most}, which {self.name!r} takes"
            )
        counter = text_counter(tokenizer)
        if not counter.exact:
            raise ConfigError(
                f"the tokenizer of {self._source!r} has no chat template: set tokenizer.chat_template, or take the "
                f"model's instruct variant, whose tokenizer has one"
            )
        sampler = PaddedSampler(model, tokenizer, window=self._asked, **self._limits)
        with self._closing:
            self._check_open()
            self._stop.enter_context(sampler.generating())
        return sampler, counter

    def _close(self) -> None:
        with self._closing:
            self._stop.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ModelError(f"the model {self.name!r} is closed: open it again", attempts=0)


def _holds(stops: Sequence[str], counter: TokenizerFile, ids: Sequence[int]) -> bool:
    """Whether the latest of the ids end with a stop sequence in them; a token has a byte at least."""
    longest = max((len(stop.encode()) for stop in stops), default=0)
    text = counter.decode(ids[-longest - 1 :]) if longest else ""
    return any(stop in text for stop in stops)


def _find(source: str | Path) -> tuple[str, Policy | None]:
    """The folder as an absolute path, or the name on the hub; and the settings that a folder brings."""
    text = str(source)
    folder = Path(os.path.abspath(Path(text).expanduser()))  # noqa: PTH100 - links are left as they are
    if not folder.is_dir():
        if isinstance(source, Path) or text.startswith((".", "/", "~")) or text.count("/") > 1:
            raise ConfigError(
                f"there is no folder {str(folder)!r}: give one that holds a model, as save_pretrained writes it, or "
                f"a name on the hub"
            )
        return text, None
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"the folder {str(folder)!r} holds no model (no config.json): give one as save_pretrained or "
            f"memagent-train export write it"
        )
    return str(folder), Policy.load(folder)
