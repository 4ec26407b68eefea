"""The first signal ends the work, the second the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from memagent_train.runs.signals import Signalled, stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_raises_what_no_agent_takes_for_its_own_error(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    assert not issubclass(Signalled, Exception)
    with pytest.raises(Signalled) as caught, stop_on_signals():
        os.kill(os.getpid(), number)
    assert caught.value.number == number
    assert signal.getsignal(number) is before


def test_a_second_signal_ends_the_process() -> None:
    code = (
        "import os, signal\nfrom memagent_train.runs.signals import Signalled, stop_on_signals\n"
        "with stop_on_signals():\n  try:\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "  except Signalled:\n    print('first', flush=True)\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "  print('never')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "first\n")


def test_elsewhere_than_in_the_main_thread_nothing_is_changed() -> None:
    seen: list[object] = []

    def work() -> None:
        with stop_on_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]
