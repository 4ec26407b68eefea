"""A server as a sampler: token ids in, token ids out, and weights loaded from a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

import httpx

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ConfigError,
    ConnectionFailed,
    ModelError,
    RequestRefused,
    RequestTimeout,
    ServerBusy,
    ServerFailed,
)
from memagent.messages import FinishReason, Sampling
from memagent.models.openai_client import KEEP_SECONDS
from memagent.models.retry import patiently
from memagent.models.sharing import PerLoop
from memagent.threads import in_thread
from memagent_engines.transformers.sampler import Sampled
from memagent_train.rollout.meter import Meter

Engine = Literal["vllm", "sglang"]
CLIP = 300
"""Characters kept of a server's message."""


@dataclass(frozen=True)
class Dialect:
    """The requests for one kind of server."""

    path: str
    """Path of the completion endpoint."""
    ask: Callable[[Sequence[int], int, Sampling, int | None], dict[str, Any]]
    """P prompt ids, maximum new tokens, sampling, seed -> the request's body, without a model name."""
    read: Callable[[Mapping[str, Any]], Sampled]
    load: Callable[[str], Sequence[tuple[str, dict[str, Any]]]]
    """A folder -> the requests, in order, that load its weights."""


def _ask_vllm(
    prompt_ids: Sequence[int], max_tokens: int, sampling: Sampling, seed: int | None
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "prompt": list(prompt_ids),
        "max_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "logprobs": 0,  # those of the sampled ids alone
        "return_token_ids": True,
    }
    return body if seed is None else body | {"seed": seed}


def _read_vllm(reply: Mapping[str, Any]) -> Sampled:
    choice = reply["choices"][0]
    return Sampled(
        ids=tuple(choice["token_ids"]),
        logprobs=tuple(choice["logprobs"]["token_logprobs"]),
        finish=_finish(choice["finish_reason"]),
    )


def _ask_sglang(
    prompt_ids: Sequence[int], max_tokens: int, sampling: Sampling, seed: int | None
) -> dict[str, Any]:
    drawn = {
        "max_new_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    if seed is not None:
        drawn["sampling_seed"] = seed
    return {"input_ids": list(prompt_ids), "sampling_params": drawn, "return_logprob": True}


def _read_sglang(reply: Mapping[str, Any]) -> Sampled:
    entries = reply["meta_info"]["output_token_logprobs"]
    return Sampled(
        ids=tuple(int(entry[1]) for entry in entries),
        logprobs=tuple(float(entry[0]) for entry in entries),
        finish=_finish(reply["meta_info"]["finish_reason"]["type"]),
    )


def _finish(reason: str | None) -> FinishReason:
    known = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}
    return known.get(reason or "", FinishReason.OTHER)


DIALECTS: dict[Engine, Dialect] = {
    "vllm": Dialect(
        path="/v1/completions",
        ask=_ask_vllm,
        read=_read_vllm,
        # Both exist only in development mode (VLLM_SERVER_DEV_MODE=1).
        load=lambda folder: [
            (
                "/collective_rpc",
                {"method": "reload_weights", "kwargs": {"weights_path": folder}},
            ),
            ("/reset_prefix_cache", {}),
        ],
    ),
    "sglang": Dialect(
        path="/generate",
        ask=_ask_sglang,
        read=_read_sglang,
        load=lambda folder: [
            ("/update_weights_from_disk", {"model_path": folder, "flush_cache": True})
        ],
    ),
}


