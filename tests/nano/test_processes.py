import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from memagent_nano import processes
from memagent_nano.errors import StageFailed
from memagent_nano.processes import python, stop_children_on_signals


def wait_for(text: str, log: Path) -> None:
    deadline = time.monotonic() + 30
    while not (log.is_file() and text in log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules the processes find."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_what_a_module_says_is_added_to_the_log(modules: Path, tmp_path: Path) -> None:
    (modules / "tells.py").write_text(
        "import os, sys, memagent_nano; print(sys.argv[1], os.environ['OMP_NUM_THREADS'])"
    )
    log = tmp_path / "log.txt"
    python(log, "tells", "first")
    python(log, "tells", "second")
    assert log.read_text() == "first 1\nsecond 1\n"


def test_a_failure_shows_the_end_of_its_own_log(modules: Path, tmp_path: Path) -> None:
    (modules / "fails.py").write_text("for i in range(30): print('line', i)\nraise SystemExit(3)")
    log = tmp_path / "log.txt"
    log.write_text("of an earlier command\n")
    with pytest.raises(StageFailed) as caught:
        python(log, "fails", "it", "--quick")
    said = str(caught.value)
    assert "`python -m fails it` failed with exit code 3" in said
    assert str(log) in said
    assert [line.strip() for line in said.splitlines() if "line" in line] == [
        f"line {i}" for i in range(18, 30)
    ]
    assert "earlier" not in said


def test_a_module_that_says_nothing(modules: Path, tmp_path: Path) -> None:
    (modules / "fails.py").write_text("raise SystemExit(3)")
    with pytest.raises(StageFailed, match="it said nothing"):
        python(tmp_path / "log.txt", "fails")


SLEEPS = """
import os, signal, sys, time
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(f"ready {os.getpid()}", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize(("how", "number"), [("hears", "15"), ("deaf", "9")])
def test_an_interruption_ends_what_runs_and_nothing_more_is_begun(
    modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, number: str
) -> None:
    monkeypatch.setattr(processes, "PATIENCE", 0.2)
    (modules / "sleeps.py").write_text(SLEEPS)
    log, failures = tmp_path / "log.txt", list[str]()

    def work() -> None:
        for _ in range(2):
            try:
                python(log, "sleeps", how)
            except StageFailed as error:
                failures.append(str(error))

    thread = threading.Thread(target=work)
    with suppress(KeyboardInterrupt), stop_children_on_signals():
        thread.start()
        wait_for("ready", log)
        raise KeyboardInterrupt
    thread.join(10)
    assert not thread.is_alive()
    assert f"ended by signal {number}" in failures[0]
    assert "nothing more is begun" in failures[1]
    with stop_children_on_signals():
        (modules / "tells.py").write_text("")
        python(log, "tells")


def test_another_error_leaves_others_alone(modules: Path, tmp_path: Path) -> None:
    (modules / "sleeps.py").write_text(SLEEPS)
    log = tmp_path / "log.txt"
    ended = list[str]()

    def work() -> None:
        try:
            python(log, "sleeps", "hears")
        except StageFailed as error:
            ended.append(str(error))

    thread = threading.Thread(target=work)
    with suppress(ZeroDivisionError), stop_children_on_signals():
        thread.start()
        wait_for("ready", log)
        raise ZeroDivisionError
    assert thread.is_alive()
    child = int(log.read_text().split()[1])
    assert os.getpgid(child) == child
    os.kill(child, signal.SIGKILL)
    thread.join(10)
    assert "ended by signal 9" in ended[0]
