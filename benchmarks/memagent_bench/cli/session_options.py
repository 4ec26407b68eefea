"""The options of `memagent-bench sessions`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from memagent.cli import options as opt
from memagent.cli.setup import ServerOptions
from memagent_bench.cli.options import of_model, of_run, of_what


class Protocol(StrEnum):
    """How tool calls are sent."""

    NATIVE = "native"
    TEXT = "text"


class Player(StrEnum):
    """Who plays."""

    EXPERT = "expert"
    MODEL = "model"


@dataclass(frozen=True, kw_only=True)
class Sessions(ServerOptions):
    """The options of `sessions`."""

    suite: Annotated[
        str | None,
        of_what(
            "Run others' benchmark, from --data, instead of games: codegym, browsecomp-plus, repair, bfcl.",
            "NAME",
        ),
    ] = None
    data: Annotated[
        Path | None, of_what("Folder with the suite's data, which you have fetched.", "DIR")
    ] = None
    tasks: Annotated[int, of_what("With --suite: the first N tasks.", "N", low=1, default=True)] = (
        100
    )
    steps: Annotated[
        int, of_what("With --suite: maximum steps per task.", "N", low=1, default=True)
    ] = 100
    accept_licence: Annotated[
        bool, of_what("Accept the licence of the suite's data.", None, "--accept-licence")
    ] = False
    games: Annotated[
        str,
        of_what("Games to play; with --suite, ids of tasks.", "all|shifts|G,G,...", default=True),
    ] = "all"
    difficulty: Annotated[
        str, of_what("Roughly the steps that a game needs: 10 to 10,000.", "N,N,...", default=True)
    ] = "30,100,300"
    samples: Annotated[
        int, of_what("Deals of each game.", "N", "-n", "--samples", low=1, default=True)
    ] = 1
    seed: Annotated[
        int, of_what("Seed of the first deal; later deals count up from it.", default=True)
    ] = 42
    systems: Annotated[
        str,
        of_what(
            "full, drop-oldest, mask, summary. For shifts: loops, or names of frameworks (see docs/measure.md).",
            "all|loops|S,S,...",
            default=True,
        ),
    ] = "all"
    working_context: Annotated[
        str,
        of_what(
            "Tokens of prompt plus output, for all systems except full.", "N,N,...", default=True
        ),
    ] = "4096"
    summaries: Annotated[
        str, of_what("Maximum summaries per session.", "N,N,...", default=True)
    ] = "7,1000"
    writers: Annotated[
        str,
        of_what(
            "Who writes the summaries of loops: rules, or models such as smol, each in a row of its own.",
            "rules|SPEC,...",
            default=True,
        ),
    ] = "rules"
    keep: Annotated[
        int, of_what("Number of newest tool outputs that mask keeps.", "N", low=1, default=True)
    ] = 10
    player: Annotated[
        Player,
        of_what(
            "expert: the model gets every request, but a perfect player's replies are used. model: the model "
            "plays.",
            default=True,
        ),
    ] = Player.EXPERT
    protocol: Annotated[
        Protocol, of_what("Send tool calls in the server's format, or as text.", default=True)
    ] = Protocol.NATIVE
    model: Annotated[
        str | None,
        of_model(
            "vllm:NAME, sglang:NAME, openai:NAME. Default: none; prompts are counted, and no server is needed.",
            "SPEC",
        ),
    ] = None
    tokenizer: Annotated[
        str | None,
        of_model(
            "Token counter: a tokenizer file or folder, tiktoken:NAME, or bytes. Default: the model's; "
            "GPT-2's without a model.",
            "SPEC",
        ),
    ] = None
    window: Annotated[
        int | None,
        of_model(
            "The window to assume without a model; full must fit it. Default: unlimited.",
            "TOKENS",
            low=1,
        ),
    ] = None
    out: Annotated[Path, of_run("Folder for the records; an existing one is resumed.", "DIR")]
    concurrency: Annotated[
        int | None, of_run("Concurrent sessions. Default: 8 with a model, else 1.", "N", low=1)
    ] = None
    display: opt.DisplayOption = None
