"""`llm read`, by the real `llm` and its own client, at a server that reads."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.docs.stand_in import reply
from tests.models.chat_server import Handler, Script, chat, running, send

pytestmark = pytest.mark.extra

QUESTION = "What is the code of the gate?"
ANSWER = "The code of the gate is 7.\n"
TEXT = "".join(f"On day {n} the sky over the harbour was grey. " for n in range(500)) + ANSWER
BAD = {"error": {"message": "no such deployment"}}

Llm = Callable[..., subprocess.CompletedProcess[str]]


def read(handler: Handler) -> None:
    send(200, chat(reply(handler)))(handler)


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


def test_an_answer_that_was_cut_off_is_said_to_be(llm: Llm, server: Script, tmp_path: Path) -> None:
    def cut(handler: Handler) -> None:
        body = chat("The code of the", finish="length")
        body["usage"]["completion_tokens"] = server.bodies[-1]["max_tokens"]
        send(200, body)(handler)

    server.default = cut
    (tmp_path / "book.txt").write_text(ANSWER)
    done = llm("read", "book.txt", QUESTION, "-m", "reader")
    assert (done.returncode, done.stdout) == (0, "The code of the\n")
    assert "cut off" in done.stderr
