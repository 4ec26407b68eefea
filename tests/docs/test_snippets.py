"""Every example in README.md and docs/ runs, and prints what the page says.

A page is one test, because its blocks build on each other. They run from top to bottom in a fresh folder:

- `python`: executed, all in one namespace, with `await` at the top level as in a notebook; on a page of `SCRIPTS` each
  by itself, as if pasted into a script. A `text` block right behind one is what it prints.
- `console`: commands that call memagent are run, except `memagent serve`; so are `curl` and `make demo`. The lines
  below a command are what it prints. Its exit code is 0, unless `$ echo $?` comes next and shows another one.
  `$ export NAME=VALUE` sets a variable. A block that calls `smol` is run in the environment that has torch
  (`make test-train`).
- a `python` block that imports `memagent.integrations` runs where the frameworks are (`make test-extra`).
- any block with `title="NAME"`: is the content of that file.

`…` in shown output stands for any text. The URL of any server (`http://.../v1`) is that of a small one that the
test starts.
"""

import ast
import asyncio
import contextlib
import gzip
import importlib.util
import inspect
import io
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.docs.stand_in import BOOK, MODEL, lay_out, serve_reader
from tests.models.chat_server import Handler, Script, Server, chat, send
from tests.serve.conftest import listening_with

from memagent import open_model
from memagent.models.openai import OpenAIModel
from memagent.run.agent import Agent
from memagent.threads import run_sync

ROOT = Path(__file__).resolve().parents[2]
TRAINING = ROOT / "docs" / "train.md"
TUTORIALS = ROOT / "docs" / "tutorials"
ENDPOINT = ROOT / "docs" / "endpoint.md"
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    # `make test-train` runs these, in the environment that has torch.
    if page not in (TRAINING, TUTORIALS / "train.md", TUTORIALS / "summaries.md")
    or importlib.util.find_spec("torch")
]
SCRIPTS = {
    f"docs/{name}.md" for name in ("deploy", "frameworks", "games", "models", "servers", "tools")
}
FENCE = re.compile(
    r"^```(?P<kind>[a-z]*)(?P<options>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
URL = re.compile(r"https?://[\w.-]+(?::\d+)?/v1\b")
RUNS = re.compile(r"^memagent(-bench|-train)? (?!serve )|\| memagent |^make demo$|^cp |^curl ")
NEEDS = re.compile(r"^from memagent\.integrations\.(\w+)", re.MULTILINE)
FRAMEWORKS = {
    "langchain": "langchain",
    "openai_agents": "agents",
    "opentelemetry": "opentelemetry.sdk",
    "pydantic_ai": "pydantic_ai",
    "ray": "ray",
}
SMOL = re.compile(r"^\$ memagent .*\bsmol\b", re.MULTILINE)
EXPORT = re.compile(r"^export (\w+)=(\S+)$")
SECONDS = 300


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    kind: str
    title: str | None
    text: str
    line: int
    """Of the block's first line in the page."""
    shows: bool
    """Right behind a `python` block: this is what that one prints."""


def blocks_of(page: Path) -> list[Block]:
    """The page's blocks, from top to bottom."""
    source = page.read_text(encoding="utf-8")
    blocks: list[Block] = []
    end = 0
    for fence in FENCE.finditer(source):
        title = re.search(r'title="([^"]+)"', fence["options"])
        between = source[end : fence.start()]
        blocks.append(
            Block(
                kind=fence["kind"],
                title=title and title[1],
                text=fence["text"],
                line=source.count("\n", 0, fence.start("text")) + 1,
                shows=fence["kind"] == "text"
                and bool(blocks)
                and blocks[-1].kind == "python"
                and not between.strip(),
            )
        )
        end = fence.end()
    return blocks


def matches(shown: str, said: str) -> bool:
    """Whether `said` is what a page shows: `…` is any text of a line, alone on a line any lines."""
    pattern = ""
    for line in shown.rstrip().splitlines():
        if line.strip() == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += re.escape(line.rstrip()).replace("…", r"[^\n]*") + r"\n"
    lines = "".join(f"{line.rstrip()}\n" for line in said.rstrip().splitlines())
    return re.fullmatch(pattern, lines) is not None


@pytest.mark.parametrize(
    ("shown", "said", "same"),
    [
        ("one\ntwo", "one\ntwo\n", True),
        ("one", "one\ntwo", False),
        ("one (…)\n…\nlast", "one (1 s)\nsome\nmore\nlast", True),
        ("one\n…\nlast", "one\nlast", True),
        ("a.c", "abc", False),
        ("", "", True),
        ("", "something", False),
    ],
)
def test_shown_output_is_compared(shown: str, said: str, same: bool) -> None:
    assert matches(shown, said) is same


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.fixture
def page() -> Path:
    """For a test of the tools page alone."""
    return ROOT / "docs" / "tools.md"


def reply(handler: Handler) -> None:
    """Replies to every prompt alike, but to one that asks for rows with a row."""
    asks = "every cost" in str(handler.body["messages"])
    text = '{"what": "repair", "euros": 2300}' if asks else "She marries Pierre."
    body = chat(text) | {"model": "Qwen/Qwen3-4B", "created": 0}
    # Usage: the pages' prompts differ in length.
    send(200, body | {"usage": None})(handler)


@pytest.fixture
def url(page: Path, tmp_path: Path) -> Iterator[str]:
    """A chat server that lists two models, one with its window, or reads books where the page shows it."""
    with Server(("127.0.0.1", 0), Handler) as http:
        http.script = Script(default=reply)
        http.script.serve_models(
            {"id": "Qwen/Qwen3-4B", "max_model_len": 40960}, {"id": "gpt-4.1-mini"}
        )
        if page in (TUTORIALS / "book.md", ENDPOINT):
            serve_reader(http.script)
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        own = f"http://127.0.0.1:{http.server_address[1]}/v1"
        with contextlib.ExitStack() as running:
            if page == ENDPOINT:  # its URL is that of an endpoint in front of the server
                model = open_model(f"vllm:{MODEL}", base_url=own)
                listening = listening_with(
                    model, tmp_path / "served.sqlite", reading={"gate": "update"}
                )
                own = running.enter_context(listening)
            yield own
        http.shutdown()
        thread.join(5)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with what the pages take for granted: the sample, a book, a model's tokenizer."""
    place = tmp_path / "pages"
    lay_out(place)
    # A part of it: each page may send it to the server several times.
    (place / "book.txt").write_bytes(gzip.decompress((place / BOOK).read_bytes())[:100_000])
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)  # as in an interpreter: modules that a page writes are found
    return place


