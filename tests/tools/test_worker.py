import json
import re
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from memagent.tools.worker import serve


def request(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": 1, "path": list(sys.path), "place": f"json:{name}", "arguments": arguments}


def start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from memagent.tools.worker import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (request("loads", s="[1]"), "loads: "),
        (request("nothing"), "has no readable signature"),
        ({**request("loads"), "place": "no_such_module_of_anybody:f"}, "ModuleNotFoundError: "),
        ({**request("f"), "place": "tests.nowhere:f"}, "Error: "),
    ],
    ids=["no-hints", "no-function", "no-module", "no-package"],
)
def test_what_cannot_be_run_is_an_error(asked: dict[str, Any], told: str) -> None:
    assert told in serve(asked)["error"]


def test_it_serves_until_its_input_ends() -> None:
    with start() as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        for _ in range(2):
            worker.stdin.write(json.dumps(request("nothing")) + "\n")
            worker.stdin.flush()
            assert "error" in json.loads(worker.stdout.readline())
        worker.stdin.close()
        assert worker.wait(10) == 0


def keep_the_interpreter() -> str:
    """Looks for what is not there, for ages, in one step of the interpreter."""
    return str(re.match(r"(a+)+$", "a" * 60 + "b"))


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not signal it")
def test_a_function_that_keeps_the_interpreter_ends_when_its_input_does() -> None:
    with start() as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        # The first one, which is not there, has the process start and import this module.
        for name in ("nothing", "keep_the_interpreter"):
            asked = {**request(name), "place": f"{__name__}:{name}"}
            worker.stdin.write(json.dumps(asked) + "\n")
            worker.stdin.flush()
            if name == "nothing":
                assert "error" in json.loads(worker.stdout.readline())
        time.sleep(1.0)
        assert worker.poll() is None
        worker.stdin.close()
        try:
            assert worker.wait(5) == -signal.SIGIO
        finally:
            worker.kill()
