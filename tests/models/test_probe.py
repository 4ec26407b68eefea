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
