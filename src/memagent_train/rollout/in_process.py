"""vLLM's and SGLang's engines in this process as samplers, with weights loaded from a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from memagent.errors import EngineFailed, ModelError
from memagent.messages import ChatRequest, Sampling
from memagent.threads import in_thread
from memagent_engines.in_process import EngineModel, find_weights
from memagent_engines.sglang import SglangModel
from memagent_engines.transformers.sampler import Sampled
from memagent_engines.vllm import VllmModel
from memagent_train.rollout.remote import RemoteSampler
from memagent_train.rollout.settings import InProcess

KINDS: Mapping[InProcess, type[EngineModel]] = {
    "vllm-engine": VllmModel,
    "sglang-engine": SglangModel,
}
SETTINGS: Mapping[InProcess, Mapping[str, Any]] = {
    # Log-probabilities as the trainer computes them: after temperature.
    "vllm-engine": {"logprobs_mode": "processed_logprobs"},
    "sglang-engine": {},
}


class EngineSampler(RemoteSampler):
    """Samples from an engine beside the trainer, in its environment and on its devices.

    The engine starts when the first weights are loaded. If it dies, it is restarted with the latest.

    Args:
        engine: kind of the engine.
        tokenizer: the model's, saved beside the weights.
        ends: ids that end a reply.
        window: maximum tokens of prompt plus output.
        settings: more arguments of the engine.
    """

    def __init__(
        self,
        engine: InProcess,
        tokenizer: Any,
        ends: Sequence[int],
        *,
        window: int,
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__(window)
        self._kind, self._settings = KINDS[engine], {**SETTINGS[engine], **settings}
        self._tokenizer, self._ends = tokenizer, list(ends)
        self._model: EngineModel | None = None

    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        """Continues P ids by at most `max_tokens`.

        Raises:
            EngineFailed: the engine did not start, or died twice.
            ModelError: the engine has no weights yet, or refuses the request.
        """
        model = self._model
        if model is None:
            raise ModelError("the engine has no weights yet: load some", attempts=0)
        request = ChatRequest(messages=(), max_tokens=max_tokens, sampling=sampling, seed=seed)
        with self.meter.computing():  # the engine's own work isn't visible from here
            try:
                drawn = await model.draw(prompt_ids, request)
            except EngineFailed:
                drawn = await model.draw(prompt_ids, request)  # by a restarted engine
        assert drawn.logprobs is not None
        return Sampled(drawn.ids, drawn.logprobs, drawn.finish)

    async def load(self, folder: Path) -> None:
        """Loads the weights in a folder, which must stay. No request may be in flight.

        On a CPU, vLLM keeps the old output layer if it is tied to the embedding.

        Raises:
            ConfigError: the folder has no weights, or a setting is unknown to the engine.
            EngineFailed: the engine did not start, or died twice.
            ModelError: the engine can't load them.
        """
        weights = await in_thread(find_weights, folder)
        await in_thread(self._complete, weights)
        if self._model is None:
            # `_complete` drops settings with which it would sample differently from the trainer (top-k, penalties).
            self._model = self._kind(weights, window=self.window, tokens=True, **self._settings)
            await self._model.window()
        else:
            try:
                await self._model.load(weights)
            except EngineFailed:
                await self._model.load(weights)  # by a restarted engine

    async def aclose(self) -> None:
        """Shuts down the engine."""
        if self._model is not None:
            await self._model.aclose()

    def _complete(self, folder: Path) -> None:
        """Adds the files that an engine needs beside the weights."""
        self._tokenizer.save_pretrained(folder)
        GenerationConfig(eos_token_id=self._ends).save_pretrained(folder)
