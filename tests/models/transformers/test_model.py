import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.transformers.folders import model_folder
from tests.models.transformers.policies import policy, request, tokenizer

from memagent.errors import ConfigError, ContextOverflow, ModelError
from memagent.messages import FinishReason, Sampling, ToolSpec
from memagent.models.policy import policy_of
from memagent_engines.transformers import loading
from memagent_engines.transformers.model import TransformersModel
from memagent_engines.transformers.padded import PaddedSampler

GREEDY = Sampling(temperature=0)
WARM = Sampling(temperature=1.0, top_p=1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_folder(tmp_path_factory.mktemp("model"))


def drawing_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "memagent-padded"]


async def test_a_reply_is_what_the_weights_say(folder: Path) -> None:
    model = TransformersModel(folder, tokens=True)
    reply = await model.complete(request("Who came?", sampling=GREEDY))
    names, weights = tokenizer(), policy().eval()
    prompt = names.apply_chat_template(
        [{"role": "user", "content": "Who came?"}], add_generation_prompt=True, return_tensors="pt"
    )["input_ids"]
    whole: Any = weights
    ids = prompt
    for _ in range(8):
        following = whole(ids).logits[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, following], dim=-1)
        if following.item() == 2:
            break
    wanted = ids[0, prompt.shape[1] :].tolist()
    assert reply.tokens is not None
    assert list(reply.tokens.sampled) == wanted
    assert reply.text == names.decode(wanted, skip_special_tokens=True)
    assert reply.usage.prompt_tokens == prompt.shape[1]
    assert reply.usage.completion_tokens == len(wanted)
    await model.aclose()


async def test_seeds_and_sampling_are_those_of_the_request(folder: Path) -> None:
    model = TransformersModel(folder)

    async def drawn(seed: int | None, **sampling: float) -> str:
        asked = request(
            "Who came?", seed=seed, max_tokens=12, sampling=Sampling(**({"top_p": 1.0} | sampling))
        )
        return (await model.complete(asked)).text

    first = await drawn(1, temperature=1.0)
    assert first == await drawn(1, temperature=1.0)
    assert len({await drawn(seed, temperature=1.0) for seed in range(4)}) == 4
    assert len({await drawn(seed, temperature=1.0, top_p=0.001) for seed in range(4)}) == 1
    assert len({await drawn(seed, temperature=0) for seed in range(4)}) == 1
    assert await drawn(None, temperature=1.0) != await drawn(None, temperature=1.0)
    await model.aclose()


async def test_a_seeded_draw_is_the_same_in_company(folder: Path) -> None:
    model = TransformersModel(folder)
    asked = [request(f"Who is {n}?" * (n + 1), seed=n, sampling=WARM) for n in range(6)]
    alone = [(await model.complete(one)).text for one in asked]
    together = await asyncio.gather(*map(model.complete, asked))
    assert [one.text for one in together] == alone
    await model.aclose()


async def test_a_prompt_over_the_window_is_refused_before_anything_is_computed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = TransformersModel(folder, window=100)
    counter = await model.counter()
    ask = request("word " * 40)
    used = counter.count_messages(ask.messages)
    fits = ask.model_copy(update={"max_tokens": 100 - used})
    assert (await model.complete(fits)).usage.prompt_tokens == used
    monkeypatch.setattr(PaddedSampler, "sample", None)
    with pytest.raises(ContextOverflow, match="window of 100"):
        await model.complete(ask.model_copy(update={"max_tokens": 101 - used}))
    await model.aclose()


async def test_the_window_is_the_configs_or_a_smaller_one(folder: Path) -> None:
    for asked, wanted in ((None, 1024), (1024, 1024), (64, 64)):
        model = TransformersModel(folder, window=asked)
        assert await model.window() == wanted
        await model.aclose()
    for asked, why in ((0, "at least 1 token, got 0"), (1025, "window=1025.*1 to 1024")):
        with pytest.raises(ConfigError, match=why):
            await TransformersModel(folder, window=asked).window()
    assert drawing_threads() == []


async def test_a_cancelled_call_lets_the_others_go_on(folder: Path) -> None:
    model = TransformersModel(folder)
    long = request("Who came?", max_tokens=60, seed=1, sampling=WARM)
    await model.complete(request("warm up", max_tokens=1))
    calls = [asyncio.create_task(model.complete(long)) for _ in range(3)]
    await asyncio.sleep(0.02)
    calls[1].cancel()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(done[1], asyncio.CancelledError)
    assert done[0] == done[2]
    assert not isinstance(done[0], BaseException)
    await model.aclose()


async def test_the_thread_ends_with_the_model_and_what_waits_fails(folder: Path) -> None:
    model = TransformersModel(folder)
    await model.complete(request("Who?", max_tokens=1))
    assert len(drawing_threads()) == 1
    late = asyncio.create_task(
        model.complete(request("Who?", max_tokens=900, seed=1, sampling=WARM))
    )
    await asyncio.sleep(0.05)
    await model.aclose()
    await model.aclose()
    assert drawing_threads() == []
    for call in (late, model.complete(request("Who?"))):
        with pytest.raises(ModelError, match=": open it again"):
            await call


