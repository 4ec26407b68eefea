"""The servers themselves: they start, answer, and leave nothing behind."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import cast

import httpx
import pytest
from tests.engines import groups
from tests.engines.fixtures import API_KEY, WINDOW, StartServer
from tests.engines.metrics import Metrics
from tests.engines.servers import EngineServer, ServerDied

from memagent.models.dialects import DIALECTS, DialectName

ROOT = Path(__file__).resolve().parents[2]
KEY = {"Authorization": f"Bearer {API_KEY}"}
ANSWERED = {"vllm": "vllm:request_success_total", "sglang": "sglang:num_requests_total"}


def chat(server: EngineServer, **fields: object) -> httpx.Response:
    messages = [{"role": "user", "content": "Where was the prince in 1812? " * 40}]
    body = {"model": server.model, "messages": messages, "max_tokens": 5, **fields}
    return httpx.post(f"{server.url}/chat/completions", json=body, headers=KEY, timeout=60)


def test_it_answers_and_reports_its_window(engine: EngineServer) -> None:
    models = httpx.get(f"{engine.url}/models", headers=KEY).json()["data"]
    assert [(model["id"], model["max_model_len"]) for model in models] == [("tiny", WINDOW)]
    answer = chat(engine).raise_for_status().json()
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["choices"][0]["finish_reason"] == "length"


def test_it_reports_what_it_does(engine: EngineServer) -> None:
    before, requests = engine.metrics(), engine.requests()
    usages = [chat(engine).raise_for_status().json()["usage"] for _ in range(2)]
    assert usages[1]["prompt_tokens_details"]["cached_tokens"] > 100
    assert engine.requests() == requests + 2
    name = ANSWERED[engine.engine]
    assert engine.metrics().total(name) == before.total(name) + 2
    assert engine.metrics().total(name, model_name="another") == 0
    assert engine.running() == 0


def test_its_template_honours_enable_thinking(engine: EngineServer) -> None:
    tokens = [
        chat(engine, chat_template_kwargs=kwargs).json()["usage"]["prompt_tokens"]
        for kwargs in ({}, {"enable_thinking": True}, {"enable_thinking": False})
    ]
    assert tokens[0] == tokens[1] < tokens[2]


def test_it_goes_on_where_an_assistants_message_ends(engine: EngineServer) -> None:
    asked = [{"role": "user", "content": "Where was the prince?"}]
    begun = [*asked, {"role": "assistant", "content": "The prince was"}]
    fields = DIALECTS[cast("DialectName", engine.engine)].continues
    plain, continued, closed = (
        chat(engine, **body).raise_for_status().json()["usage"]["prompt_tokens"]
        for body in ({"messages": asked}, {"messages": begun, **fields}, {"messages": begun})
    )
    assert plain < continued < closed, "without the fields the turn is closed and another begun"


def test_it_asks_for_the_key(engine: EngineServer) -> None:
    assert httpx.get(f"{engine.url}/models").status_code == 401


def test_many_long_requests_fit_at_once(engine: EngineServer) -> None:
    """64 requests of 1,500 tokens: the cache of the tiny model is large enough for them."""
    if engine.engine == "sglang":
        size = int(engine.metrics().total("sglang:max_total_num_tokens"))
    else:
        log = engine.log.read_text(encoding="utf-8")
        size = int(log.rpartition("KV cache size: ")[2].partition(" tokens")[0].replace(",", ""))
    assert size >= 64 * 1500


@pytest.mark.timeout(600)
def test_a_server_that_ends_leaves_nothing(start_server: StartServer) -> None:
    """Stopped, started again on the same port with another window, killed."""
    server = start_server(window=1024, api_key=API_KEY)
    url = server.url
    for end, window in ((server.stop, 1024), (server.kill, 1500)):
        server = server if server.alive else server.start(window=window)
        models = httpx.get(f"{url}/models", headers=KEY).json()["data"]
        assert models[0]["max_model_len"] == server.window == window
        assert chat(server).is_success
        group = server.group
        assert group
        processes = groups.members(group)
        assert len(processes) > 1
        held = groups.shared_memory(processes)
        end()
        assert groups.members(group) == []
        assert not [path for path in held if path.exists()]
        assert not server.alive
        with pytest.raises(httpx.ConnectError):
            chat(server)


@pytest.mark.timeout(600)
def test_tests_that_are_killed_leave_no_server(engine: EngineServer, tmp_path: Path) -> None:
    script = f"""
        import sys, time
        from pathlib import Path
        from tests.engines.servers import EngineServer
        server = EngineServer({engine.engine!r}, Path(sys.argv[1])).start()
        print(server.group, flush=True)
        time.sleep(600)
    """
    tests = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "log")],
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert tests.stdout
    group = int(tests.stdout.readline())
    held = groups.shared_memory(groups.members(group))
    tests.send_signal(signal.SIGKILL)
    tests.communicate()
    assert groups.wait_for_end(group, 10.0)
    assert not [path for path in held if path.exists()]


def test_a_server_that_cannot_start_shows_why(start_server: StartServer) -> None:
    with pytest.raises(ServerDied, match="--no-such-flag") as died:
        start_server(flags=["--no-such-flag"])
    assert "ended with status" in str(died.value)


def test_metrics_are_read_with_their_labels() -> None:
    text = '# TYPE a:b gauge\na:b{x="1",y="}\\"{ "} 2\na:b{x="2",y=""} 3.5e0\nplain NaN\n'
    metrics = Metrics.parse(text)
    assert len(metrics) == 3
    assert metrics.total("a:b") == 5.5
    assert metrics.total("a:b", x="1") == 2
    assert metrics.total("a:b", x="3") == metrics.total("a") == 0
