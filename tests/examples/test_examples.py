"""Each example runs as a user would run it, and prints what it is there to show.

Without `--engine` the model is `extractive`, and two small local servers for the sixth. With it, the same scripts run
against the real server.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.models.chat_server import Handler, Script, chat, running, send

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))
SECONDS = 240
"""A real server on a busy machine takes its time."""

Run = Callable[..., str]


@pytest.fixture
def model_environment(request: pytest.FixtureRequest) -> dict[str, str]:
    """What the examples find in the environment: with `--engine` the real server, else nothing."""
    if request.config.getoption("--engine", default=None) is None:
        return {}
    engine = request.getfixturevalue("engine")
    found = {"MEMAGENT_MODEL": f"{engine.engine}:{engine.model}", "MEMAGENT_BASE_URL": engine.url}
    return found | ({"MEMAGENT_API_KEY": engine.api_key} if engine.api_key else {})


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs an example in an empty folder, with warnings as errors; returns what it printed."""

    def run(name: str, environment: dict[str, str], *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", EXAMPLES / name, *arguments],
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), **environment},
            cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        said = done.stdout.decode()
        assert done.returncode == code, done.stderr.decode() + said
        left = {path.name for path in tmp_path.iterdir()} - {"state"}
        assert left == set(), f"{name} left {left} in the working directory"
        return said if code == 0 else done.stderr.decode()

    return run


def number(pattern: str, said: str) -> list[int]:
    """The numbers in the one line that matches."""
    (found,) = re.finditer(pattern, said, re.MULTILINE)
    return [int(group.replace(",", "")) for group in found.groups()]


@contextmanager
def vllm() -> Iterator[Script]:
    """A server that counts as vLLM does, tokens and requests, and always says the same."""

    def metrics(handler: Handler) -> None:
        line = f'vllm:request_success_total{{engine="0"}} {len(handler.server.script.bodies):.1f}\n'
        send(200, line.encode(), Content_Type="text/plain")(handler)

    def reply(handler: Handler) -> None:
        time.sleep(0.3)  # a server that is done at once is never busier than the other
        send(200, chat("In 1813.") | {"usage": None})(handler)

    with running() as script:
        script.be_vllm(window=8192)
        script.others["/metrics"] = metrics
        script.default = reply
        yield script


@pytest.mark.timeout(300)
def test_01_book(run: Run, model_environment: dict[str, str]) -> None:
    said = run("01_book.py", model_environment)

    document, chunks = number(r"^epilogue\.txt: ([\d,]+) tokens in ([\d,]+) chunks$", said)
    calls, bound = number(r"^at most ([\d,]+) calls, ([\d,]+) prompt tokens$", said)
    made, spent, _ = number(r"^([\d,]+) calls, ([\d,]+) prompt and ([\d,]+) compl", said)
    assert document > 0
    assert made == calls == chunks + 1
    assert spent <= bound
    assert re.search(r"^memory: \S", said, re.MULTILINE)
    assert re.search(r"^every step of it: memagent show \S+$", said, re.MULTILINE)
    if not model_environment:
        assert "answer: Natásha had married in the early spring of 1813" in said


