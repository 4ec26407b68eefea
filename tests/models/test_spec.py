import asyncio
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.models.chat_server import TOKENIZER, Script, send, slow
from tests.models.test_openai import request

from memagent import Limits, MemoryAgent
from memagent.errors import (
    AuthenticationFailed,
    ConfigError,
    NoModel,
    RequestTimeout,
    RunMismatch,
    ServerBusy,
)
from memagent.messages import ChatRequest, Message
from memagent.models.base import ChatModel
from memagent.models.counting import Counted
from memagent.models.openai import OpenAIModel
from memagent.models.retry import Retry, RetryPolicy
from memagent.models.scripted import ScriptedModel
from memagent.models.spec import LOCAL_URLS, open_model
from memagent.tokens import ByteBound, TokenizerFile
from memagent_engines.extractive import ExtractiveModel

REQUEST = ChatRequest(messages=(Message(role="user", content="x"),), max_tokens=5, thinking=False)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def url_of(model: ChatModel) -> str:
    assert isinstance(model, Retry)
    assert isinstance(model.inner, OpenAIModel)
    return repr(model.inner).split("base_url='")[1].rstrip("')")


@pytest.mark.parametrize(
    ("spec", "url"),
    [
        ("vllm:Qwen/Qwen3-4B", "http://localhost:8000/v1"),
        ("sglang:a:b", "http://localhost:30000/v1"),
        ("ollama:qwen3:4b", "http://localhost:11434/v1"),
    ],
)
def test_local_servers(spec: str, url: str) -> None:
    model = open_model(spec)
    assert model.name == spec
    assert url_of(model) == url


def test_where_the_url_comes_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".env").write_text("OPENAI_BASE_URL=http://file-o/v1\nOTHER=1\n")
    assert url_of(open_model("vllm:m")) == "http://file-o/v1"
    (folder / ".env").write_text(
        "OPENAI_BASE_URL=http://file-o/v1\nMEMAGENT_BASE_URL=http://file-m/v1"
    )
    assert url_of(open_model("vllm:m")) == "http://file-m/v1"
    monkeypatch.setenv("MEMAGENT_BASE_URL", "http://env-m/v1")
    assert url_of(open_model("sglang:m")) == "http://env-m/v1"
    assert url_of(open_model("vllm:m", base_url="http://arg/v1")) == "http://arg/v1"
    assert open_model("openai:m").name == "openai:m"


def urls_behind(model: ChatModel) -> list[str]:
    assert isinstance(model, Retry)
    assert isinstance(model.inner, OpenAIModel)
    return [one.endpoint.base_url for one in model.inner.servers]


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("http://a/v1", ["http://a/v1"]),
        ("http://a/v1,https://b/v1", ["http://a/v1", "https://b/v1"]),
        (" http://a/v1 , HTTP://b/v1,", ["http://a/v1", "http://b/v1"]),
        ("http://a/v1\n  http://b/v1\n", ["http://a/v1", "http://b/v1"]),
        ("http://me:se,cret@a/v1,http://b/v1", ["http://a/v1", "http://b/v1"]),
        ("http://me:p@a/v1 http://me:q@b/v1", ["http://a/v1", "http://b/v1"]),
    ],
    ids=["one", "two", "spaces", "lines", "comma in a password", "users"],
)
def test_several_servers_in_a_text(
    folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, urls: list[str]
) -> None:
    def found(**options: Any) -> list[str]:
        return [url.lower() for url in urls_behind(open_model("vllm:m", **options))]

    assert found(base_url=text) == urls
    monkeypatch.setenv("OPENAI_BASE_URL", text)
    assert found() == urls
    monkeypatch.delenv("OPENAI_BASE_URL")
    (folder / ".env").write_text(f'MEMAGENT_BASE_URL="{text}"\n')
    assert found() == urls
    assert found(base_url="http://c/v1") == ["http://c/v1"]


@pytest.mark.parametrize("scheme", ["vllm", "sglang", "openai"])
def test_several_servers_in_a_list(scheme: str) -> None:
    urls = ["http://a/v1", "http://b/v1", "http://c/v1"]
    assert urls_behind(open_model(f"{scheme}:m", base_url=urls)) == urls
    assert urls_behind(open_model(f"{scheme}:m", base_url=tuple(urls))) == urls
    with pytest.raises(ConfigError, match="empty list"):
        open_model(f"{scheme}:m", base_url=[])
    with pytest.raises(ConfigError, match=r"'localhost:8000/v1' does not start with http"):
        open_model(f"{scheme}:m", base_url=["http://a/v1", "localhost:8000/v1"])


