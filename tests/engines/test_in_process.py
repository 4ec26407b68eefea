"""An engine in the process of its caller: tests that run in the engine's venv, and a reading."""

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from tests.engines import commands, groups, venvs
from tests.engines.test_smol import CHUNK, MEMORY, QUESTION, TEXT, WINDOW

from memagent_engines.smol import smol_folder

PACKAGES = sysconfig.get_path("purelib")
TESTS = ("tests/contracts/test_chat_model.py", "tests/models/in_process")

pytestmark = pytest.mark.timeout(600)


def run_inside(engine: str, folder: Path, *line: str) -> subprocess.CompletedProcess[str]:
    """Runs a module in the venv of an engine, and sees that none of its processes are left."""
    if engine != "vllm":
        pytest.skip("no other engine has a model in the process")
    paths = [str(venvs.ROOT / name) for name in ("src", "benchmarks", "experiments", ".")]
    variables = {
        # A gigabyte, unless the model's settings say otherwise.
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "MODEL_FOLDER": str(venvs.tiny_model()),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    process = subprocess.Popen(
        [str(venvs.python_of(engine)), str(venvs.HERE / "inside.py"), PACKAGES, *line],
        cwd=venvs.ROOT,
        env=commands.environment(engine, folder) | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, log = process.communicate()
        assert groups.wait_for_end(process.pid, groups.KILL_LIMIT)
    finally:
        groups.end(process.pid, folder / "gone")
    return subprocess.CompletedProcess(line, process.returncode, output, log)


def test_the_contract_and_its_own_tests(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    engine: str = request.config.getoption("--engine")
    # What engines import warns.
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "-k", engine]
    done = run_inside(engine, tmp_path, "pytest", *options, *TESTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_a_reading_from_the_command_line(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    engine: str = request.config.getoption("--engine")
    document = tmp_path / "book.txt"
    document.write_text(TEXT[:3000])
    line = [
        "memagent",
        "ask",
        str(document),
        QUESTION,
        "--model",
        f"{engine}-engine:{smol_folder()}",
    ]
    line += ["--window", str(WINDOW), "--chunk-tokens", str(CHUNK), "--memory-tokens", str(MEMORY)]
    done = run_inside(engine, tmp_path, *line, "--store", str(tmp_path / "r.sqlite"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()
    for word in ("vllm", "WARNING", "Traceback"):
        assert word not in done.stdout
    assert "Traceback" not in done.stderr