@pytest.mark.timeout(300)
def test_01_book_reads_another_file(
    run: Run, model_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    book = tmp_path_factory.mktemp("books") / "mine.txt"
    book.write_text("Pierre was born in 1785.", encoding="utf-8")
    said = run("01_book.py", model_environment, str(book), "When was Pierre born?")

    assert "mine.txt: " in said
    assert "question: When was Pierre born?" in said
    if not model_environment:
        assert "answer: Pierre was born in 1785." in said


@pytest.mark.timeout(300)
def test_02_events(run: Run, model_environment: dict[str, str]) -> None:
    said = run("02_events.py", model_environment)

    shown = [
        int(p) for p in re.findall(r"^ *(\d+)% (?=memory now |nothing new)", said, re.MULTILINE)
    ]
    assert shown == sorted(set(shown))
    assert shown[-1] == 100
    assert number(r"^(\d+) calls$", said) == [len(shown) + 1]
    if not model_environment:
        assert "nothing new" in said
        assert "answer: In the winter of 1813 Nicholas married Princess Mary" in said


@pytest.mark.timeout(300)
def test_03_many_questions(run: Run, model_environment: dict[str, str]) -> None:
    said = run("03_many_questions.py", model_environment)

    assert len(re.findall(r"^question: ", said, re.MULTILINE)) == 3
    chunks, calls = number(r"^one run, \S+: (\d+) chunks, (\d+) calls$", said)
    assert calls == 3 * (chunks + 1)
    if not model_environment:
        assert "answer: Natásha had married in the early spring of 1813" in said
        assert "answer: In the winter of 1813 Nicholas married Princess Mary" in said


@pytest.mark.timeout(300)
def test_04_resume(run: Run, model_environment: dict[str, str]) -> None:
    said = run("04_resume.py", model_environment)

    assert said.startswith("limit: the limit calls=2 is reached")
    assert "\nanswered: " in said
    first, second, whole = number(
        r"^sent: (\d+) calls, then (\d+); the run has (\d+) in all$", said
    )
    assert first == 2
    assert first + second == whole


def test_05_own_model(run: Run) -> None:
    assert run("05_own_model.py", {}) == "1813, 1820\n"


@pytest.mark.timeout(300)
def test_06_several_servers(run: Run, model_environment: dict[str, str]) -> None:
    with vllm() as one, vllm() as two:
        both = {"MEMAGENT_MODEL": "vllm:tiny", "MEMAGENT_BASE_URL": f"{one.url},{two.url}"}
        said = run("06_several_servers.py", model_environment or both)
        shares = [len(one.bodies), len(two.bodies)]

    assert re.findall(r"^chapter (\w+)$", said, re.MULTILINE) == [
        "V",
        "VI",
        "VII",
        "VIII",
        "IX",
        "X",
    ]
    assert said.count("  When did Natasha marry? ") == 6
    counts = [int(count) for count in re.findall(r"^http\S+: (\d+) calls$", said, re.MULTILINE)]
    assert sum(counts) >= 6 * 2 * 2  # chapters, questions, at least one chunk and the answer
    if not model_environment:
        assert counts == shares
        assert min(shares) > 0.2 * sum(shares)


def test_06_says_what_it_needs(run: Run) -> None:
    assert "set MEMAGENT_MODEL and MEMAGENT_BASE_URL" in run("06_several_servers.py", {}, code=1)


def test_07_tools(run: Run) -> None:
    said = run("07_tools.py", {})

    assert re.search(r"^answered: \d+, right$", said, re.MULTILINE)
    steps, summaries, calls = number(r"^(\d+) steps, (\d+) summaries, (\d+) calls$", said)
    assert len(re.findall(r"^step \d+: \d+ steps left, ", said, re.MULTILINE)) == summaries > 1
    assert calls == steps + summaries + 1
    assert number(r"^the longest prompt of a step had ([\d,]+) tokens$", said)[0] < 10_000


@pytest.mark.timeout(300)
def test_08_parallel_agent(run: Run, model_environment: dict[str, str]) -> None:
    said = run("08_parallel_agent.py", model_environment)

    chunks, rounds, calls = number(r"^(\d+) chunks in (\d+) rounds, (\d+) calls$", said)
    # Each chunk is noted, each round merged, and the answer asked for.
    assert calls == chunks + rounds + 1
    assert 1 < rounds < chunks
    if not model_environment:
        assert said.startswith("In the winter of 1813 Nicholas married Princess Mary")


def test_the_table_lists_them_all() -> None:
    table = (EXAMPLES / "README.md").read_text("utf-8")
    assert re.findall(r"^\| \[(\w+\.py)\]", table, re.MULTILINE) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_they_are_short_and_say_how_to_run_them(name: str) -> None:
    source = (EXAMPLES / name).read_text("utf-8")
    # The eighth is an agent: everything that one needs stands in it.
    longest = 330 if name == "08_parallel_agent.py" else 55
    assert 20 <= len(source.splitlines()) <= longest
    assert f"python examples/{name}" in source.split('"""')[1]
