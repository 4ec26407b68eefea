"""`llm read`, by the real `llm` and its own client, at a server that reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.docs.stand_in import reply
from tests.models.chat_server import Behaviour, Handler, Script, chat, running, send

from memagent.messages import ChatRequest, Message

pytestmark = pytest.mark.extra

QUESTION = "What is the code of the gate?"
ANSWER = "The code of the gate is 7.\n"
TEXT = "".join(f"On day {n} the sky over the harbour was grey. " for n in range(500)) + ANSWER
BAD = {"error": {"message": "no such deployment"}}

Llm = Callable[..., subprocess.CompletedProcess[str]]


def say(text: str, *, finish: str = "stop", usage: bool = True) -> Behaviour:
    """Answers as the request asks, whole or as a stream."""

    def behave(handler: Handler) -> None:
        body = chat(text, finish=finish)
        body["usage"] = body["usage"] if usage else None
        if not handler.body.get("stream"):
            send(200, body)(handler)
            return
        choice = body["choices"][0]
        piece = {"index": 0, "delta": choice["message"], "finish_reason": None}
        end = {"index": 0, "delta": {}, "finish_reason": finish}
        head = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "any"}
        chunks = [{**head, "choices": [part]} for part in (piece, end)]
        chunks += [{**head, "choices": [], "usage": body["usage"]}] if usage else []
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
        raw = "".join([*lines, "data: [DONE]\n\n"]).encode()
        send(200, raw, Content_Type="text/event-stream")(handler)

    return behave


def read(handler: Handler) -> None:
    say(reply(handler))(handler)


@pytest.fixture
def server() -> Iterator[Script]:
    with running() as script:
        script.default = read
        yield script


@pytest.fixture
def llm(tmp_path: Path, server: Script) -> Llm:
    """Runs the command in a folder with the book, as a user with one model."""
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- {{model_id: reader, model_name: any, api_base: '{server.url}'}}\n"
        f"- {{model_id: whole, model_name: any, api_base: '{server.url}', can_stream: false}}\n"
    )
    (tmp_path / "book.txt").write_text(TEXT)
    settings = {"LLM_USER_PATH": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}

    def llm(
        *arguments: str, given: str = "", encoding: str = "utf-8"
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "llm", *arguments],
            env=os.environ | settings, cwd=tmp_path, input=given, encoding=encoding, capture_output=True, check=False,
        )  # fmt: skip

    return llm


def test_llm_finds_the_command(llm: Llm) -> None:
    assert "memagent" in llm("plugins").stdout
    assert "--window" in llm("read", "--help").stdout


def test_it_answers_once(llm: Llm, server: Script, tmp_path: Path) -> None:
    done = llm("read", "book.txt", QUESTION, "-m", "reader")
    assert (done.stdout, done.stderr) == (ANSWER, "")
    calls = len(server.bodies)
    assert calls > 2
    assert all(body["max_tokens"] for body in server.bodies)
    assert llm("read", "book.txt", QUESTION, "-m", "reader").stdout == ANSWER
    assert len(server.bodies) == calls
    (tmp_path / "book.txt").write_text(TEXT.replace("is 7", "is 8"))
    assert llm("read", "book.txt", QUESTION, "-m", "reader").stdout == ANSWER.replace("7", "8")


def test_it_takes_the_default_model_and_standard_input(llm: Llm) -> None:
    assert llm("models", "default", "reader").returncode == 0
    assert llm("read", "-", QUESTION, "--window", "2048", given=TEXT).stdout == ANSWER


def test_standard_input_need_not_be_utf_8(llm: Llm) -> None:
    read = llm("read", "-", QUESTION, "-m", "reader", given=f"Café. {TEXT}", encoding="latin-1")
    assert "Traceback" not in read.stderr
    assert read.stdout == ANSWER


def test_an_interrupted_reading_is_resumed(llm: Llm, server: Script) -> None:
    server.replies += [read, read, send(400, BAD)]
    failed = llm("read", "book.txt", QUESTION, "-m", "reader")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "the model 'llm:reader' failed" in failed.stderr
    assert "no such deployment" in failed.stderr
    before = len(server.bodies)
    assert llm("read", "book.txt", QUESTION, "-m", "reader").stdout == ANSWER
    prompts = [body["messages"][-1]["content"] for body in server.bodies]
    assert prompts[before] == prompts[before - 1]
    assert len(set(prompts)) == len(prompts) - 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.txt", QUESTION, "-m", "reader"), "none.txt"),
        (("book.txt", QUESTION, "-m", "other"), "Unknown model: other"),
        (("book.txt", QUESTION, "-m", "reader", "--window", "10"), "window"),
    ],
)
def test_what_is_wrong_is_said(llm: Llm, arguments: tuple[str, ...], said: str) -> None:
    done = llm("read", *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_another_window_reads_again_after_one_that_failed(llm: Llm, server: Script) -> None:
    server.replies += [send(400, BAD)]
    assert llm("read", "book.txt", QUESTION, "-m", "reader").returncode == 1
    done = llm("read", "book.txt", QUESTION, "-m", "reader", "--window", "4096")
    assert (done.stdout, done.stderr) == (ANSWER, "")


@pytest.mark.parametrize("model", ["reader", "whole"])
def test_an_answer_that_was_cut_off_is_said_to_be(
    llm: Llm, server: Script, tmp_path: Path, model: str
) -> None:
    server.default = say("The code of the", finish="length")
    (tmp_path / "book.txt").write_text(ANSWER)
    done = llm("read", "book.txt", QUESTION, "-m", model)
    assert (done.returncode, done.stdout) == (0, "The code of the\n")
    assert done.stderr == "the reply was cut off by its token limit: use a larger --window\n"
    assert [bool(body.get("stream")) for body in server.bodies] == [model == "reader"] * 2


@pytest.mark.parametrize("finish", ["content_filter", "abort"])
def test_a_reply_that_was_withheld_or_broken_off_is_no_answer(
    llm: Llm, server: Script, finish: str
) -> None:
    server.default = say("The code of the", finish=finish)
    done = llm("read", "book.txt", QUESTION, "-m", "reader")
    assert (done.returncode, done.stdout) == (1, "")
    assert ("abort" if finish == "abort" else "stopped") in done.stderr


def test_a_server_may_leave_the_usage_out(llm: Llm, server: Script) -> None:
    server.default = lambda handler: say(reply(handler), usage=False)(handler)
    done = llm("read", "book.txt", QUESTION, "-m", "reader")
    assert (done.stdout, done.stderr) == (ANSWER, "")


@pytest.mark.parametrize(
    ("body", "finish"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "completed"}, "stop"),
        (None, "stop"),
    ],
)
async def test_bodies_of_responses_are_understood(body: Any, finish: str) -> None:
    from memagent_llm.plugin import LlmModel

    said = SimpleNamespace(
        text=lambda: "The", response_json=body, usage=lambda: SimpleNamespace(input=9, output=1)
    )
    options = SimpleNamespace(model_fields={"max_tokens": None})
    model = SimpleNamespace(model_id="x", Options=options, prompt=lambda *_, **__: said)
    request = ChatRequest(messages=(Message(role="user", content=QUESTION),), max_tokens=20)
    assert (await LlmModel(model).complete(request)).finish_reason.value == finish
