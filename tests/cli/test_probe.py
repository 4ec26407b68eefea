import json

from tests.cli.conftest import Invoke
from tests.models.chat_server import Script, chat, send


def vllm(server: Script) -> tuple[str, ...]:
    server.be_vllm()
    server.others["/version"] = send(200, {"version": "0.32.0"})
    server.others["/metrics"] = send(200, b"vllm:x 1", Content_Type="text/plain")
    server.default = send(200, chat("ready"))
    return ("probe", "--model", "vllm:tiny", "--base-url", server.url)


def test_the_table(invoke: Invoke, server: Script) -> None:
    done = invoke(*vllm(server))
    assert done.exit_code == 0, done.output
    assert "\n  " in done.stdout.partition("\nspeculation")[2], "advice stands beneath"
    rows = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert rows["server"] == server.url
    assert rows["kind"] == "vllm 0.32.0"
    assert rows["window"] == "2,048 tokens"
    assert "the server, which is asked for every count" in done.stdout
    assert "token ids" in rows["can"]
    assert "11 prompt tokens" in done.stdout
    assert "'ready'" in done.stdout
    assert rows["speculation"] == "off"
    assert "--speculative-config" in done.stdout


def test_a_server_that_reports_no_usage(invoke: Invoke, server: Script) -> None:
    given = vllm(server)
    server.default = send(200, chat("ready") | {"usage": None})
    done = invoke(*given)
    assert done.exit_code == 0, done.output
    (row,) = (line for line in done.stdout.splitlines() if line.startswith("test call"))
    assert "usage not reported, 21 prompt tokens counted, " in row


def test_json_and_bare(invoke: Invoke, server: Script) -> None:
    (found,) = json.loads(invoke(*vllm(server), "--display", "json").stdout)
    assert (found["dialect"], found["window"], found["call"]["text"]) == ("vllm", 2048, "ready")
    assert found["speculation"] == "off"
    assert invoke(*vllm(server), "--display", "none").stdout == "vllm\t0.32.0\t2048\n"


def test_what_is_unknown_is_said(invoke: Invoke, server: Script) -> None:
    server.default = send(200, chat("hello"))
    done = invoke("probe", "--model", "openai:x", "--base-url", server.url)
    assert done.exit_code == 0, done.output
    for words in (
        "plain (version unknown)",
        "lists no models",
        "--window",
        "UTF-8 bytes",
        "speculation  not reported",
    ):
        assert words in done.stdout


def test_failures(invoke: Invoke, server: Script) -> None:
    gone = invoke("probe", "--model", "vllm:tiny", "--base-url", "http://127.0.0.1:9/v1")
    assert gone.exit_code == 4
    assert "is a server running" in gone.stderr
    assert invoke("probe", "--model", "extractive").exit_code == 2
    server.models = send(401, {"error": "Unauthorized"})
    refused = invoke("probe", "--model", "vllm:tiny", "--base-url", server.url)
    assert refused.exit_code == 4
    assert "MEMAGENT_API_KEY" in refused.stderr
