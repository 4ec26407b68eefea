"""BrowseComp-Plus: a small collection is searched and read, and the scorer's files are written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.bench.outside.gyms import write
from typer.testing import Result

from memagent.errors import ConfigError
from memagent.messages import ToolCall
from memagent.tools import Toolset
from memagent_bench.length_tokens import gpt2
from memagent_bench.outside.base import BadData
from memagent_bench.outside.browsecomp import BrowseCompPlus, BrowseEnvironment, snippet
from memagent_bench.outside.corpus import Corpus


def document(number: int) -> dict[str, Any]:
    town = f"The town of Veldra{number} was founded in {1500 + number}. "
    return {"docid": str(number), "text": town + "The river runs slowly. " * 200, "url": "x"}


def question(number: int = 7, **more: Any) -> dict[str, Any]:
    return {
        "query_id": number,
        "query": f"In which year was the town of Veldra{number} founded?",
        "answer": str(1500 + number),
        "evidence_docs": [{"docid": str(number), "text": "", "url": "x"}],
        **more,
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "data/corpus.jsonl", *(document(n) for n in range(40)))
    write(tmp_path / "data/decrypted.jsonl", question(), question(8, evidence_docs=["8"]))
    return tmp_path / "data"


@pytest.fixture
def suite() -> BrowseCompPlus:
    return BrowseCompPlus()


async def call(environment: BrowseEnvironment, name: str, **arguments: Any) -> Any:
    made = ToolCall(id="1", name=name, arguments=json.dumps(arguments))
    result = await Toolset(environment.tools).run(made)
    return json.loads(result.text) if result.ok else result.text


async def test_a_question_is_searched_read_and_answered(suite: BrowseCompPlus, data: Path) -> None:
    first, second = suite.tasks(data)
    assert (first.id, second.id) == ("7", "8")
    environment = first.open()
    assert "In which year was the town of Veldra7 founded?" in environment.task
    assert "1507" not in environment.task
    asked = "VELDRA7 in 1507, not Veldra8, Veldra9, Veldra10, Veldra11 or Veldra12"
    hits = await call(environment, "search", query=asked)
    assert len(hits) == 5
    assert hits[0]["docid"] == "7"
    assert hits[0]["score"] > hits[1]["score"]
    assert len(gpt2().encode(hits[0]["snippet"])) == 512
    whole = await call(environment, "get_document", docid="7")
    assert whole == {"docid": "7", "text": document(7)["text"]}
    assert "no document '99'" in await call(environment, "get_document", docid="99")
    assert await call(environment, "search", query="!?") == []
    assert "20,000 is the most" in await call(environment, "search", query="x" * 20_001)
    assert (environment.steps, environment.verdict()) == (5, 0)
    assert environment.finish("Explanation: see [7]\n**Exact Answer:** 1507\nConfidence: 9%")
    assert environment.verdict() == 1
    assert "the task is over" in await call(environment, "search", query="Veldra8")


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("1507", True),
        ("Exact Answer: 1508", False),
        ("Exact Answer: 1\nExact Answer: 1507", True),
        pytest.param("\n" * 100_000_000, False, id="100 MB"),
        pytest.param("\n" * 100_000_000 + "Exact Answer: 1507", True, id="100 MB and right"),
    ],
)
def test_answers_are_compared_by_words(
    suite: BrowseCompPlus, data: Path, answer: str, right: bool
) -> None:
    assert next(suite.tasks(data)).open().finish(answer) is right


def test_words_in_most_documents_do_not_matter(data: Path, tmp_path: Path) -> None:
    corpus = Corpus([data / "corpus.jsonl"], tmp_path)
    assert corpus.search("the rivers running slowly", 5) == []
    alone = corpus.search("Veldra7", 5)
    assert corpus.search("the town of Veldra7 and the running river", 5) == alone
    assert [hit.docid for hit in alone] == ["7"]


def test_the_index_is_built_once_and_anew_for_other_files(data: Path, tmp_path: Path) -> None:
    files = [data / "corpus.jsonl"]
    first = Corpus(files, tmp_path)
    first.search("Veldra7", 5)
    made = first.path.stat().st_mtime_ns
    again = Corpus(files, tmp_path)
    assert again.document("7") == document(7)["text"]
    assert (again.path, again.path.stat().st_mtime_ns) == (first.path, made)
    write(files[0], document(50))
    changed = Corpus(files, tmp_path)
    assert changed.path != first.path
    assert changed.document("50") == document(50)["text"]
    assert changed.document("7") is None
    assert list(tmp_path.glob("*.sqlite")) == [changed.path]


def test_the_folder_may_be_relative(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    (hit,) = Corpus([Path("corpus.jsonl")], Path()).search("Veldra7", 5)
    assert hit.docid == "7"


def test_an_interrupted_index_is_built_anew(data: Path, tmp_path: Path) -> None:
    write(data / "corpus.jsonl", document(1), "{")
    corpus = Corpus([data / "corpus.jsonl"], tmp_path)
    with pytest.raises(BadData, match=r"corpus.jsonl', line 2 is not JSON"):
        corpus.search("Veldra1", 5)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize(
    ("name", "rows", "message"),
    [
        ("decrypted", [question(query="c2VjcmV0")], "still encrypted: run the benchmark's decrypt"),
        ("decrypted", [{"query_id": 1, "query": "a b"}], r"line 1: answer"),
        ("decrypted", [question(evidence_docs="x")], r"line 1: evidence_docs"),
        ("decrypted", [{"other": 1}], "lacks questions"),
        ("corpus", [{"other": 1}], "lacks a corpus"),
        ("corpus", [], "lacks a corpus"),
        ("corpus", ["[]"], "line 1 is not a JSON object"),
    ],
)
def test_damaged_data_are_named(
    suite: BrowseCompPlus, data: Path, name: str, rows: list[Any], message: str
) -> None:
    write(data / f"{name}.jsonl", *rows)
    with pytest.raises(BadData, match=message):
        list(suite.tasks(data))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (document(0), "two documents have the same docid"),
        ({"docid": "x"}, r"line 41: text"),
        ({"docid": "x", "text": 7}, r"line 41: text"),
    ],
)
async def test_damaged_documents_are_named(
    suite: BrowseCompPlus, data: Path, row: Any, message: str
) -> None:
    write(data / "corpus.jsonl", *(document(n) for n in range(40)), row)
    environment = next(suite.tasks(data)).open()
    with pytest.raises(ConfigError, match=message):
        environment._corpus.search("x", 5)  # pyright: ignore[reportPrivateUsage]
    assert "docid" in await call(environment, "search", query="x")


def test_a_folder_without_room_for_the_index(data: Path, tmp_path: Path) -> None:
    corpus = Corpus([data / "corpus.jsonl"], tmp_path / "gone")
    with pytest.raises(ConfigError, match="a folder that may be written to"):
        corpus.search("x", 5)


def test_a_snippet_of_a_short_or_strange_text() -> None:
    assert snippet("short <|endoftext|>") == "short <|endoftext|>"
    assert len(snippet("🜁" * 9000)) <= 512


def test_the_scorer_reads_what_the_command_leaves(
    invoke: Callable[..., Result], data: Path, tmp_path: Path
) -> None:
    done = invoke(
        *("sessions", "--suite", "browsecomp-plus", "--data", data, "--systems", "full,summary"),
        *("--summaries", "7", "--tasks", "1", "--out", tmp_path / "out"),
    )
    assert done.exit_code == 0, done.output
    folders = sorted((tmp_path / "out/scorer").iterdir())
    assert [folder.name for folder in folders] == ["full-seed=42", "summary-W=4096-S=7-seed=42"]
    for folder in folders:
        (file,) = folder.iterdir()
        run = json.loads(file.read_text())
        assert file.name == "7.json"
        assert run["query_id"] == "7"
        assert run["tool_call_counts"] == {"search": 1, "get_document": 1}
        assert run["status"] == "completed"
        assert "7" in run["retrieved_docids"]
        assert [(part["type"], "1507" in part["output"]) for part in run["result"]] == [
            ("output_text", True)
        ]


@pytest.mark.parametrize("games", ["all", "7"])
def test_two_questions_with_the_same_id_are_refused(
    invoke: Callable[..., Result], data: Path, tmp_path: Path, games: str
) -> None:
    write(data / "more.jsonl", question())
    done = invoke(
        *("sessions", "--suite", "browsecomp-plus", "--data", data, "--systems", "full"),
        *("--games", games, "--out", tmp_path / "out"),
    )
    assert (done.exit_code, "two tasks of the data have the id '7'" in done.stderr) == (2, True), (
        done.output
    )


@pytest.mark.parametrize("name", ["corpus", "decrypted"])
def test_a_folder_keeps_to_its_data(
    invoke: Callable[..., Result], data: Path, tmp_path: Path, name: str
) -> None:
    args = (
        "sessions",
        "--suite",
        "browsecomp-plus",
        "--systems",
        "full",
        "--out",
        tmp_path / "out",
    )
    assert invoke(*args, "--data", data).exit_code == 0
    moved = data.rename(tmp_path / "moved")
    assert invoke(*args, "--data", moved).exit_code == 0
    with (moved / f"{name}.jsonl").open("a") as file:
        file.write("\n")
    done = invoke(*args, "--data", moved)
    assert (done.exit_code, "different settings: data was" in done.stderr) == (5, True), done.output
