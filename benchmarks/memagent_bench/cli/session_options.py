"""The options of `memagent-bench sessions`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.setup import Served
from memagent_bench.cli.options import WHAT


class Protocol(StrEnum):
    """How tool calls are sent."""

    NATIVE = "native"
    TEXT = "text"


class Player(StrEnum):
    """Who plays."""

    EXPERT = "expert"
    MODEL = "model"


def _what(metavar: str, text: str) -> typer.models.OptionInfo:
    return typer.Option(metavar=metavar, help=text, rich_help_panel=WHAT)


@dataclass(frozen=True, kw_only=True)
class Sessions(Served):
    """The options of `sessions`."""

    suite: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Run others' benchmark, from --data, instead of games: codegym, browsecomp-plus, repair, bfcl.",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with the suite's data, which you have fetched.",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None
    tasks: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="With --suite: the first N tasks.", rich_help_panel=WHAT
        ),
    ] = 100
    steps: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, help="With --suite: maximum steps per task.", rich_help_panel=WHAT
        ),
    ] = 100
    accept_licence: Annotated[
        bool,
        typer.Option(
            "--accept-licence", help="Accept the licence of the suite's data.", rich_help_panel=WHAT
        ),
    ] = False
    games: Annotated[
        str, _what("all|shifts|G,G,...", "Games to play; with --suite, ids of tasks.")
    ] = "all"
    difficulty: Annotated[
        str, _what("N,N,...", "Roughly the steps that a game needs: 10 to 10,000.")
    ] = "30,100,300"
    samples: Annotated[
        int,
        typer.Option(
            "-n", "--samples", metavar="N", min=1, help="Deals of each game.", rich_help_panel=WHAT
        ),
    ] = 1
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of the first deal; later deals count up from it.", rich_help_panel=WHAT
        ),
    ] = 42
    systems: Annotated[
        str,
        _what(
            "all|loops|S,S,...",
            "full, drop-oldest, mask, summary. For shifts: loops, or names of frameworks (see docs/measure.md).",
        ),
    ] = "all"
    working_context: Annotated[
        str, _what("N,N,...", "Tokens of prompt plus output, for all systems except full.")
    ] = "4096"
    summaries: Annotated[str, _what("N,N,...", "Maximum summaries per session.")] = "7,1000"
    writers: Annotated[
        str,
        _what(
            "rules|SPEC,...",
            "Who writes the summaries of loops: rules, or models such as smol, each in a row of its own.",
        ),
    ] = "rules"
    keep: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of newest tool outputs that mask keeps.",
            rich_help_panel=WHAT,
        ),
    ] = 10
    player: Annotated[
        Player,
        typer.Option(
            help="expert: the model gets every request, but a perfect player's replies are used. model: the model "
            "plays.",
            rich_help_panel=WHAT,
        ),
    ] = Player.EXPERT
    protocol: Annotated[
        Protocol,
        typer.Option(
            help="Send tool calls in the server's format, or as text.", rich_help_panel=WHAT
        ),
    ] = Protocol.NATIVE
    model: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="vllm:NAME, sglang:NAME, openai:NAME. Default: none; prompts are counted, and no server is needed.",
            rich_help_panel=opt.MODEL,
            show_default=False,
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Token counter: a tokenizer file or folder, tiktoken:NAME, or bytes. Default: the model's; "
            "GPT-2's without a model.",
            rich_help_panel=opt.MODEL,
            show_default=False,
        ),
    ] = None
    window: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            min=1,
            help="The window to assume without a model; full must fit it. Default: unlimited.",
            rich_help_panel=opt.MODEL,
            show_default=False,
        ),
    ] = None
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder for the records; an existing one is resumed.",
            rich_help_panel=opt.RUN,
        ),
    ]
    concurrency: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Concurrent sessions. Default: 8 with a model, else 1.",
            rich_help_panel=opt.RUN,
            show_default=False,
        ),
    ] = None
    display: opt.DisplayOption = None
