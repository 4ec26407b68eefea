import asyncio
import logging
import os
import signal

import pytest

from memagent.cli.exits import Interrupted
from memagent.cli.session import drive, show_warnings


def test_work_runs_to_its_end() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return await asyncio.to_thread(lambda: 7)

    assert drive(work()) == 7


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_and_lets_the_work_clean_up(number: signal.Signals) -> None:
    cleaned: list[bool] = []

    async def work() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    with pytest.raises(Interrupted) as stop:
        drive(work())
    assert stop.value.code == 128 + number
    assert cleaned == [True]


def test_errors_pass_and_handlers_are_put_back() -> None:
    async def work() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        drive(work())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_warnings_of_the_library_are_short_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("memagent")
    before = logger.handlers, logger.propagate
    try:
        show_warnings()
        logging.getLogger("memagent.models").warning("four times the %s", "calls")
        logging.getLogger("memagent.models").info("nobody asked")
        logging.getLogger("other").warning("not ours")
        assert capsys.readouterr().err == "warning: four times the calls\n"
    finally:
        logger.handlers, logger.propagate = before
