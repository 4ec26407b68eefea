"""The options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Display(StrEnum):
    """How a command shows what it does."""

    FULL = "full"
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


class Cuts(StrEnum):
    """Where chunks end."""

    SENTENCE = "sentence"
    EXACT = "exact"


class Gate(StrEnum):
    """Which literals the model may answer with."""

    OFF = "off"
    UPDATE = "update"
    EXIT = "exit"
    BOTH = "both"


class Trust(StrEnum):
    """What becomes of look-alikes of prompt fields in the document."""

    NEUTRAL = "neutral"
    EXACT = "exact"


class Errors(StrEnum):
    """What becomes of bytes that do not decode."""

    STRICT = "strict"
    REPLACE = "replace"


MODEL, BUDGET, TEXT, RUN = "Model", "Budget and wording", "Document", "Run"

Doc = Annotated[
    str,
    typer.Argument(metavar="DOC", help="A text file, plain or gzip; [b]-[/] is standard input."),
]
Question = Annotated[
    str | None, typer.Argument(metavar="QUESTION", help="What to find out.", show_default=False)
]
Questions = Annotated[
    list[str] | None,
    typer.Option(
        "-q",
        "--question",
        metavar="QUESTION",
        help="A question; give it several times to answer all in one pass.",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        help="vllm:NAME, sglang:NAME, openai:NAME, transformers:FOLDER, nano or extractive. Default: MEMAGENT_MODEL.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The server, up to /v1, or several with commas between. Default: MEMAGENT_BASE_URL, OPENAI_BASE_URL, "
        "then localhost.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        help="What counts tokens: a tokenizer file or folder, tiktoken:NAME, or bytes. Default: the model's own.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of the run.", rich_help_panel=MODEL)]
Window = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS",
        help="Tokens of prompt plus output. Default: the server's window, at most 8192.",
        rich_help_panel=BUDGET,
        show_default=False,
    ),
]
ChunkTokens = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS",
        help="Tokens of a chunk. Default: what the window leaves, about 5000 of 8192.",
        rich_help_panel=BUDGET,
        show_default=False,
    ),
]
MemoryTokens = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS",
        help="Tokens of the memory, and of one reply. Default: about 1000 of 8192.",
        rich_help_panel=BUDGET,
        show_default=False,
    ),
]
CutsOption = Annotated[
    Cuts | None,
    typer.Option(
        help="Cut at sentence ends, or exactly at the limit. Default: the policy's own, else sentence.",
        rich_help_panel=BUDGET,
        show_default=False,
    ),
]
Prompts = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="plain, boxed, or a TOML file. Default: the policy's own, else plain.",
        rich_help_panel=BUDGET,
        show_default=False,
    ),
]
GateOption = Annotated[
    Gate | None,
    typer.Option(
        help="update lets the model keep its memory in a few tokens, exit lets it stop early. Default: the policy's "
        "own, else off.",
        rich_help_panel=BUDGET,
        show_default=False,
    ),
]
TrustOption = Annotated[
    Trust | None,
    typer.Option(
        help="neutral makes look-alikes of prompt fields harmless; exact leaves them, for trained checkpoints. "
        "Default: the policy's own, else neutral.",
        rich_help_panel=BUDGET,
        show_default=False,
    ),
]
Overlap = Annotated[
    int | None,
    typer.Option(
        metavar="TOKENS",
        min=0,
        help="Tokens of a chunk that the next one repeats. Default: the policy's own, else 0.",
        rich_help_panel=BUDGET,
        show_default=False,
    ),
]
Temperature = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0,
        help="Sampling temperature; 0 is greedy. Default: the policy's own, else 0.7.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
MaxCalls = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Stop, to be resumed, once the run has made N calls in all. Default: no limit.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The document's encoding. Default: found out.",
        rich_help_panel=TEXT,
        show_default=False,
    ),
]
ErrorsOption = Annotated[
    Errors,
    typer.Option(help="Stop at a byte that does not decode, or replace it.", rich_help_panel=TEXT),
]
Store = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The file that runs are kept in. Default: runs.sqlite in your state folder.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
Durable = Annotated[
    bool,
    typer.Option(
        "--durable",
        help="Lose nothing in a power cut either; slower.",
        rich_help_panel=RUN,
    ),
]
RunId = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Names the run. An unfinished run of that name is taken up again.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
DisplayOption = Annotated[
    Display | None,
    typer.Option(
        help="full is for a terminal, plain for lines, json for one object, none for the bare answer. "
        "Default: full on a terminal, else plain.",
        rich_help_panel=RUN,
        show_default=False,
    ),
]
