import asyncio
import contextvars
import os
import subprocess
import sys
import threading

import pytest

from memagent.threads import WORKERS, in_thread


async def test_work_is_done_elsewhere_by_few() -> None:
    names = await asyncio.gather(
        *(in_thread(lambda: threading.current_thread().name) for _ in range(40))
    )
    assert all(name.startswith("memagent-work") for name in names)
    assert len(set(names)) <= WORKERS


async def test_errors_arguments_and_context_pass_through() -> None:
    here = contextvars.ContextVar("here", default=0)
    here.set(7)
    assert await in_thread(lambda a, b: (a, b, here.get()), 1, b=2) == (1, 2, 7)
    with pytest.raises(KeyError, match="x"):
        await in_thread({}.__getitem__, "x")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_gets_threads_of_its_own() -> None:
    code = (
        "import asyncio, os\nfrom memagent.threads import in_thread\n"
        "asyncio.run(in_thread(int))\npid = os.fork()\n"
        "if pid == 0: os._exit(asyncio.run(in_thread(int)))\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=20, check=False).returncode == 0
