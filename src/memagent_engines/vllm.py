"""A model in vLLM's asynchronous engine, which runs in child processes of this one.

Checked with vLLM 0.32 on a CPU.
"""

import itertools
import os
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from memagent.errors import BadResponse, EngineFailed, ModelError, RequestRefused
from memagent.messages import ChatRequest
from memagent_engines.in_process import EngineModel
from memagent_engines.lora import read_lora
from memagent_engines.sharing import FINISH, DrawOptions, Engine, EngineReply

ENVIRONMENT = {
    # Standard output is for answers.
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_LEVEL": "WARNING",
    # Otherwise it reports the model and the machine to its authors.
    "VLLM_NO_USAGE_STATS": "1",
    # A fork would copy the locks of memagent's threads in their state, some of them held.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
"""Environment variables for vLLM, unless already set: it and its children read most of them when imported."""
STOP_LIMIT = 30.0
"""Seconds that vLLM's processes have to exit before they are killed; its own 5 are too few on a busy CPU, where it
leaves shared memory behind."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Largest adapter ranks that vLLM can be started for."""


def largest_rank(rank: int) -> int:
    """Returns the smallest of `RANKS` that an adapter fits."""
    return next((largest for largest in RANKS if rank <= largest), rank)


class VllmModel(EngineModel):
    """A model in vLLM's engine in this process, like `vllm:` at a server. `settings` are those of `AsyncEngineArgs`.

    It uses defaults of the model's generation config (top-k, penalties), as vLLM's server does; `generation_config=
    "vllm"` leaves them out. Log-probabilities are before temperature and top-p, unless `logprobs_mode` is
    "processed_logprobs".

    Models with adapters of the same largest rank share an engine, which holds one adapter at a time on the device
    unless `max_loras` says more.
    """

    scheme: ClassVar[str] = "vllm-engine"

    async def _start(self) -> Engine:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        return _Vllm(
            {
                "model": self._source,
                "max_model_len": self._window,
                # Nobody reads them here, and counting takes time at each step.
                "disable_log_stats": True,
                **self._settings,
            }
        )

    def _allow(self, adapter: Path) -> dict[str, Any]:
        return {"enable_lora": True, "max_lora_rank": largest_rank(read_lora(adapter).rank)}


class _Vllm:
    def __init__(self, settings: dict[str, Any]) -> None:
        # By name: type checkers don't know vLLM, which is in none of our environments.
        self._vllm: Any = import_module("vllm")
        self._kinds: Any = import_module("vllm.sampling_params")
        engine: Any = import_module("vllm.v1.engine.async_llm").AsyncLLM
        self._engine: Any = engine.from_engine_args(self._vllm.AsyncEngineArgs(**settings))
        self._defaults: dict[str, Any] = self._engine.model_config.get_diff_sampling_param()
        self.window: int = self._engine.model_config.max_model_len
        self._numbers = itertools.count()
        self._adapters = dict[str, Any]()
        """vLLM's requests for adapters, by their folders."""

    async def draw(
        self, ids: tuple[int, ...], request: ChatRequest, ask: DrawOptions
    ) -> EngineReply:
        outcome: Any = None
        try:
            stream = self._engine.generate(
                self._vllm.TokensPrompt(prompt_token_ids=list(ids)),
                self._sampling(request, ask.tokens),
                str(next(self._numbers)),
                lora_request=ask.adapter and self._adapter(ask.adapter),
            )
            async for outcome in stream:  # noqa: B007 - a single one, at the end
                pass
        except Exception as error:  # anything from vLLM or its worker
            raise self._translate(error) from error
        (reply,) = outcome.outputs
        if reply.finish_reason not in FINISH:
            raise BadResponse(f"vLLM ended a reply early ({reply.finish_reason!r}); see its log")
        reply_ids = tuple(reply.token_ids)
        logprobs = (
            tuple(
                min(0.0, entry[i].logprob)
                for i, entry in zip(reply_ids, reply.logprobs, strict=True)
            )
            if ask.tokens
            else None
        )
        finish, cached = FINISH[reply.finish_reason], outcome.num_cached_tokens or 0
        return EngineReply(reply.text, reply_ids, logprobs, finish, cached)

    async def load(self, folder: str) -> None:
        try:
            await self._engine.collective_rpc("reload_weights", kwargs={"weights_path": folder})
            await self._engine.reset_prefix_cache()
        except Exception as error:  # anything from vLLM or its worker
            raise self._translate(error) from error

    def stop(self) -> None:
        # Otherwise it is deleted when Python ends, and complains.
        engine, self._engine = self._engine, None
        engine.shutdown(timeout=STOP_LIMIT)

    def _adapter(self, folder: str) -> Any:
        kind: Any = import_module("vllm.lora.request").LoRARequest
        number = len(self._adapters) + 1
        return self._adapters.setdefault(folder, kind(folder, number, folder))

    def _sampling(self, request: ChatRequest, tokens: bool) -> Any:
        kinds, pattern = self._kinds, request.pattern
        fields = {
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            "max_tokens": request.max_tokens,
            "seed": request.seed,
            "stop": list(request.stop),
            "logprobs": 0 if tokens else None,  # only that of the sampled token
            "structured_outputs": pattern and kinds.StructuredOutputsParams(regex=pattern),
            "output_kind": kinds.RequestOutputKind.FINAL_ONLY,
        }
        return kinds.SamplingParams(**self._defaults | fields)

    def _translate(self, error: Exception) -> ModelError:
        if self._engine is None or self._engine.errored:
            return EngineFailed(
                "vLLM's engine died (its log is on standard error): the next call starts another"
            )
        if isinstance(error, ValueError):
            return RequestRefused(f"vLLM refuses the request: {error}")
        return ModelError(f"vLLM failed: {type(error).__name__}: {error}")