class ServedSampler:
    """Samples from a vLLM or SGLang server, which gets the trainer's weights through a folder that both can read.

    vLLM must run with `VLLM_SERVER_DEV_MODE=1`, and with `--logprobs-mode processed_logprobs` if the
    temperature isn't 1 (otherwise its log-probabilities ignore it).

    Args:
        engine: `vllm` or `sglang`.
        url: the server's root, such as `http://127.0.0.1:8000`; a trailing `/v1` is dropped.
        window: maximum tokens of prompt plus output.
        api_key: the server's key.
        timeout: seconds that one request may take.

    Raises:
        ConfigError: the engine is unknown, or the URL is invalid.
    """

    def __init__(
        self,
        engine: Engine,
        url: str,
        *,
        window: int,
        api_key: str | None = None,
        timeout: float = 600.0,
    ) -> None:
        if engine not in DIALECTS:
            raise ConfigError(
                f"the engine {engine!r} is unknown; give one of {', '.join(DIALECTS)}"
            )
        if not url.startswith(("http://", "https://")):
            raise ConfigError(
                f"the server's URL {url!r} is invalid; give one such as 'http://127.0.0.1:8000'"
            )
        self.window = window
        self.meter = Meter()
        self._dialect = DIALECTS[engine]
        self._root = url.rstrip("/").removesuffix("/v1")
        self._clients = PerLoop(
            lambda: httpx.AsyncClient(
                base_url=self._root,
                headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
                timeout=httpx.Timeout(timeout, connect=10.0, pool=None),
                limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_SECONDS),
            )
        )
        self._name = f"{engine} at {self._root}"
        self._weights: Path | None = None
        self._losses = self._restored = 0
        self._restoring = PerLoop(asyncio.Lock)

    @contextmanager
    def generating(self) -> Iterator[None]:
        """Does nothing: the server's weights change only in `load`."""
        yield

    def serves(self, folder: Path) -> None:
        """Records which weights the server has, after another process had it load them."""
        self._weights = folder

    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        """Continues P ids by up to `max_tokens`; waits for a server that is temporarily down.

        A server that comes back may be a new process with its initial weights, so the latest ones are loaded first.

        Raises:
            ModelError: the server can't be reached, refuses, or its reply has no ids and log-probabilities.
        """
        body = self._dialect.ask(prompt_ids, max_tokens, sampling, seed)
        with self.meter.computing():  # what the server does meanwhile is not seen from here
            reply = await patiently(lambda: self._ask(body), name=self._name)
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
        """Makes the server load the weights from a folder that it can read. No request may be in flight.

        On a CPU, vLLM keeps the old output layer if it is tied to the embedding.

        Raises:
            ConfigError: the folder has no weights (vLLM would crash).
            ModelError: it can't be reached, can't load them, or has no such endpoint (vLLM outside development mode).
        """
        whole = await in_thread(folder.absolute)
        if not await in_thread(_holds_weights, whole):
            raise ConfigError(
                f"{str(folder)!r} has no weights (*.safetensors); save the policy there first"
            )
        for path, body in self._dialect.load(str(whole)):
            try:
                reply = await self._post(path, body)
            except RequestRefused as error:
                raise RequestRefused(
                    f"{error}. Weights are loaded through {path}: vLLM enables it with VLLM_SERVER_DEV_MODE=1"
                ) from error
            if reply.get("success") is False:
                raise ServerFailed(f"{self._name}: {path}: {str(reply)[:CLIP]}")
        self.serves(folder)

    async def aclose(self) -> None:
        """Closes the connections of this event loop."""
        for _, client in self._clients.take_all():
            await client.aclose()

    async def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        while True:
            async with self._restoring.get():
                if self._restored < self._losses and self._weights is not None:
                    losses = self._losses
                    await self.load(self._weights)
                    self._restored = losses
            losses = self._losses
            try:
                reply = await self._post(self._dialect.path, body)
            except ConnectionFailed:
                self._losses += 1
                raise
            if losses == self._losses:
                return reply
            # Another request failed meanwhile: this reply may be from a new process with its initial weights.

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            response = await self._clients.get().post(path, json=body)
        except httpx.TimeoutException as error:
            raise RequestTimeout(f"{self._name}: {path} took too long ({error!r})") from error
        except httpx.TransportError as error:
            raise ConnectionFailed(
                f"{self._name}: {path}: {error!r}; is the server running?"
            ) from error
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            raise _choose_error(response.status_code)(
                f"{self._name}: {path}: {response.status_code} {response.text[:CLIP]}"
            )
        if not response.content:
            return {}
        try:
            reply = response.json()
        except ValueError as error:
            raise BadResponse(
                f"{self._name}: {path}: {response.text[:CLIP]!r} is not JSON"
            ) from error
        return reply if isinstance(reply, dict) else {"reply": reply}


def _holds_weights(folder: Path) -> bool:
    return any(folder.glob("*.safetensors"))


def _choose_error(status: int) -> type[ModelError]:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return AuthenticationFailed
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return ServerBusy
    return ServerFailed if status >= HTTPStatus.INTERNAL_SERVER_ERROR else RequestRefused
