"""Servers as samplers: token ids in, token ids out, and weights loaded from a folder."""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

from memagent.errors import BadResponse, ConfigError, ConnectionFailed, RequestTimeout
from memagent.messages import Message, Sampling
from memagent.models.retry import patiently
from memagent.models.router import Router
from memagent.threads import in_thread
from memagent_engines.transformers.sampler import Sampled
from memagent_train.rollout.remote import RemoteSampler
from memagent_train.rollout.server import CLIP, RolloutServer, SentWeights
from memagent_train.rollout.server_dialects import DIALECTS, Engine


class ServedSampler(RemoteSampler):
    """Samples from vLLM or SGLang servers, which get the trainer's weights through a folder that all of them can read.

    vLLM must run with `VLLM_SERVER_DEV_MODE=1` (for adapters with `VLLM_ALLOW_RUNTIME_LORA_UPDATING=1` and
    `--enable-lora` instead), and with `--logprobs-mode processed_logprobs` if the
    temperature isn't 1 (otherwise its log-probabilities ignore it).

    Args:
        engine: `vllm` or `sglang`.
        urls: roots of the servers, such as `http://127.0.0.1:8000`, or of a single one; a trailing `/v1` is dropped.
            A `Router` chooses among several.
        window: maximum tokens of prompt plus output.
        api_key: the key of all servers.
        timeout: seconds that one request may take.

    Raises:
        ConfigError: the engine is unknown, or a URL is invalid.
    """

    def __init__(
        self,
        engine: Engine,
        urls: str | Sequence[str],
        *,
        window: int,
        api_key: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        if engine not in DIALECTS:
            raise ConfigError(
                f"the engine {engine!r} is unknown; give one of {', '.join(DIALECTS)}"
            )
        roots = [urls] if isinstance(urls, str) else list(urls)
        for url in roots or [""]:
            if not url.startswith(("http://", "https://")):
                raise ConfigError(
                    f"the server's URL {url!r} is invalid; give one such as 'http://127.0.0.1:8000'"
                )
        super().__init__(window)
        self._dialect = DIALECTS[engine]
        self._servers = [
            RolloutServer(
                engine,
                self._dialect,
                url.rstrip("/").removesuffix("/v1"),
                api_key=api_key,
                timeout=timeout,
            )
            for url in roots
        ]
        self._router = Router(self._servers)
        self._name = ", ".join(server.name for server in self._servers)
        self.sent: SentWeights | None = None
        """The weights loaded last."""

    def serves(self, weights: SentWeights) -> None:
        """Records which weights the servers should have, after another process made them load these."""
        self.sent = weights
        for server in self._servers:
            server.weights = weights

    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        """Continues P ids by at most `max_tokens`; waits a while if no server can be reached.

        A server that comes back may be a new process with its initial weights, so the latest ones are loaded first.

        Raises:
            ModelError: no server can be reached, a server refuses, or its reply has no ids and log-probabilities.
        """
        body = self._dialect.ask(prompt_ids, max_tokens, sampling, seed)
        # The router compares texts: numbers with a common beginning stand for ids with one.
        text = (Message(role="user", content=" ".join(map(str, prompt_ids))),)

        async def draw() -> dict[str, Any]:
            async with self._router.turn(text, len(prompt_ids) + max_tokens) as server:
                return await cast("RolloutServer", server).draw(body)

        with self.meter.computing():  # the servers' own work isn't visible from here
            reply = await patiently(draw, name=self._name)
        try:
            sampled = self._dialect.read(reply)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise BadResponse(
                f"{self._name}: the reply has no token ids and log-probabilities: {str(reply)[:CLIP]!r}"
            ) from error
        if len(sampled.ids) != len(sampled.logprobs):
            raise BadResponse(
                f"{self._name}: {len(sampled.ids)} ids came with {len(sampled.logprobs)} log-probabilities"
            )
        return sampled

    async def load(self, folder: Path) -> None:
        """Makes all servers load the weights from a folder that they can read. No request may be in flight.

        A folder written by peft has an adapter for the weights that the servers started with. They know it by the
        folder's name, so another adapter needs another name.

        Once all servers have had weights, unreachable ones are skipped: they get theirs when they are back. If none can
        be reached, it waits for them. On a CPU, vLLM keeps the old output layer if it is tied to the embedding.

        Raises:
            ConfigError: the folder has no weights (vLLM would crash).
            ModelError: a server can't be reached, can't load them, or was started without the options for it.
        """
        weights = await in_thread(SentWeights.find, folder)
        if all(server.weights for server in self._servers):
            await patiently(partial(self._load, weights, needed=1), name=self._name)
        else:
            await self._load(weights, needed=len(self._servers))

    async def aclose(self) -> None:
        """Closes the connections of this event loop."""
        for server in self._servers:
            await server.aclose()

    async def _load(self, weights: SentWeights, needed: int) -> None:
        loads = (server.load(weights) for server in self._servers)
        failures = await asyncio.gather(*loads, return_exceptions=True)
        away = [isinstance(outcome, (ConnectionFailed, RequestTimeout)) for outcome in failures]
        enough = away.count(False) >= needed
        for failure, gone in zip(failures, away, strict=True):
            if failure is not None and not (gone and enough):
                raise failure
        self.serves(weights)
