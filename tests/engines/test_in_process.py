"""An engine in the process of its caller: tests that run in the engine's venv, and a reading."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from tests.engines import commands, venvs

from memagent_engines.smol import smol_folder

PACKAGES = sysconfig.get_path("purelib")


@pytest.fixture
def variables(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    engine: str = request.config.getoption("--engine")
    if engine != "vllm":
        pytest.skip("only vLLM has a model in the process")
    paths = [str(venvs.ROOT / name) for name in ("src", "benchmarks", "experiments", ".")]
    return commands.environment(engine, tmp_path) | {
        "MODEL_FOLDER": str(venvs.tiny_model()),
        "PYTHONPATH": os.pathsep.join(paths),
    }


@pytest.mark.timeout(300)
def test_the_contract_and_its_own_tests(variables: dict[str, str]) -> None:
    command = [str(venvs.python_of("vllm")), str(venvs.HERE / "inside.py"), PACKAGES]
    # vLLM's imports warn.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "-k", "vllm"]
    tests = ["tests/contracts/test_chat_model.py", "tests/models/in_process"]
    done = subprocess.run(
        [*command, *options, *tests],
        cwd=venvs.ROOT,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