async def test_a_model_that_is_closed_while_it_loads_leaves_no_thread(folder: Path) -> None:
    model = TransformersModel(folder)
    call = asyncio.create_task(model.complete(request("Who?")))
    await asyncio.sleep(0)
    await model.aclose()
    with pytest.raises(ModelError, match="closed"):
        await call
    assert drawing_threads() == []


async def test_a_model_is_loaded_once_though_its_first_caller_is_cancelled(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[object] = []
    began, may = threading.Event(), threading.Event()
    load = loading.load

    def late(source: str, **options: Any) -> Any:
        loads.append(source)
        began.set()
        may.wait()
        return load(source, **options)

    monkeypatch.setattr(loading, "load", late)
    model = TransformersModel(folder)
    first = asyncio.create_task(model.window())
    await asyncio.to_thread(began.wait)
    first.cancel()
    asyncio.get_running_loop().call_soon(may.set)
    assert await model.window() == 1024
    assert first.cancelled()
    assert len(loads) == len(drawing_threads()) == 1
    await model.aclose()


async def test_calls_of_several_event_loops_share_one_engine(folder: Path) -> None:
    model = TransformersModel(folder)
    ask = request("Who came?", seed=3, sampling=WARM)
    texts: list[str] = []

    def elsewhere() -> None:
        texts.append(asyncio.run(model.complete(ask)).text)

    threads = [threading.Thread(target=elsewhere) for _ in range(2)]
    for thread in threads:
        thread.start()
    texts.append((await model.complete(ask)).text)
    await asyncio.to_thread(lambda: [thread.join() for thread in threads])
    assert len(texts) == 3
    assert len(set(texts)) == 1
    assert len(drawing_threads()) == 1
    await model.aclose()


async def test_a_tokenizer_without_a_template_is_refused(tmp_path: Path) -> None:
    folder = model_folder(tmp_path)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    config = folder / "tokenizer_config.json"
    fields = json.loads(config.read_text())
    fields.pop("chat_template", None)
    config.write_text(json.dumps(fields))
    with pytest.raises(ConfigError, match="no chat template"):
        await TransformersModel(folder).window()


async def test_a_reply_says_why_it_ended(folder: Path) -> None:
    model = TransformersModel(folder)
    replies = [
        await model.complete(request("Who?", seed=n, max_tokens=3, sampling=WARM)) for n in range(3)
    ]
    for reply in replies:
        full = reply.usage.completion_tokens == 3
        assert full or reply.finish_reason is FinishReason.STOP
    assert any(reply.finish_reason is FinishReason.LENGTH for reply in replies)
    assert replies[0].tokens is None
    await model.aclose()


def test_a_folder_brings_its_settings_and_a_name_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    assert policy_of(TransformersModel(tmp_path)).window is None
    (tmp_path / "memagent.toml").write_text("window = 90")
    assert policy_of(TransformersModel(tmp_path)).window == 90
    (tmp_path / "memagent.toml").write_text("window = 0")
    with pytest.raises(ConfigError, match=r"memagent\.toml.*window must be greater than 0, got 0"):
        TransformersModel(tmp_path)
    assert policy_of(TransformersModel("Qwen/Qwen3-0.6B")).reading() == {}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("max_stepps = 9", r"no setting 'tools\.max_stepps'; did you mean 'tools\.max_steps'"),
        ("max_steps = 0", r"tools\.max_steps must be greater than 0, got 0"),
        ('prompts = "../mine.toml"', r"prompts = '\.\./mine\.toml': give the name"),
    ],
)
def test_a_bad_setting_for_tools_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / "memagent.toml").write_text(f"[tools]\n{line}\n")
    with pytest.raises(ConfigError, match=r"memagent\.toml.*" + message):
        TransformersModel(tmp_path)


async def test_tools_that_may_not_be_called_are_in_the_prompt(tmp_path: Path) -> None:
    folder = model_folder(tmp_path)
    names = tokenizer()
    shown = "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
    names.chat_template = shown + "{{ messages[-1].content }}"
    names.save_pretrained(folder)
    model = TransformersModel(folder)
    asked = request("Who came?", tools=(ToolSpec(name="look"),)).model_copy(
        update={"tool_choice": "none"}
    )
    counted = (await model.counter()).count_messages(asked.messages, tools=asked.tools)
    plain = (await model.counter()).count_messages(asked.messages)
    assert (await model.complete(asked)).usage.prompt_tokens == counted > plain
    await model.aclose()


async def test_tools_are_refused_before_anything_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "load", None)
    model = TransformersModel(folder)
    with pytest.raises(ConfigError, match="text protocol"):
        await model.complete(request("Who came?", tools=(ToolSpec(name="look"),)))
    with pytest.raises(TypeError):  # what loading would do here
        await model.complete(request("Who came?"))
    await model.aclose()
