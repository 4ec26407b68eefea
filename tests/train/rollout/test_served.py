"""What a server says becomes samples or typed errors, over real sockets. Engines: tests/engines/test_weights.py."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.models.chat_server import Behaviour, Script, hang_up, running, send

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ConfigError,
    ConnectionFailed,
    RequestRefused,
    ServerFailed,
)
from memagent.messages import FinishReason, Sampling
from memagent.models import retry
from memagent_train.rollout.served import ServedSampler
from memagent_train.rollout.settings import RolloutSettings
from memagent_train.runs.engine import open_sampler
from memagent_train.smoke.model import tiny_model
from memagent_train.smoke.tokenizer import word_tokenizer

DRAWN = Sampling(temperature=1.0, top_p=1.0)


def vllm(ids: list[int], logprobs: list[float], finish: str = "stop") -> Behaviour:
    choice: dict[str, Any] = {"token_ids": ids, "logprobs": {"token_logprobs": logprobs}}
    return send(200, {"choices": [choice | {"finish_reason": finish}]})


def whole() -> dict[str, Behaviour]:
    """What a vLLM server that has just started says to whole weights."""
    versions = ["default"]

    def change(handler: Any) -> None:
        versions.append(handler.body["new_version"])
        send(200, {})(handler)

    def tell(handler: Any) -> None:
        send(200, {"weight_version": versions[-1]})(handler)

    taken = {"/collective_rpc": send(200, {}), "/reset_prefix_cache": send(200, b"")}
    return {**taken, "/update_weight_version": change, "/weight_info": tell}


@pytest.fixture
def server() -> Iterator[Script]:
    with running() as script:
        yield script


@pytest.fixture
async def sampler(server: Script) -> AsyncIterator[ServedSampler]:
    made = ServedSampler("vllm", server.url, window=100)
    yield made
    await made.aclose()


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    (tmp_path / "model.safetensors").touch()
    return tmp_path


async def test_a_folder_without_weights_is_not_sent(
    server: Script, sampler: ServedSampler, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="no weights"):
        await sampler.load(tmp_path)
    assert not server.asked


async def test_ids_go_in_and_come_out(server: Script, sampler: ServedSampler) -> None:
    server.others["/v1/completions"] = vllm([7, 8], [-0.5, -1.0], "length")
    sampled = await sampler.sample((1, 2, 3), max_tokens=2, sampling=DRAWN, seed=9)
    assert (sampled.ids, sampled.logprobs) == ((7, 8), (-0.5, -1.0))
    assert sampled.finish == FinishReason.LENGTH
    path, body = server.asked[-1]
    assert path == "/v1/completions"
    assert body["prompt"] == [1, 2, 3]
    assert (body["seed"], body["temperature"], body["max_tokens"]) == (9, 1.0, 2)


async def test_sglang_has_a_door_of_its_own(server: Script) -> None:
    said = {"output_token_logprobs": [[-0.25, 5, None]], "finish_reason": {"type": "stop"}}
    server.others["/generate"] = send(200, {"text": "x", "meta_info": said})
    sampler = ServedSampler("sglang", server.url, window=100)
    sampled = await sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=None)
    await sampler.aclose()
    assert (sampled.ids, sampled.logprobs, sampled.finish) == ((5,), (-0.25,), FinishReason.STOP)
    assert "sampling_seed" not in server.asked[-1][1]["sampling_params"]


async def test_defaults_of_the_model_do_not_shape_what_is_sampled(
    server: Script, sampler: ServedSampler
) -> None:
    server.others["/v1/completions"] = vllm([7], [-0.5])
    await sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=None)
    body = server.asked[-1][1]
    assert (body["top_k"], body["min_p"], body["repetition_penalty"]) == (-1, 0.0, 1.0)


async def test_the_key_comes_from_the_environment(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMAGENT_API_KEY", "s3cret")
    keys: list[str | None] = []

    def check(handler: Any) -> None:
        keys.append(handler.headers["Authorization"])
        vllm([7], [-0.5])(handler)

    server.others["/v1/completions"] = check
    settings = RolloutSettings(engine="vllm", base_url=server.url, window=64)
    tokenizer = word_tokenizer()
    model = await asyncio.to_thread(tiny_model, tokenizer, seed=0)
    sampler = open_sampler(settings, model, tokenizer)
    assert isinstance(sampler, ServedSampler)
    await sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=None)
    await sampler.aclose()
    assert keys == ["Bearer s3cret"]


@pytest.mark.parametrize(
    "reply",
    [
        send(200, {"choices": []}),
        send(200, {"choices": [{"token_ids": None, "logprobs": None, "finish_reason": "stop"}]}),
        vllm([1, 2], [-0.5]),
    ],
    ids=["nothing", "no ids", "another number"],
)
async def test_a_reply_without_ids_is_an_error(
    server: Script, sampler: ServedSampler, reply: Behaviour
) -> None:
    server.others["/v1/completions"] = reply
    with pytest.raises(BadResponse):
        await sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=None)


async def test_a_refusal_is_not_repeated(server: Script, sampler: ServedSampler) -> None:
    server.others["/v1/completions"] = send(400, {"message": "no such token"})
    with pytest.raises(RequestRefused, match="no such token"):
        await sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=None)
    server.others["/v1/completions"] = send(401, {})
    with pytest.raises(AuthenticationFailed):
        await sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=None)
    assert len(server.asked) == 2


async def test_a_server_that_fails_once_is_asked_again(
    server: Script, sampler: ServedSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(_: float) -> None:
        server.others["/v1/completions"] = vllm([7], [-0.5])

    monkeypatch.setattr(retry, "sleep", at_once)
    server.others["/v1/completions"] = send(500, {"message": "oops"})
    sampled = await sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=None)
    assert sampled.ids == (7,)


async def test_loading_names_the_folder_and_says_what_failed(
    server: Script, sampler: ServedSampler, weights: Path
) -> None:
    with pytest.raises(RequestRefused, match="VLLM_SERVER_DEV_MODE=1"):
        await sampler.load(weights)
    server.others = whole()
    await sampler.load(weights)
    sent = [body for path, body in server.asked if path == "/collective_rpc"][-1]
    assert sent["kwargs"] == {"weights_path": str(weights)}
    server.others["/collective_rpc"] = send(200, {"success": False, "message": "no such file"})
    with pytest.raises(ServerFailed, match="no such file"):
        await sampler.load(weights)


GATEWAY = [send(status, {"error": "upstream connect error"}) for status in (502, 503, 504)]


@pytest.mark.parametrize("away", [None, hang_up, *GATEWAY], ids=["-", "none", "502", "503", "504"])
async def test_a_server_that_was_restarted_gets_the_weights_again_also_if_nobody_asked_it_meanwhile(
    server: Script,
    sampler: ServedSampler,
    weights: Path,
    monkeypatch: pytest.MonkeyPatch,
    away: Behaviour | None,
) -> None:
    served: list[str] = []

    def start() -> None:
        served.append("its first weights")
        server.others = whole() | {"/collective_rpc": loaded, "/v1/completions": drawn}

    async def at_once(_: float) -> None:
        start()

    def loaded(handler: Any) -> None:
        served.append(handler.body["kwargs"]["weights_path"])
        send(200, {})(handler)

    def drawn(handler: Any) -> None:
        vllm([7], [-1.0 if served[-1] == str(weights) else -9.0])(handler)

    monkeypatch.setattr("memagent_train.rollout.server.RESTARTS", 0.0)
    monkeypatch.setattr(retry, "sleep", at_once)
    start()
    await sampler.load(weights)
    if away:
        server.others["/v1/completions"] = away
        await sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=None)
    else:
        start()
    calls = (sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=n) for n in range(3))
    assert [one.logprobs for one in await asyncio.gather(*calls)] == [(-1.0,)] * 3
    assert served == ["its first weights", str(weights)] * 2


async def test_a_server_that_drew_a_moment_ago_is_not_asked_for_its_version(
    server: Script, sampler: ServedSampler, weights: Path
) -> None:
    server.others = whole() | {"/v1/completions": vllm([7], [-1.0])}
    for _ in range(2):  # other weights are another matter
        await sampler.load(weights)
        for seed in range(3):
            await sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=seed)
    assert calls(server, "/weight_info") == 2
    assert calls(server) == 6


async def test_the_version_of_weights_at_sglang(
    server: Script, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent_train.rollout.server.RESTARTS", 0.0)
    said = {"output_token_logprobs": [[-0.25, 5, None]], "finish_reason": {"type": "stop"}}
    info = {"weight_version": "default"}

    def loaded(handler: Any) -> None:
        info["weight_version"] = handler.body["weight_version"]
        send(200, {"success": True})(handler)

    server.others = {
        "/generate": send(200, {"meta_info": said}),
        "/update_weights_from_disk": loaded,
        "/model_info": send(200, info),
    }
    sampler = ServedSampler("sglang", server.url, window=100)
    await sampler.load(weights)
    for loads in (1, 1, 2):
        await sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=None)
        assert len(server.of("/update_weights_from_disk")) == loads
        if len(server.of("/generate")) == 2:
            info["weight_version"] = "default"
    await sampler.aclose()


@pytest.fixture
def two() -> Iterator[tuple[Script, Script]]:
    """Servers that take weights, and draw 1 and 2."""
    with running() as first, running() as second:
        for number, script in enumerate((first, second), start=1):
            script.others = {**whole(), "/v1/completions": vllm([number], [-0.5])}
        yield first, second


def calls(script: Script, path: str = "/v1/completions") -> int:
    return sum(asked == path for asked, _ in script.asked)


async def test_each_of_several_servers_gets_weights_and_a_conversation_stays_at_one(
    two: tuple[Script, Script], weights: Path
) -> None:
    sampler = ServedSampler("vllm", [server.url for server in two], window=9000)
    await sampler.load(weights)
    assert [calls(server, "/collective_rpc") for server in two] == [1, 1]
    prompts = [tuple(range(at, at + 500)) for at in (1000, 3000)]
    drawn = [sampler.sample(p, max_tokens=4, sampling=DRAWN, seed=None) for p in prompts]
    first = [(await one).ids for one in asyncio.as_completed(drawn)]
    assert sorted(first) == [(1,), (2,)]
    for _ in range(4):
        said = [
            await sampler.sample(prompt, max_tokens=4, sampling=DRAWN, seed=None)
            for prompt in prompts
        ]
        assert len({one.ids for one in said}) == 2
        prompts = [(*p, *one.ids, 7, 8, 9) for p, one in zip(prompts, said, strict=True)]
    assert [calls(server) for server in two] == [5, 5]
    await sampler.aclose()


async def test_a_server_that_died_is_left_out_until_it_is_back_and_then_gets_the_weights(
    two: tuple[Script, Script], weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent_train.rollout.server.RESTARTS", 0.0)
    # A busy machine takes its time between two calls, and to answer.
    monkeypatch.setattr("memagent.models.router.FIRST_REST", 3.0)
    monkeypatch.setattr("memagent.models.router.ANSWERS_WITHIN", 60.0)
    sampler = ServedSampler("vllm", [server.url for server in two], window=9000)
    await sampler.load(weights)
    dead, _ = two
    draws = dead.others["/v1/completions"]
    dead.others = whole() | {"/v1/completions": hang_up}
    both = [sampler.sample((n,), max_tokens=4, sampling=DRAWN, seed=n) for n in (1, 2)]
    assert [one.ids for one in await asyncio.gather(*both)] == [(2,), (2,)]
    died = len(dead.asked)
    await sampler.sample((3,), max_tokens=4, sampling=DRAWN, seed=3)
    assert len(dead.asked) == died  # not asked meanwhile
    dead.others["/v1/completions"] = draws
    await asyncio.sleep(3.1)
    both = [sampler.sample((n,), max_tokens=4, sampling=DRAWN, seed=n) for n in (4, 5)]
    assert {one.ids for one in await asyncio.gather(*both)} == {(1,), (2,)}
    assert [calls(server, "/collective_rpc") for server in two] == [2, 1]
    await sampler.aclose()


@pytest.mark.parametrize("away", [hang_up, GATEWAY[0]], ids=["none", "502"])
async def test_new_weights_do_not_wait_for_a_server_that_died(
    two: tuple[Script, Script], weights: Path, away: Behaviour
) -> None:
    urls = [server.url for server in two]
    sampler, other = (ServedSampler("vllm", urls, window=9000) for _ in range(2))
    await sampler.load(weights)
    dead, _ = two
    loads = dead.others["/collective_rpc"]
    dead.others["/collective_rpc"] = away
    await asyncio.wait_for(sampler.load(weights), 5)
    dead.others["/collective_rpc"] = loads
    assert sampler.sent is not None
    other.serves(sampler.sent)  # as another process of the trainer, which is told
    for one in (other, sampler):
        both = [one.sample((n,), max_tokens=4, sampling=DRAWN, seed=n) for n in (1, 2)]
        assert {one.ids for one in await asyncio.gather(*both)} == {(1,), (2,)}
        await one.aclose()
    asked = [path for path, _ in dead.asked if path in ("/collective_rpc", "/v1/completions")]
    # Not with the old weights, and only from who finds it without.
    assert asked == ["/collective_rpc"] * 3 + ["/v1/completions"] * 2


class Adapting:
    """Answers as a server of an engine that takes adapters, and draws with the one that a request names."""

    def __init__(self, script: Script, engine: str) -> None:
        self.script, self.adapters = script, dict[str, str]()
        self.field, prefix = ("model", "/v1/") if engine == "vllm" else ("lora_path", "/")
        draws = "/v1/completions" if engine == "vllm" else "/generate"
        script.others = {
            f"{prefix}load_lora_adapter": self.load,
            f"{prefix}unload_lora_adapter": self.unload,
            draws: self.draw,
        }

    def load(self, handler: Any) -> None:
        name = handler.body["lora_name"]
        if name in self.adapters:
            send(400, {"error_message": f"Failed: {name} is already loaded"})(handler)
        else:
            self.adapters[name] = handler.body["lora_path"]
            send(200, f"Success: LoRA adapter '{name}' added successfully.".encode())(handler)

    def unload(self, handler: Any) -> None:
        there = self.adapters.pop(handler.body["lora_name"], None)
        send(200 if there else 404, b"Success" if there else {})(handler)

    def draw(self, handler: Any) -> None:
        name = handler.body[self.field]
        if name not in self.adapters:
            send(404, {"message": f"The model `{name}` does not exist."})(handler)
            return
        drawn, told = [len(name)], [-0.5]
        meta = {
            "output_token_logprobs": [[-0.5, len(name), None]],
            "finish_reason": {"type": "stop"},
        }
        choice = {"token_ids": drawn, "logprobs": {"token_logprobs": told}, "finish_reason": "stop"}
        send(200, {"choices": [choice], "meta_info": meta})(handler)


def adapter(folder: Path) -> Path:
    folder.mkdir()
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_an_adapter_is_loaded_in_place_of_the_one_before_and_named_by_requests(
    server: Script, tmp_path: Path, engine: Any
) -> None:
    adapting = Adapting(server, engine)
    sampler = ServedSampler(engine, server.url, window=100)
    for name in ("first", "second-one"):
        await sampler.load(adapter(tmp_path / name))
        assert adapting.adapters == {name: str(tmp_path / name)}
        sampled = await sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=None)
        assert sampled.ids == (len(name),)
    # One that restarts unnoticed, or that another process of the trainer has told already.
    adapting.adapters.clear()
    calls = (sampler.sample((1,), max_tokens=4, sampling=DRAWN, seed=n) for n in range(3))
    assert {one.ids for one in await asyncio.gather(*calls)} == {(len("second-one"),)}
    await sampler.load(tmp_path / "second-one")
    assert list(adapting.adapters) == ["second-one"]
    await sampler.aclose()


async def test_each_of_several_servers_gets_the_adapter_and_one_that_was_away_gets_it_back(
    two: tuple[Script, Script], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Adapting(script, "vllm") for script in two)
    sampler = ServedSampler("vllm", [script.url for script in two], window=9000)
    await sampler.load(adapter(tmp_path / "first"))
    loads = first.script.others["/v1/load_lora_adapter"]
    first.script.others["/v1/load_lora_adapter"] = hang_up
    await sampler.load(adapter(tmp_path / "second"))
    assert [list(one.adapters) for one in (first, second)] == [["first"], ["second"]]
    first.script.others["/v1/load_lora_adapter"] = loads
    both = [sampler.sample((n,), max_tokens=4, sampling=DRAWN, seed=n) for n in (1, 2)]
    assert [one.ids for one in await asyncio.gather(*both)] == [(len("second"),)] * 2
    assert "second" in first.adapters
    await sampler.aclose()


async def test_a_server_that_takes_no_adapters_is_named_with_what_it_lacks(
    server: Script, sampler: ServedSampler, tmp_path: Path
) -> None:
    adapter(tmp_path / "one")
    for status, kind in ((404, RequestRefused), (500, ServerFailed)):
        refusal = send(status, {"message": "LoRA rank 32 is greater than max_lora_rank 16."})
        server.others["/v1/load_lora_adapter"] = refusal
        with pytest.raises(kind, match=r"rank 16.*--enable-lora.*rollout\.weights = 'model'"):
            await sampler.load(tmp_path / "one")


async def test_a_first_load_needs_every_server(weights: Path, server: Script) -> None:
    server.others = whole()
    sampler = ServedSampler("vllm", [server.url, "http://127.0.0.1:9"], window=100)
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:9"):
        await sampler.load(weights)
    await sampler.aclose()


async def test_nobody_there_is_said(weights: Path) -> None:
    sampler = ServedSampler("vllm", "http://127.0.0.1:9", window=100)
    with pytest.raises(ConnectionFailed, match="is the server running"):
        await sampler.load(weights)
    await sampler.aclose()


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="'tgi'"):
        ServedSampler("tgi", "http://x", window=100)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="is invalid"):
        ServedSampler("vllm", "127.0.0.1", window=100)
