"""A policy that a real server samples from: its log-probabilities are the model's, before and after new weights."""

import asyncio
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import httpx
import pytest
from tests.engines import commands, venvs
from tests.engines.fixtures import StartServer
from tests.engines.servers import EngineServer

from memagent.errors import ConfigError, RequestRefused
from memagent.messages import FinishReason, Sampling
from memagent_engines.transformers.sampler import Sampled
from memagent_train.rollout.served import ServedSampler

HERE = Path(__file__).parent
WINDOW = 2048
PROMPT = tuple(range(40, 80))
DRAWN = Sampling(temperature=1.0, top_p=1.0)
MODEL_FLAG = {"vllm": "--model", "sglang": "--model-path"}
CLOSE = 2e-3
"""Between an engine's kernels and transformers', both in 32 bits."""


@pytest.fixture(scope="module")
def folders(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Two models that differ in nothing but their weights."""
    made = [tmp_path_factory.mktemp("weights") / "model" for _ in range(2)]
    for seed, folder in enumerate(made):
        run(str(request.config.getoption("--engine")), "tiny_model.py", str(folder), str(seed))
    return made[0], made[1]


def run(engine: str, script: str, *arguments: str) -> str:
    """Runs a script of this folder in the engine's venv, and returns the last line that it prints."""
    command = [str(venvs.python_of(engine)), str(HERE / script), *arguments]
    with tempfile.TemporaryDirectory() as folder:
        env = commands.environment(engine, Path(folder))
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return done.stdout.rpartition("\n")[0].rpartition("\n")[2]


@pytest.fixture(scope="module")
def trainable(
    request: pytest.FixtureRequest, start_server: StartServer, folders: tuple[Path, Path]
) -> EngineServer:
    """A server that begins with the first model's weights, and lets them be changed."""
    return start_trainable(request, start_server, folders[0])


def start_trainable(
    request: pytest.FixtureRequest, start_server: StartServer, folder: Path, *flags: str
) -> EngineServer:
    return start_server(
        window=WINDOW,
        # What comes last counts.
        flags=(MODEL_FLAG[str(request.config.getoption("--engine"))], str(folder), *flags),
        variables={"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"},
    )


def sampler_of(server: EngineServer, *others: EngineServer) -> ServedSampler:
    return ServedSampler(
        "vllm" if server.engine == "vllm" else "sglang",
        [server.root, *(other.root for other in others)],
        window=WINDOW,
    )


async def several(sampler: ServedSampler, n: int = 8) -> list[Sampled]:
    return await asyncio.gather(
        *(sampler.sample(PROMPT, max_tokens=12, sampling=DRAWN, seed=seed) for seed in range(n))
    )


def forward(server: EngineServer, folder: Path, sampled: Sampled) -> list[float]:
    ids = json.dumps([*PROMPT, *sampled.ids])
    return json.loads(run(server.engine, "forward.py", str(folder), ids, str(len(PROMPT))))


async def test_log_probabilities_are_those_of_the_weights_that_were_loaded_last(
    trainable: EngineServer, folders: tuple[Path, Path]
) -> None:
    sampler = sampler_of(trainable)
    try:
        first = (await several(sampler))[0]
        assert len(first.ids) == len(first.logprobs) > 0
        before = forward(trainable, folders[0], first)
        assert first.logprobs == pytest.approx(before, abs=CLOSE)

        await sampler.load(folders[1])
        second = (await several(sampler))[0]
        assert second.logprobs == pytest.approx(forward(trainable, folders[1], second), abs=CLOSE)
        # The old weights would have said something else.
        assert second.logprobs != pytest.approx(forward(trainable, folders[0], second), abs=0.1)
    finally:
        await sampler.load(folders[0])
        await sampler.aclose()


async def test_log_probabilities_are_those_of_an_adapter_or_weights_in_bfloat16(
    request: pytest.FixtureRequest,
    start_server: StartServer,
    folders: tuple[Path, Path],
    tmp_path: Path,
) -> None:
    base, engine = folders[1], str(request.config.getoption("--engine"))
    run(engine, "variants.py", str(base), str(tmp_path))
    flags = ("--enable-lora", "--max-lora-rank", "8") if engine == "vllm" else ()
    server = start_trainable(request, start_server, base, *flags)
    sampler = sampler_of(server)
    try:
        if engine == "vllm":
            await adapted(server, sampler, tmp_path)
        else:  # on GPUs only
            with pytest.raises(RequestRefused, match=r"not enabled.*rollout\.weights = 'model'"):
                await sampler.load(tmp_path / "adapter")
        await sampler.load(tmp_path / "bfloat16")
        drawn = (await several(sampler))[0]
        half = forward(server, tmp_path / "bfloat16", drawn)
        assert drawn.logprobs == pytest.approx(half, abs=CLOSE)
        assert half != forward(server, base, drawn)
    finally:
        await sampler.aclose()
        server.stop()


async def adapted(server: EngineServer, sampler: ServedSampler, folder: Path) -> None:
    """Draws with an adapter, also once the server has forgotten it, as a restarted one has."""
    for _ in range(2):
        await sampler.load(folder / "adapter")
        drawn = await several(sampler)
        merged = forward(server, folder / "merged", drawn[0])
        assert drawn[0].logprobs == pytest.approx(merged, abs=CLOSE)
        unlike = forward(server, folder / "bfloat16", drawn[0])
        assert drawn[0].logprobs != pytest.approx(unlike, abs=0.1)
        async with httpx.AsyncClient(base_url=server.url) as http:
            gone = await http.post("/unload_lora_adapter", json={"lora_name": "adapter"})
            assert gone.is_success
        assert await several(sampler) == drawn
    for name in ("second", "third"):
        shutil.copytree(folder / "adapter", folder / name)
        await sampler.load(folder / name)
    async with httpx.AsyncClient(base_url=server.url) as http:
        listed = (await http.get("/models")).json()["data"]
    assert {one["id"] for one in listed} == {server.model, "third"}


async def test_each_of_two_servers_gets_the_weights(
    request: pytest.FixtureRequest,
    trainable: EngineServer,
    start_server: StartServer,
    folders: tuple[Path, Path],
) -> None:
    other = start_trainable(request, start_server, folders[0])
    both, *alone = (sampler_of(trainable, other), sampler_of(trainable), sampler_of(other))
    try:
        await both.load(folders[1])
        for sampler in (*alone, both):
            drawn = (await several(sampler, 1))[0]
            assert drawn.logprobs == pytest.approx(forward(other, folders[1], drawn), abs=CLOSE)
    finally:
        await both.load(folders[0])
        for sampler in (both, *alone):
            await sampler.aclose()
        other.stop()


async def test_a_server_that_restarted_while_nobody_asked_it_gets_the_weights_again(
    request: pytest.FixtureRequest, start_server: StartServer, folders: tuple[Path, Path]
) -> None:
    server = start_trainable(request, start_server, folders[0])
    sampler = sampler_of(server)
    try:
        await sampler.load(folders[1])
        before = (await several(sampler, 1))[0]
        await asyncio.to_thread(server.restart)
        after = (await several(sampler, 1))[0]
        assert after.ids == before.ids
        assert after.logprobs == pytest.approx(before.logprobs, abs=CLOSE)
    finally:
        await sampler.aclose()
        server.stop()


async def test_the_end_of_a_reply_is_told_from_a_cut(trainable: EngineServer) -> None:
    sampler = sampler_of(trainable)
    try:
        cut = await sampler.sample(PROMPT, max_tokens=3, sampling=DRAWN, seed=1)
        assert (len(cut.ids), cut.finish) == (3, FinishReason.LENGTH)
        drawn = await several(sampler, 2)
        assert drawn[0].ids != drawn[1].ids
    finally:
        await sampler.aclose()


async def test_weights_that_are_not_there_are_an_error_and_the_server_goes_on(
    trainable: EngineServer, tmp_path: Path
) -> None:
    sampler = sampler_of(trainable)
    try:
        with pytest.raises(ConfigError, match="no weights"):
            await sampler.load(tmp_path / "nowhere")
        assert (await several(sampler, 1))[0].ids
    finally:
        await sampler.aclose()
