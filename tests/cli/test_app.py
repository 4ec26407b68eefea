import pytest
from tests.cli.conftest import Invoke, Process

import memagent as package


def test_version(memagent: Process) -> None:
    done = memagent("--version")
    assert (done.returncode, done.stdout) == (0, f"memagent {package.__version__}\n")


def test_help_names_every_command_and_exit_code(invoke: Invoke) -> None:
    done = invoke("--help")
    assert done.exit_code == 0
    for word in ("ask", "estimate", "probe", "resume", "runs", "show", "demo", "130"):
        assert f" {word}" in done.output


def test_help_loads_nothing_that_is_slow_to_import(memagent: Process) -> None:
    done = memagent("--help", PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "memagent.cli.ask" in loaded  # which the app imports
    assert not loaded & {"openai", "httpx", "tokenizers", "jinja2"}


def test_no_command_shows_the_help(invoke: Invoke) -> None:
    done = invoke()
    assert done.exit_code == 2
    assert "memagent demo" in done.output


def test_each_command_explains_itself(invoke: Invoke) -> None:
    for command in ("ask", "estimate", "probe", "resume", "show", "runs", "demo"):
        done = invoke(command, "-h")
        assert done.exit_code == 0
        assert "--display" in done.output


def test_no_option_takes_a_key(invoke: Invoke) -> None:
    assert "--api" not in invoke("ask", "--help").output
    assert "--key" not in invoke("ask", "--help").output


@pytest.mark.parametrize(("command", "flag"), [("ask", "--durable"), ("runs", "--json")])
def test_a_flag_is_shown_without_a_type(invoke: Invoke, command: str, flag: str) -> None:
    (line,) = (
        line for line in invoke(command, "--help").output.splitlines() if f" {flag} " in line
    )
    assert "<bool>" not in line
