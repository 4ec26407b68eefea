"""A user's function in processes of its own: time limits, crashes, and nothing left behind."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from tests.train.rewards.made import sample

from memagent.errors import ConfigError
from memagent_train.rewards.pool import PooledReward

MINE = "tests.train.rewards.mine"
LIMIT = 1.5


@pytest.fixture
async def pool() -> AsyncIterator[PooledReward]:
    pool = await asyncio.to_thread(PooledReward, f"{MINE}:by_word", workers=2, limit=LIMIT)
    yield pool
    await pool.aclose()
    assert workers() == set()


def workers() -> set[int]:
    """The pool's processes."""

    def read(path: Path) -> str:
        try:
            return path.read_text()
        except (FileNotFoundError, ProcessLookupError):  # the thread or process has ended meanwhile
            return ""

    tasks = Path("/proc/self/task").iterdir()
    pids = {int(pid) for task in tasks for pid in read(task / "children").split()}
    return {pid for pid in pids if "memagent.tools.worker" in read(Path(f"/proc/{pid}/cmdline"))}


def ended(pids: Iterable[int], seconds: float = 10) -> bool:
    until = time.monotonic() + seconds
    while (left := [pid for pid in pids if _alive(pid)]) and time.monotonic() < until:
        time.sleep(0.02)
    return not left


async def said(pool: PooledReward, answer: str | None) -> object:
    verdict = await pool.judge(answer, sample())
    return verdict.error or verdict.reward


async def test_values_come_back(pool: PooledReward) -> None:
    assert await said(pool, "fraction") == 0.25
    assert await said(pool, None) == 1.0
    verdict = await pool.judge("columns", sample(columns={"a": 1, "b": 2}))
    assert verdict.reward == 3.0


async def test_what_goes_wrong_costs_its_own_rollout_only(pool: PooledReward) -> None:
    bad = ["nan", "raise", "exit", "die", "die quietly", "crash", "hang"]
    started = time.perf_counter()
    found = await asyncio.gather(*(said(pool, answer) for word in bad for answer in (word, "true")))
    assert found[1::2] == [1.0] * len(bad)
    nan, raised, left, died, quietly, crashed, hung = map(str, found[::2])
    assert "nan" in nan
    assert raised.startswith("the reward function raised ValueError: no such answer (mine.py:")
    assert left.startswith("the reward function raised SystemExit: 3 (mine.py:")
    assert "ended with exit code 7" in died
    assert "ended with exit code 0" in quietly
    assert "ended by signal 11 (SIGSEGV)" in crashed
    assert f"longer than {LIMIT:g} s" in hung
    assert time.perf_counter() - started < 20


async def test_the_loop_goes_on_while_a_function_works(pool: PooledReward) -> None:
    await said(pool, "true")  # all that is made at the first call is there
    ticks, working = 0, asyncio.create_task(said(pool, "slow"))
    while not working.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert working.result() == 1.0
    assert ticks > 10


async def test_workers_hold_no_torch(pool: PooledReward) -> None:
    import torch  # noqa: F401 - the parent has it

    assert await said(pool, "torch") == 0.0


def test_one_pool_serves_several_loops() -> None:
    pool = PooledReward(f"{MINE}:by_word", workers=1, limit=LIMIT)
    try:
        for _ in range(2):
            assert asyncio.run(_several(pool)) == [1.0] * 3
    finally:
        pool.close()


async def _several(pool: PooledReward) -> list[object]:
    return await asyncio.gather(*(said(pool, "true") for _ in range(3)))


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("raise RuntimeError('not in a child')", r"in a separate process: .*not in a child"),
        ("os._exit(5)", "ended with exit code 5"),
    ],
)
def test_a_module_that_only_the_parent_can_import_is_refused(
    there: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text(
        f"import os\nif os.getpid() != {os.getpid()}: {there}\n"
        "def reward(answer, sample): return 1.0\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match=said):
        PooledReward("only_here:reward", workers=1, limit=1)
    assert workers() == set()


SCRIPT = """
    import asyncio, signal
    from tests.train.rewards.made import sample
    from memagent_train.rewards.pool import PooledReward

    # What a shell runs in the background ignores it, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    pool = PooledReward("tests.train.rewards.mine:by_word", workers=2, limit=600)
    async def main():
        pids = await asyncio.gather(*(pool.judge(word, sample()) for word in ("slow pid", "pid")))
        asyncio.create_task(pool.judge("hang", sample()))
        await asyncio.sleep(0.3)
        print(*(int(pid.reward) for pid in pids), flush=True)
        await asyncio.sleep(600)
    asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_a_training_that_is_ended(
    tmp_path: Path, number: signal.Signals
) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    paths = [path for path in sys.path if path]
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *paths])},
    )
    assert process.stdout is not None
    with process.stdout:
        pids = [int(pid) for pid in process.stdout.readline().split()]
    assert len(pids) == 2
    process.send_signal(number)
    process.wait(20)
    assert ended(pids)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        # A process whose other threads have yet to end cannot be waited for.
        return state != "Z" or len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    except OSError:
        return False
