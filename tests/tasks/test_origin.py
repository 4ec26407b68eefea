"""What a record was made with: found out where it can be, None where it cannot."""

import shutil
import subprocess
from pathlib import Path

import pytest

from memagent.tasks.origin import machine, source_state, versions

GIT = shutil.which("git")
needs_git = pytest.mark.skipif(GIT is None, reason="there is no git here")


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("one\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


@needs_git
def test_commit_and_changes_of_a_source_tree(tree: Path) -> None:
    file = tree / "code" / "a.py"
    head = git(tree, "rev-parse", "HEAD")
    assert source_state(file) == (head, False)
    (tree / "results.jsonl").write_text("beside the code\n")
    assert source_state(file) == (head, False)
    (tree / "code" / "new.py").write_text("not committed\n")
    assert source_state(file) == (head, True)
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "second")
    file.write_text("two\n")
    assert source_state(file) == (git(tree, "rev-parse", "HEAD"), True)


@needs_git
def test_a_file_that_only_lies_in_a_tree_is_not_of_it(tree: Path) -> None:
    (tree / "venv").mkdir()
    (tree / "venv" / "installed.py").write_text("one\n")
    assert source_state(tree / "venv" / "installed.py") == (None, None)


def test_no_tree_and_no_git_are_no_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.py"
    file.write_text("one\n")
    assert source_state(file) == (None, None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert source_state(Path(__file__)) == (None, None)


def test_versions_are_those_installed() -> None:
    found = versions(["memagent", "openai", "no-such-package"])
    assert set(found) == {"memagent", "openai"}
    assert all(version[0].isdigit() for version in found.values())


def test_a_machine_in_words() -> None:
    assert "cores, " in machine()
