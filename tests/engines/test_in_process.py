"""An engine in the process of its caller: tests that run in the engine's venv, and a reading."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from tests.engines import commands, groups, venvs
from tests.engines.test_smol import CHUNK, MEMORY, QUESTION, TEXT, WINDOW
from tests.engines.test_training import ROOT, check_metrics, write_training
from tests.models.in_process.engine import EACH

from memagent_engines.smol import smol_folder

PACKAGES = sysconfig.get_path("purelib")
TRAINING = (
    ROOT / ".venv-train" / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
)
TESTS = ("tests/contracts/test_chat_model.py", "tests/models/in_process")

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> str:
    """The engine's name; no server is started."""
    return str(request.config.getoption("--engine"))


def run_inside(
    engine: str,
    folder: Path,
    *line: str,
    packages: str = PACKAGES,
    cwd: Path = venvs.ROOT,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a module in the venv of an engine, and sees that none of its processes are left."""
    own = commands.environment(engine, folder)
    paths = [str(venvs.ROOT / name) for name in ("src", "benchmarks", "experiments", ".")]
    paths.append(own.get("PYTHONPATH", ""))
    variables |= {
        "MODEL_FOLDER": str(venvs.tiny_model()),
        "PYTHONPATH": os.pathsep.join(paths),
    }
    process = subprocess.Popen(
        [str(venvs.python_of(engine)), str(venvs.HERE / "inside.py"), packages, *line],
        cwd=cwd,
        env=own | variables,
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


def test_the_contract_and_its_own_tests(engine: str, tmp_path: Path) -> None:
    # What engines import warns.
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore",
        "--timeout",  # for a test that starts an engine several times on a slow machine
        "300",
        "-k",
        f"{engine}-engine or in_process",
    ]
    done = run_inside(engine, tmp_path, "pytest", *options, *TESTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_a_reading_from_the_command_line(engine: str, tmp_path: Path) -> None:
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
    line += ["--store", str(tmp_path / "r.sqlite"), "--json"]
    done = run_inside(engine, tmp_path, *line, VLLM_CPU_KVCACHE_SPACE="1")  # gigabyte
    assert done.returncode == 0, done.stdout + done.stderr
    # vLLM's log goes elsewhere.
    assert json.loads(done.stdout)["answer"].strip()
    assert "Traceback" not in done.stderr


def test_training_with_the_engine_beside_it(engine: str, tmp_path: Path) -> None:
    write_training(engine, tmp_path)
    settings = ", ".join(f"{name} = {json.dumps(value)}" for name, value in EACH[engine].items())
    options = [
        f"rollout.engine={engine}-engine",
        f"rollout.engine_settings={{{settings}}}",
    ]
    done = run_inside(
        engine,
        tmp_path,
        *("memagent_train", "grpo", "grpo.toml", "--out", "run"),
        *(word for one in options for word in ("--set", one)),
        packages=str(TRAINING),
        cwd=tmp_path,
        HF_HUB_OFFLINE="1",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    check_metrics(tmp_path / "run")
