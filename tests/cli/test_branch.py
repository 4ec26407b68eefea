from pathlib import Path

from tests.cli.conftest import FACT, QUESTION, Invoke, only_json
from tests.models.chat_server import Script

from memagent import RunStore

READ = ("--model", "extractive", "--window", "2048", "--run-id", "old")


def test_a_run_is_read_on_with_other_words_and_sizes(invoke: Invoke, book: Path) -> None:
    old = only_json(invoke("ask", book, QUESTION, *READ, "--json").stdout)
    again = ("branch", "old", "--before", "2")
    done = invoke(*again, "--new-id", "same")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].endswith("from chunk 2 of run old on")
    assert lines[1].startswith("chunk 2 ")
    same = only_json(invoke("resume", "same", "--json").stdout)
    assert (same["answer"], same["chunks"]) == (old["answer"], old["chunks"])
    assert same["usage"]["calls"] == old["usage"]["calls"] - 2
    other = only_json(invoke(*again, "-q", "Who left?", "--window", "1800", "--json").stdout)
    assert RunStore(RunStore.default_path()).get(other["run_id"]).binding["questions"] == [
        "Who left?"
    ]
    assert "branched    before chunk 2 of run old" in invoke("show", "same").stdout
    assert invoke("show", "same", "--fact", FACT).exit_code == 0
    runs = [run.id for run in RunStore(RunStore.default_path()).runs()]
    assert runs == [other["run_id"], "same", "old"]


def test_a_branch_is_repeated_after_its_origin_was_removed(invoke: Invoke, book: Path) -> None:
    invoke("ask", book, QUESTION, *READ)
    again = ("branch", "old", "--before", "2", "--new-id", "same", "--json")
    first = only_json(invoke(*again).stdout)
    invoke("runs", "rm", "old")
    assert only_json(invoke(*again).stdout)["answer"] == first["answer"]


def test_another_model_takes_the_place_of_the_old_one(
    invoke: Invoke, book: Path, served: list[str]
) -> None:
    invoke("ask", book, QUESTION, *READ)
    done = invoke("branch", "old", "--before", "1", *served, "--window", "2048", "--json")
    said = only_json(done.stdout)
    assert (done.exit_code, said["answer"]) == (0, "hello"), done.output


def test_a_model_that_does_not_exist_is_not_blamed_on_the_run(invoke: Invoke, book: Path) -> None:
    invoke("ask", book, QUESTION, *READ)
    done = invoke("branch", "old", "--before", "1", "--model", "extractiv")
    assert done.exit_code == 2
    assert "did you mean 'extractive'?" in done.stderr
    assert "Python" not in done.stderr


def test_chunks_that_the_run_does_not_have(invoke: Invoke, book: Path) -> None:
    old = only_json(invoke("ask", book, QUESTION, *READ, "--json").stdout)
    failed = invoke("branch", "old", "--before", "999")
    assert failed.exit_code == 2
    assert f"read {old['chunks']} chunks, so it must be 1 to" in failed.stderr


def test_an_extra_body_is_given_again(
    invoke: Invoke, book: Path, served: list[str], server: Script
) -> None:
    body = ("--extra-body", '{"top_k": 20}')
    invoke("ask", book, QUESTION, *served, *body, "--run-id", "old")
    again = ("branch", "old", "--before", "1")
    failed = invoke(*again)
    assert failed.exit_code == 2
    assert "--extra-body" in failed.stderr
    for given, sent in ((body, 20), (("--extra-body", "{}"), None), (served, None)):
        server.bodies.clear()
        done = invoke(*again, *given)
        assert done.exit_code == 0, done.output
        assert {each.get("top_k") for each in server.bodies} == {sent}
