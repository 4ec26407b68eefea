import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from memagent.errors import RunBusy, StoreReadOnly
from memagent.runstore import RunStore
from memagent.runstore.lock import hold_folder, lock_path, run_lock

HOLD = """
import sys, time
from pathlib import Path
from memagent.runstore import run_lock
with run_lock(Path(sys.argv[1]), "r1"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_one_holder_at_a_time_in_a_process(tmp_path: Path) -> None:
    store = tmp_path / "runs.sqlite"
    with run_lock(store, "r1"):
        with pytest.raises(RunBusy, match=r"'r1'.*--run-id"), run_lock(store, "r1"):
            pass
        with run_lock(store, "r2"):
            pass
    with run_lock(store, "r1"):
        pass


def test_a_link_to_a_store_has_its_locks(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs.sqlite")
    (tmp_path / "linked").mkdir()
    link = tmp_path / "linked" / "other.sqlite"
    link.symlink_to(tmp_path / "runs.sqlite")
    with store.hold("r1"), pytest.raises(RunBusy), RunStore(link).hold("r1"):
        pass


def test_who_looks_for_a_moment_keeps_nobody_from_a_run(tmp_path: Path) -> None:
    store, looking, ended = RunStore(tmp_path / "runs.sqlite"), threading.Event(), threading.Event()

    def look() -> None:
        with store.hold("r1", wait=0):
            looking.set()
            ended.wait(20)

    thread = threading.Thread(target=look)
    thread.start()
    assert looking.wait(20)
    with pytest.raises(RunBusy), store.hold("r1", wait=0):
        pass
    threading.Timer(0.05, ended.set).start()
    with store.hold("r1", wait=20):
        thread.join()
    store.close()


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    store = tmp_path / "runs.sqlite"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(store)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunBusy), run_lock(store, "r1"):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with run_lock(store, "r1"):
        pass
    assert lock_path(store, "r1").stat().st_mode & 0o777 == 0o600


def test_no_place_for_the_lock(tmp_path: Path) -> None:
    (tmp_path / "runs.sqlite.locks").write_text("in the way")
    with (
        pytest.raises(StoreReadOnly, match=r"cannot create the lock .*--store"),
        run_lock(tmp_path / "runs.sqlite", "r1"),
    ):
        pass


def test_a_folder_has_one_holder(tmp_path: Path) -> None:
    with (
        hold_folder(tmp_path),
        pytest.raises(RunBusy, match="use another --out"),
        hold_folder(tmp_path),
    ):
        pass
    with hold_folder(tmp_path):
        pass
