import pytest
from tests.models.chat_server import Script, say, send

from memagent import ScriptedModel
from memagent.errors import ConfigError, ConnectionFailed, ModelNotFound
from memagent.models.probe import Probe, probe
from memagent.models.spec import open_model


async def test_a_server_that_counts(server: Script) -> None:
    server.be_vllm()
    server.others["/version"] = send(200, {"version": "0.32.0"})
    server.default = say("ready")
    (found,) = await probe(open_model("openai:tiny", base_url=server.url))
    assert isinstance(found, Probe)
    assert (found.dialect, found.version, found.window) == ("vllm", "0.32.0", 2048)
    assert (found.counts, found.serves) == ("server", ("tiny",))
    assert (found.token_ids, found.thinking, found.pattern) == (True, True, True)
    assert (found.call.text, found.call.prompt_tokens) == ("ready", 11)
    assert found.call.counted > 11, "counted by the server's template, whatever the reply claims"
    (body,) = server.bodies
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


async def test_a_server_of_which_nothing_is_known(server: Script) -> None:
    server.default = say("ready")
    (found,) = await probe(open_model("openai:tiny", base_url=server.url))
    assert isinstance(found, Probe)
    assert (found.dialect, found.version, found.window) == ("plain", None, None)
    assert (found.counts, found.serves) == ("bytes", None)
    assert (found.token_ids, found.thinking, found.pattern) == (False, False, False)


VLLM = 'vllm:cache_config_info{engine="0",mamba_block_size="None"} 1.0\n'
HYBRID = VLLM.replace("None", "2048")
VLLM_DRAFTS = 'vllm:spec_decode_num_drafts_total{engine="0",model_name="tiny"} 0.0\n'
SGLANG = '{"launch_command": "{\\"speculative_algorithm\\":\\"x\\"}", "speculative_algorithm": %s}'
LLAMA = '[{"id": 0, "speculative": %s, "prompt": "\\"speculative\\": true"}]'


@pytest.mark.parametrize(
    ("kind", "path", "page", "speculation", "advice"),
    [
        ("vllm", "/metrics", "# HELP vllm:spec_decode_num_drafts\n" + VLLM, "off", '"ngram"'),
        ("vllm", "/metrics", VLLM + VLLM_DRAFTS, "on", None),
        ("vllm", "/metrics", HYBRID + VLLM_DRAFTS, "on", "39273"),
        ("vllm", "/metrics", HYBRID, "off", "39273"),
        ("vllm", "/metrics", "python_gc_objects_collected_total 1.0", None, None),
        ("vllm", "/elsewhere", VLLM, None, None),
        ("sglang", "/server_info", SGLANG % "null", "off", "NGRAM"),
        ("sglang", "/server_info", SGLANG % '"EAGLE"', "EAGLE", None),
        ("llamacpp", "/slots", LLAMA % "false", "off", "--spec-type"),
        ("llamacpp", "/slots", LLAMA % "true", "on", None),
        ("llamacpp", "/slots", "<html>Welcome</html>", None, None),
    ],
    ids=str,
)
async def test_speculation(
    server: Script, kind: str, path: str, page: str, speculation: str | None, advice: str | None
) -> None:
    server.be_vllm()
    server.serve_models({"id": "tiny", "owned_by": kind, "max_model_len": 2048})
    form = "text/plain" if kind == "vllm" else "application/json"
    server.others[path] = send(200, page.encode(), Content_Type=form)
    (found,) = await probe(open_model("openai:tiny", base_url=server.url))
    assert isinstance(found, Probe)
    assert found.speculation == speculation
    assert (advice or "") in (found.advice or "")
    assert (advice is None) == (found.advice is None)


async def test_each_of_several_servers(server: Script, second: Script) -> None:
    server.be_vllm(window=2048)
    second.be_vllm(window=4096)
    for one in (server, second):
        one.default = say("ready")
    found = await probe(open_model("vllm:tiny", base_url=[server.url, second.url]))
    assert [one.window for one in found if isinstance(one, Probe)] == [2048, 4096]
    assert [one.base_url for one in found if isinstance(one, Probe)] == [server.url, second.url]
    assert [len(one.bodies) for one in (server, second)] == [1, 1]


async def test_one_of_several_that_is_dead_does_not_hide_the_others(
    server: Script, nobody: str
) -> None:
    server.be_vllm()
    server.default = say("ready")
    dead, alive = await probe(open_model("vllm:tiny", base_url=[nobody, server.url]))
    assert isinstance(dead, ConnectionFailed)
    assert isinstance(alive, Probe)
    assert alive.window == 2048


async def test_what_is_behind_no_server_is_said(nobody: str, server: Script) -> None:
    with pytest.raises(ConfigError, match="scripted"):
        await probe(ScriptedModel(["a"]))
    with pytest.raises(ConnectionFailed):
        await probe(open_model("vllm:tiny", base_url=nobody))
    server.be_vllm()
    server.replies.append(send(404, {"error": {"message": "The model `other` does not exist."}}))
    with pytest.raises(ModelNotFound, match="it serves 'tiny'"):
        await probe(open_model("openai:other", base_url=server.url))