async def test_one_key_goes_to_all_servers_of_a_list(
    server: Script, second: Script, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMAGENT_API_KEY", "sk-real-key")
    monkeypatch.setenv("MEMAGENT_BASE_URL", f"{server.url},{second.url}")

    async def keys(**options: Any) -> set[str]:
        model = open_model("vllm:m", **options)
        for one in (server, second):
            one.default = slow(0.2)
        await asyncio.gather(model.complete(REQUEST), model.complete(REQUEST))
        await model.aclose()
        return {one.headers[-1]["authorization"] for one in (server, second)}

    assert await keys() == {"Bearer sk-real-key"}
    assert await keys(api_key="sk-argument") == {"Bearer sk-argument"}
    monkeypatch.delenv("MEMAGENT_BASE_URL")
    (folder / ".env").write_text(f"MEMAGENT_BASE_URL={server.url},{second.url}\n")
    assert await keys() == {"Bearer EMPTY"}


def test_no_secret_of_a_list_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = "http://me:hunter21@a/v1,http://you:hunter22@b/v1"
    (folder / ".env").write_text(f"OPENAI_BASE_URL={text}\n")
    monkeypatch.setenv("MEMAGENT_API_KEY", "sk-secret-key")
    shown = repr(open_model("vllm:m")) + repr(open_model("vllm:m", base_url=text, api_key=""))
    assert "sk-secret-key" not in shown
    assert "'http://a/v1', 'http://b/v1'" in caplog.text
    for bad in (
        f"{text},http://me:hunter23@",
        f"{text},ftp://me:hunter24@c",
        "http://a/v1,me:hunter25@b",
    ):
        with pytest.raises(ConfigError) as caught:
            open_model("vllm:m", base_url=bad, api_key="")
        shown += str(caught.value)
    with pytest.raises(ConfigError) as caught:
        open_model("vllm:m", api_key="sk-argument")
    shown += str(caught.value) + caplog.text
    for secret in ("hunter", "sk-", "me:", "you:"):
        assert secret not in shown


async def test_a_tokenizer_may_be_named_for_every_kind_of_model() -> None:
    assert (await open_model("extractive", tokenizer="bytes").counter()).name == ByteBound().name
    scripted = ScriptedModel([], counter=ByteBound())
    model = open_model(scripted, tokenizer=TOKENIZER)
    assert isinstance(model, Counted)
    assert isinstance(await model.counter(), TokenizerFile)
    assert open_model("extractive").name == open_model("extractive", tokenizer="bytes").name


async def test_key_and_dialect_reach_the_server(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sent(spec: str, **options: Any) -> tuple[str, dict[str, Any]]:
        model = open_model(spec, base_url=server.url, **options)
        await model.complete(REQUEST)
        await model.aclose()
        return server.headers[-1]["authorization"], server.bodies[-1]

    key, body = await sent("vllm:m")
    assert key == "Bearer EMPTY"
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    key, body = await sent("openai:m")
    assert key == "Bearer sk-openai"
    assert body["max_tokens"] == 5
    assert "chat_template_kwargs" not in body
    monkeypatch.setenv("MEMAGENT_API_KEY", "sk-memagent")
    assert (await sent("sglang:m"))[0] == "Bearer sk-memagent"
    assert (await sent("sglang:m", api_key="sk-arg"))[0] == "Bearer sk-arg"


async def key_sent(server: Script, spec: str = "vllm:m", **options: Any) -> str:
    model = open_model(spec, **options)
    await model.complete(REQUEST)
    await model.aclose()
    return server.headers[-1]["authorization"].removeprefix("Bearer ")


@pytest.mark.parametrize("variable", ["MEMAGENT", "OPENAI"])
async def test_a_key_of_the_environment_goes_nowhere_that_only_a_file_names(
    server: Script,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
) -> None:
    monkeypatch.setenv(f"{variable}_API_KEY", "sk-real-key")
    (folder / ".env").write_text(f"MEMAGENT_BASE_URL={server.url}\n")
    for spec in ("vllm:m", "sglang:m", "openai:m"):
        assert await key_sent(server, spec) == "EMPTY"
    assert f"{variable}_API_KEY from the environment is not sent" in caplog.text
    assert "sk-real-key" not in caplog.text
    with pytest.raises(ConfigError, match="give the URL as base_url=") as caught:
        open_model("vllm:m", api_key="sk-argument")
    assert "sk-argument" not in str(caught.value)
    caplog.clear()
    open_model("extractive")  # which has no server
    assert caplog.text == ""
    # The file's own key may go where the file says.
    (folder / ".env").write_text(f"OPENAI_API_KEY=sk-file\nMEMAGENT_BASE_URL={server.url}\n")
    assert await key_sent(server) == "sk-file"
    # The user's own word for the same place lets the user's own key through.
    assert await key_sent(server, base_url=server.url) == "sk-real-key"
    monkeypatch.setenv("MEMAGENT_BASE_URL", server.url)
    assert await key_sent(server) == "sk-real-key"
    assert await key_sent(server, api_key="sk-argument") == "sk-argument"


@pytest.mark.parametrize(
    "name", ["Authorization", "proxy-authorization", "api-key", "X-Auth-Token", "Cookie"]
)
def test_a_header_with_a_key_goes_nowhere_that_only_a_file_names(folder: Path, name: str) -> None:
    (folder / ".env").write_text("MEMAGENT_BASE_URL=http://host/v1\n")
    headers = {"X-Team": "blue", name: "sk-argument"}
    with pytest.raises(ConfigError, match=f"the header '{name}' would be sent to") as caught:
        open_model("vllm:m", headers=headers)
    assert "sk-argument" not in str(caught.value)
    open_model("vllm:m", headers={"X-Team": "blue"})
    open_model("vllm:m", headers=headers, base_url="http://host/v1")


@pytest.mark.parametrize(
    ("url", "key"),
    [("http://host/${OPENAI_API_KEY}/v1", "k"), ("http://host", "${OPENAI_API_KEY}")],
)
def test_a_file_expands_no_secret_of_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch, url: str, key: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-key")
    (folder / ".env").write_text(f"MEMAGENT_BASE_URL={url}\nMEMAGENT_API_KEY={key}\n")
    with pytest.raises(ConfigError, match="write the value itself") as caught:
        open_model("openai:m")
    assert "sk-real-key" not in str(caught.value)


async def test_what_the_environment_sets_needs_no_expanding(
    server: Script, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-key")
    (folder / ".env").write_text("OPENAI_API_KEY=${OPENAI_API_KEY}\n")
    assert await key_sent(server, base_url=server.url) == "sk-real-key"
    (folder / ".env").write_text(
        f"OPENAI_API_KEY=${{OPENAI_API_KEY}}\nMEMAGENT_BASE_URL={server.url}\n"
    )
    assert await key_sent(server) == "EMPTY"


def test_a_file_may_come_from_windows(folder: Path) -> None:
    (folder / ".env").write_bytes(b'\xef\xbb\xbfMEMAGENT_MODEL="vllm:m"\r\n')
    assert open_model().name == "vllm:m"


async def test_a_key_of_the_file_goes_where_the_user_says(
    server: Script, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".env").write_text("OPENAI_API_KEY=sk-file\n")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert await key_sent(server) == "sk-file"
    assert open_model("openai:m", base_url="https://api.openai.com/v1").name == "openai:m"


@pytest.mark.parametrize("scheme", ["vllm", "sglang"])
async def test_the_openai_key_is_not_for_whoever_listens_on_localhost(
    server: Script, folder: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setitem(LOCAL_URLS, scheme, server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    (folder / ".env").write_text("OPENAI_API_KEY=sk-file\n")
    assert await key_sent(server, f"{scheme}:m") == "EMPTY"
    monkeypatch.setenv("MEMAGENT_API_KEY", "sk-memagent")
    assert await key_sent(server, f"{scheme}:m") == "sk-memagent"
    monkeypatch.delenv("MEMAGENT_API_KEY")
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert await key_sent(server, f"{scheme}:m") == "sk-openai"


def test_the_openai_api(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AuthenticationFailed, match="OPENAI_API_KEY"):
        open_model("openai:gpt-x")
    with pytest.raises(AuthenticationFailed):
        open_model("openai:gpt-x", base_url="https://api.openai.com/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-key")
    model = open_model("openai:gpt-x")
    assert url_of(model) == "https://api.openai.com/v1"
    assert "sk-secret" not in repr(model)


async def test_extractive() -> None:
    model = open_model("extractive")
    assert isinstance(model, ExtractiveModel)
    small = open_model("extractive", window=4096)
    assert await small.window() == 4096
    assert await open_model("vllm:m", window=77).window() == 77


def test_the_model_may_come_from_the_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / ".env").write_text("MEMAGENT_MODEL=vllm:from-file\n")
    assert open_model().name == "vllm:from-file"
    monkeypatch.setenv("MEMAGENT_MODEL", "extractive")
    assert open_model().name == "extractive"
    monkeypatch.setenv("MEMAGENT_MODEL", "")
    assert open_model().name == "vllm:from-file"


@pytest.mark.parametrize("spec", [None, "", "  "])
def test_no_model(spec: str | None) -> None:
    with pytest.raises(NoModel) as caught:
        open_model(spec)
    for word in (
        "--model",
        "MEMAGENT_MODEL",
        ".env",
        "vllm:NAME",
        "'extractive'",
        "without a server",
    ):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("Qwen/Qwen3-4B", "vllm:Qwen/Qwen3-4B"),
        ("vlm:Qwen", "vllm:Qwen"),
        ("qwen3:4b", "ollama:qwen3:4b"),
        ("gpt-4", "openai:gpt-4"),
        ("olama:llama3", "ollama:llama3"),
        ("vllm-engin:Qwen", "vllm-engine:Qwen"),
        ("sglang-engin:Qwen", "sglang-engine:Qwen"),
        ("extractiv", "extractive"),
        ("OpenAI:gpt", "openai:gpt"),
    ],
)
def test_a_bare_name_is_not_guessed(spec: str, meant: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_model(spec)
    assert repr(spec) in str(caught.value)
    assert f"did you mean {meant!r}" in str(caught.value)


UNSERVED = ("extractive", "transformers:m", "vllm-engine:m")


@pytest.mark.parametrize(
    ("spec", "options", "words"),
    [
        ("vllm:", {}, "no name"),
        ("vllm:  ", {}, "no name"),
        ("extractive:x", {}, "takes no name"),
        ("extractive", {"base_url": "http://h/v1"}, "base_url="),
        ("vllm:m", {"base_url": "localhost:8000/v1"}, "localhost:8000/v1.*http://"),
        ("vllm:m", {"base_url": "http://a/v1,,http://b/v1"}, "the base URL '' does not start"),
        ("vllm-engine:m", {"base_url": "http://h/v1"}, "needs no server, so base_url="),
        ("vllm-engine:./nowhere", {}, "there is no folder"),
        ("vllm-engine:~nobody-here/model", {}, "there is no folder"),
        ("sglang-engine:./nowhere", {}, "there is no folder"),
        *((of, {"window": 0}, "of at least 1 token, got 0") for of in ("vllm:m", *UNSERVED)),
        *((of, {"window": "8k"}, "a whole number of .*, got '8k'") for of in UNSERVED),
        (ScriptedModel([]), {"api_key": "k", "window": 5}, "api_key=, window="),
    ],
)
def test_what_cannot_be_right(spec: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        open_model(spec, **options)


@pytest.mark.skipif(bool(find_spec("vllm")), reason="vLLM is here")
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_an_engine_that_is_not_installed(engine: str) -> None:
    model = open_model(f"{engine}-engine:owner/model")
    with pytest.raises(ConfigError, match="install the engine"):
        await model.window()
    await model.aclose()


def test_an_object_passes() -> None:
    model = ScriptedModel([])
    assert open_model(model) is model


def test_an_unreadable_env_file_is_named(folder: Path) -> None:
    (folder / ".env").write_bytes(b"MEMAGENT_MODEL=\xff\n")
    with pytest.raises(ConfigError, match=r"\.env"):
        open_model("vllm:m")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A folder that looks like a model's from outside."""
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def test_a_model_in_this_process(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(weights.parent)
    assert open_model("transformers:weights").name == f"transformers:{weights}"
    assert open_model("transformers:Qwen/Qwen3-0.6B").name == "transformers:Qwen/Qwen3-0.6B"
    with pytest.raises(ConfigError, match="base_url="):
        open_model("transformers:weights", base_url="http://h/v1")
    with pytest.raises(ConfigError, match="no name after the colon"):
        open_model("transformers:")
    for gone in ("./gone", "~/gone", "a/b/c"):
        with pytest.raises(ConfigError, match="there is no folder"):
            open_model(f"transformers:{gone}")
    (weights / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"no config\.json"):
        open_model("transformers:weights")


async def test_a_model_in_this_process_takes_an_extra(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    model = open_model(f"transformers:{weights}")
    with pytest.raises(
        ConfigError,
        match=r"needs the extra 'transformers': pip install 'path/to/memagent\[transformers\]'",
    ):
        await model.window()
    await model.aclose()


async def test_servers_take_time_headers_fields_and_retries(server: Script, second: Script) -> None:
    server.default = second.default = send(429, {"message": "slow"})
    for urls in (server.url, [server.url, second.url]):
        model = open_model(
            "openai:tiny",
            base_url=urls,
            timeout=5.0,
            headers={"X-Key": "word-very-secret"},
            extra_body={"top_k": 3, "seed": None},
            retry=RetryPolicy(attempts=2, max_wait=0.01),
        )
        with pytest.raises(ServerBusy) as caught:
            await model.complete(request(seed=1))
        assert caught.value.attempts == 2
        assert "word-very-secret" not in repr(model) + str(caught.value)
        await model.aclose()
    assert len(server.bodies) + len(second.bodies) == 4
    for body, headers in zip(server.bodies, server.headers, strict=True):
        assert body["top_k"] == 3
        assert "seed" not in body
        assert headers["x-key"] == "word-very-secret"
    server.default = slow(5)
    hung = open_model(
        "openai:tiny", base_url=server.url, timeout=0.2, retry=RetryPolicy(attempts=1)
    )
    with pytest.raises(RequestTimeout, match=r"0\.2 s"):
        await hung.complete(request())
    await hung.aclose()


@pytest.mark.parametrize(
    "given",
    [{"timeout": 5.0}, {"headers": {"a": "b"}}, {"extra_body": {}}, {"retry": RetryPolicy()}],
    ids=str,
)
def test_what_is_for_servers_is_refused_elsewhere(given: dict[str, Any]) -> None:
    for spec in ("extractive", ScriptedModel([])):
        with pytest.raises(ConfigError, match=f"{next(iter(given))}= has no effect"):
            open_model(spec, **given)


@pytest.mark.parametrize("module", ["smol", "transformers.model"])
def test_a_model_in_the_process_may_be_imported_first(module: str) -> None:
    """It knows memagent's models, which know how to open it."""
    subprocess.run([sys.executable, "-c", f"import memagent_engines.{module}"], check=True)


@pytest.mark.parametrize(
    "given",
    [
        {"base_url": 5},
        {"base_url": [None]},
        {"api_key": 5},
        {"headers": ["a"]},
        {"headers": {b"A": "5"}},
        {"extra_body": [1]},
        {"extra_body": {1: 2}},
        {"window": "2048"},
        {"window": 2048.5},
        {"timeout": "5"},
    ],
    ids=str,
)
def test_an_argument_of_another_type_is_a_wrong_setting(given: Any) -> None:
    name = next(iter(given)).replace("api_key", "API key")
    with pytest.raises(ConfigError, match=name):
        open_model("vllm:m", **given)


@pytest.mark.parametrize("other", [{"api_key": "sk-other-key", "top_k": 1}, {"top_k": 1}, None])
def test_a_run_is_bound_to_its_extra_body_which_is_not_stored(
    server: Script, folder: Path, other: Any
) -> None:
    body = {"api_key": "sk-very-secret", "top_k": 1}
    path, text = folder / "runs.sqlite", "Natasha marries Pierre. " * 300
    options: dict[str, Any] = {"base_url": server.url, "window": 2048, "tokenizer": "bytes"}
    for given, found, calls in ((body, other, 2), (other, body, 1)):
        agents = [
            MemoryAgent(
                open_model("openai:tiny", extra_body=extra, **options),
                store=path,
                limits=Limits(calls=calls),
            )
            for extra in (given, found, given)
        ]
        assert agents[0].ask(text, "Who?", run_id=f"r{calls}").answer is None
        with pytest.raises(RunMismatch, match=r"extra_body was .*, is "):
            agents[1].ask(text, "Who?", run_id=f"r{calls}")
        assert agents[2].ask(text, "Who?", run_id=f"r{calls}").answer is None
        for agent in agents:
            agent.close()
    stored = b"".join(file.read_bytes() for file in folder.glob("runs.sqlite*") if file.is_file())
    assert b"api_key, top_k (" in stored
    assert b"sk-very" not in stored
