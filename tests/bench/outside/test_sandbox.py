"""The sandbox holds: what foreign code may not do fails, and what it may use is limited."""

import ast
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.bench.outside.cages import OBEDIENT, Open

from memagent.errors import ToolError
from memagent_bench.outside.sandbox import MIB, SandboxEnded


def test_a_program_answers_and_keeps_its_state(sandbox: Open) -> None:
    toy = sandbox()
    assert toy.ask("globals().setdefault('kept', 1)") == {"value": "1"}
    assert toy.ask("kept + 1") == {"value": "2"}
    assert toy.ask("__import__('pytest').__name__") == {"value": "'pytest'"}
    assert toy.ask("nothing")["raised"].startswith("NameError")


def test_there_is_no_network(sandbox: Open) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        where = listening.getsockname()
        toy = sandbox()
        for address in (where, ("1.1.1.1", 53)):
            reply = toy.ask(f"socket.create_connection({address!r}, 2)")
            assert "OSError" in reply["raised"] or "ConnectionRefused" in reply["raised"]
        assert "raised" in toy.ask("socket.getaddrinfo('example.org', 80)")


def test_files_of_the_user_are_out_of_reach(sandbox: Open, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("mine")
    toy = sandbox()
    assert toy.ask(f"open({str(secret)!r}).read()")["raised"].startswith("FileNotFoundError")
    assert toy.ask(f"open({str(secret)!r}, 'w')")["raised"].startswith("FileNotFoundError")
    for path in ("/x", "/usr/x", f"{sys.prefix}/x", "/dev/x", "/etc/passwd"):
        assert "Error" in toy.ask(f"open({path!r}, 'w')")["raised"], path
    home = str(Path.home())
    left = toy.ask(f"os.listdir({home!r}) if os.path.exists({home!r}) else []")["value"]
    # An interpreter that is installed there may be read.
    shown = [Path(prefix).resolve() for prefix in (sys.base_prefix, sys.prefix)]
    allowed = {path.relative_to(home).parts[0] for path in shown if path.is_relative_to(home)}
    assert {*ast.literal_eval(left)} <= allowed
    assert toy.ask("open('/tmp/mine', 'w').write('x')") == {"value": "1"}
    assert not Path("/tmp/mine").exists()


def test_other_processes_are_out_of_reach(sandbox: Open) -> None:
    toy = sandbox()
    assert toy.ask("[n for n in os.listdir('/proc') if n.isdigit()]")["value"] in ("['1']", "[]")
    assert toy.ask(f"os.kill({psutil.Process().pid}, 9)")["raised"].startswith("ProcessLookup")


def test_nothing_gives_rights_back(sandbox: Open) -> None:
    toy = sandbox()
    for call in ("mount(b'none', b'/tmp', b'tmpfs', 0, None)", "unshare(0x10000000)"):
        assert toy.ask(f"__import__('ctypes').CDLL(None).{call}") == {"value": "-1"}
    assert "raised" in toy.ask("os.setuid(0) if os.getuid() else os.chroot('/tmp')")
    assert toy.ask("[k for k in os.environ if 'KEY' in k or 'TOKEN' in k]") == {"value": "[]"}


def test_an_endless_loop_is_ended(sandbox: Open) -> None:
    toy = sandbox(seconds=0.5)
    began = time.monotonic()
    with pytest.raises(SandboxEnded, match=r"the test took longer than 0\.5 seconds"):
        toy.ask("[0 for _ in iter(int, 1)]")
    assert time.monotonic() - began < 5
    with pytest.raises(SandboxEnded, match="took longer"):
        toy.ask("1")


def test_processor_time_is_limited(sandbox: Open) -> None:
    with pytest.raises(SandboxEnded, match="ended on its own"):
        sandbox(cpu=1, seconds=30).ask("[0 for _ in iter(int, 1)]")


def test_a_fork_bomb_is_small_and_ends(sandbox: Open) -> None:
    toy = sandbox(seconds=1, processes=12)
    bomb = "exec('while True:\\n try: os.fork()\\n except OSError: time.sleep(0.01)')"
    with pytest.raises(SandboxEnded):
        toy.ask(bomb)
    toy = sandbox(processes=12)
    assert (
        "BlockingIOError"
        in toy.ask("[subprocess.Popen(['/usr/bin/sleep', '9']) for _ in range(20)]")["raised"]
    )
    inside = psutil.Process().children(recursive=True)
    assert sum(process.name() == "sleep" for process in inside) <= 12
    toy.close()
    _, alive = psutil.wait_procs(inside, timeout=5)
    assert [process for process in alive if process.name() == "sleep"] == []


def test_memory_is_limited(sandbox: Open) -> None:
    toy = sandbox(memory=256 * MIB)
    assert toy.ask("len(bytearray(1 << 30))")["raised"].startswith("MemoryError")
    assert toy.ask("1") == {"value": "1"}


def test_disk_is_limited(sandbox: Open) -> None:
    toy = sandbox(file=MIB, scratch=2 * MIB)
    assert "File too large" in toy.ask("open('/tmp/a', 'wb').write(bytes(9 << 20))")["raised"]
    full = "[open(f'/tmp/{n}', 'wb').write(bytes(1 << 19)) for n in range(9)]"
    assert "No space left" in toy.ask(full)["raised"]


@pytest.mark.parametrize(
    "huge", ["'x' * (9 << 20)", "os.write(1, b'x' * (9 << 20))", "os.write(1, b'[]\\n' * 9)"]
)
def test_a_huge_reply_ends_the_program(sandbox: Open, huge: str) -> None:
    toy = sandbox(message=MIB, seconds=5)
    with pytest.raises(SandboxEnded, match=r"more than 1,048,576 bytes|not a JSON object"):
        toy.ask(huge)


def test_a_huge_request_is_refused_and_not_sent(sandbox: Open) -> None:
    toy = sandbox(message=MIB)
    with pytest.raises(ToolError, match="104,857,602 bytes"):
        toy.ask("x" * (100 * MIB))
    assert toy.ask("1") == {"value": "1"}


def test_a_program_that_reads_nothing_keeps_nobody_waiting(sandbox: Open) -> None:
    toy = sandbox("import time; time.sleep(60)", seconds=0.5)
    with pytest.raises(SandboxEnded, match=r"longer than 0\.5 seconds"):
        toy.ask("x" * (MIB - 9))


@pytest.mark.parametrize("death", ["os._exit(3)", "__import__('ctypes').string_at(1)"])
def test_a_program_that_dies_is_reported(sandbox: Open, death: str) -> None:
    with pytest.raises(SandboxEnded, match=r"the test ended"):
        sandbox().ask(death)


def test_it_ends_with_whoever_started_it(sandbox: Open) -> None:
    sandbox()  # so that there are sandboxes here
    loop = "s._socket.sendall(b'\"[0 for _ in iter(int, 1)]\"\\n')"
    script = (
        f"import time\nfrom memagent_bench.outside.sandbox import *\n"
        f"s = Sandbox({OBEDIENT!r}, Limits(), 'the test')\n{loop}\nprint('up', flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        inside = psutil.Process(starter.pid).children(recursive=True)
        assert len(inside) == 2
        starter.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(inside, timeout=10)
    assert alive == []


def test_where_nothing_can_be_isolated_nothing_runs(sandbox: Open) -> None:
    sandbox()
    script = (
        "from memagent_bench.outside.sandbox import *\n"
        "try: Sandbox('', Limits(), 'the test')\n"
        "except NoSandbox as error: print(error)"
    )
    none_left = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", none_left, sys.executable, script],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "the test is foreign code, and this machine cannot isolate it" in done.stdout
    assert "namespaces" in done.stdout
    assert "--security-opt seccomp=unconfined" in done.stdout


def test_closing_twice_is_harmless(sandbox: Open) -> None:
    toy = sandbox()
    toy.close()
    toy.close()
    with pytest.raises(SandboxEnded, match="was closed"):
        toy.ask("1")


def test_a_sandbox_without_a_program_ends(sandbox: Open) -> None:
    with pytest.raises(SandboxEnded, match="ended"):
        sandbox("").ask("1")
