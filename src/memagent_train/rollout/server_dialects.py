"""Requests of each kind of server: ids in, ids and log-probabilities out, new weights and adapters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from memagent.messages import FinishReason, Sampling
from memagent_engines.transformers.sampler import Sampled

Engine = Literal["vllm", "sglang"]


PLAIN = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Settings for unmodified sampling: for what a request leaves out, vLLM uses the model's `generation_config.json`, and
SGLang `--preferred-sampling-params`."""


@dataclass(frozen=True)
class Dialect:
    """The requests for one kind of server."""

    path: str
    """Path of the completion endpoint."""
    ask: Callable[[Sequence[int], int, Sampling, int | None], dict[str, Any]]
    """Builds the request's body, without a model name, from P prompt ids, maximum new tokens, sampling and seed."""
    read: Callable[[Mapping[str, Any]], Sampled]
    load: Callable[[str, str], Sequence[tuple[str, dict[str, Any]]]]
    """Maps a folder and a version to the requests, in order, that load its weights; the last one sets the version."""
    version: str
    """Path that returns the version of the weights, which differs from ours after a restart of the server."""
    adapters: str
    """Path of the endpoints that load and unload adapters."""
    adapter: str
    """Field of a completion's body that names the adapter."""


def _ask_vllm(
    prompt_ids: Sequence[int], max_tokens: int, sampling: Sampling, seed: int | None
) -> dict[str, Any]:
    body: dict[str, Any] = PLAIN | {
        "prompt": list(prompt_ids),
        "max_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "logprobs": 0,  # only those of the sampled ids
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
    drawn = PLAIN | {
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
    reasons = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH}
    return reasons.get(reason or "", FinishReason.OTHER)


DIALECTS: dict[Engine, Dialect] = {
    "vllm": Dialect(
        path="/v1/completions",
        ask=_ask_vllm,
        read=_read_vllm,
        # All of these exist only in development mode (VLLM_SERVER_DEV_MODE=1).
        load=lambda folder, version: [
            (
                "/collective_rpc",
                {"method": "reload_weights", "kwargs": {"weights_path": folder}},
            ),
            ("/reset_prefix_cache", {}),
            ("/update_weight_version", {"new_version": version}),
        ],
        version="/weight_info",
        adapters="/v1/",
        adapter="model",
    ),
    "sglang": Dialect(
        path="/generate",
        ask=_ask_sglang,
        read=_read_sglang,
        load=lambda folder, version: [
            (
                "/update_weights_from_disk",
                {"model_path": folder, "flush_cache": True, "weight_version": version},
            )
        ],
        version="/model_info",
        adapters="/",
        adapter="lora_path",
    ),
}