def make_policy(folder: Path) -> None:
    """Writes a tiny model with random weights and the tests' tokenizer."""
    maker = ROOT / "tests" / "engines" / "tiny_model.py"
    subprocess.run([sys.executable, str(maker), str(folder)], check=True, capture_output=True)


@pytest.mark.extra
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("name", ["deploy", "frameworks"])
def test_the_frameworks_examples_run(
    name: str, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = ROOT / "docs" / f"{name}.md"
    found = [n for block in blocks_of(page) for n in NEEDS.findall(block.text)]
    assert found
    assert all(importlib.util.find_spec(FRAMEWORKS[n]) for n in found)
    test_examples_do_what_the_page_says(page, folder, url, monkeypatch)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_examples_do_what_the_page_says(
    page: Path, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMAGENT_BASE_URL", url)
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")  # errors and output in the order of a terminal
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if page == TRAINING:
        make_policy(folder / "policy")
    name = page.relative_to(ROOT).as_posix()
    source = page.read_text(encoding="utf-8")
    assert not re.search(r"^ +```(python|console)", source, re.MULTILINE), "would not be run"
    namespace: dict[str, Any] = {}
    printed: str | None = ""
    with agents_closed(monkeypatch):
        for block in blocks_of(page):
            where = f"{name}:{block.line}"
            text = URL.sub(url, block.text)
            if block.title is not None:
                Path(block.title).write_text(text, encoding="utf-8")
            elif block.kind == "python":
                if any(not importlib.util.find_spec(FRAMEWORKS[n]) for n in NEEDS.findall(text)):
                    printed = None
                    continue
                if name in SCRIPTS or not namespace:
                    namespace = {"__name__": "__main__"}
                printed = run_python(text, name, block.line, namespace)
            elif block.kind == "console":
                if SMOL.search(text) and not importlib.util.find_spec("torch"):
                    continue
                run_console(text, where, monkeypatch)
            elif block.shows and printed is not None:
                assert matches(text, printed), (
                    f"{where} shows\n{text}\nbut this was said\n{printed}"
                )


@contextlib.contextmanager
def agents_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes the agents and models that a page makes: its process would end here, this one goes on."""
    made: list[Agent] = []
    models: list[OpenAIModel] = []
    begin, connect = Agent.__init__, OpenAIModel.__init__

    def noted(self: Agent, *given: Any, **options: Any) -> None:
        begin(self, *given, **options)
        made.append(self)

    def connected(self: OpenAIModel, *given: Any, **options: Any) -> None:
        connect(self, *given, **options)
        models.append(self)

    monkeypatch.setattr(Agent, "__init__", noted)
    monkeypatch.setattr(OpenAIModel, "__init__", connected)
    try:
        yield
    finally:
        for agent in made:
            agent.close()
        for model in models:  # of buffers
            run_sync(model.aclose())


def run_python(text: str, name: str, line: int, namespace: dict[str, Any]) -> str:
    """Runs one block and returns what it printed; tracebacks name the page's own lines."""
    # The line ends put the code where it stands in the page.
    code = compile(
        "\n" * (line - 1) + text,
        name,
        "exec",
        flags=0 if name in SCRIPTS else ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        dont_inherit=True,
    )
    with contextlib.redirect_stdout(io.StringIO()) as output:
        outcome = eval(code, namespace)
        if inspect.isawaitable(outcome):
            asyncio.run(as_coroutine(outcome))
    return output.getvalue()


async def as_coroutine(work: Any) -> Any:
    """`asyncio.run` takes nothing but coroutines."""
    return await work


def run_console(text: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs the commands of one block that call memagent, and compares what they print."""
    code = 0
    for step in re.split(r"^\$ ", text.replace("\\\n", ""), flags=re.MULTILINE)[1:]:
        command, _, shown = step.partition("\n")
        export = EXPORT.match(command)
        if export is not None:
            monkeypatch.setenv(export[1], export[2])
        if command == "echo $?":
            assert matches(shown, str(code)), f"{where}: the exit code is {code}"
            code = 0
        if not RUNS.search(command):
            continue
        assert code == 0, f"{where}: a command before {command!r} failed with {code}"
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command.replace("make demo", "memagent demo")],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=SECONDS, check=False,
        )  # fmt: skip
        code, said = done.returncode, done.stdout.decode()
        if command == "make demo":
            said = f".venv/bin/memagent demo\n{said}"  # make says what it runs
        assert matches(shown, said), f"{where}: $ {command}\nshows\n{shown}\nbut said\n{said}"
    assert code == 0, f"{where}: the last command failed with {code}"
