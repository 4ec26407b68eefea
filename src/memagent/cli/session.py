"""What every command line shares: an app, one event loop, signals, and the library's warnings."""

import asyncio
import inspect
import logging
import os
import re
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

import typer
from typer.core import TyperGroup

import memagent
from memagent.cli.exits import Interrupted
from memagent.terminal import say

T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` to its end in this thread. The first signal cancels it and raises Interrupted, the second exits."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    signals: list[int] = []

    def stop(number: int) -> None:
        if signals:
            os._exit(128 + number)
        signals.append(number)
        task.cancel()

    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        return loop.run_until_complete(task)
    except BaseException as error:
        if signals:
            raise Interrupted(signals[0]) from error
        raise
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        if not signals:
            # After a signal, a thread may still be waiting for standard input: don't wait for it.
            loop.run_until_complete(loop.shutdown_default_executor())
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        loop.close()


class _Short(logging.Handler):
    """Prints each record as one short line on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"{record.levelname.lower()}:", record.getMessage(), style="yellow")


def show_warnings() -> None:
    """Shows this library's warnings, but not those of other libraries."""
    logger = logging.getLogger("memagent")
    logger.handlers = [_Short(logging.WARNING)]
    logger.propagate = False


class _Group(TyperGroup):
    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:  # rich would keep the line breaks of later paragraphs
            command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.cleandoc(command.help or ""))
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # Typer checks values with pydantic, which puts this before its reasons.
            if error.message.startswith("Input should "):
                from memagent.texts import describe_problem  # help needs no pydantic

                error.message = describe_problem(cast("Any", error.__cause__))  # with the value
            error.message = error.message.removeprefix("Value error, ")
            raise


def make_app(command: str, about: str, epilog: str) -> typer.Typer:
    """Makes an app without commands yet: its help shows `about`, then the commands added, then `epilog`."""
    app = typer.Typer(
        cls=_Group,
        help=about,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        epilog=epilog,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def print_version(value: bool) -> None:
        if value:
            print(f"{command} {memagent.__version__}")
            raise typer.Exit

    @app.callback()
    def root(  # pyright: ignore[reportUnusedFunction]
        version: bool = typer.Option(
            False,
            "--version",
            callback=print_version,
            is_eager=True,
            metavar="",
            help="Print the version.",
        ),
    ) -> None:
        show_warnings()

    return app
