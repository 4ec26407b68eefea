"""The options that commands share; those of an agent's settings bear the settings' names."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.models import ArgumentInfo, OptionInfo


class Display(StrEnum):
    """How a command shows what it does."""

    FULL = "full"
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


Cuts = Literal["sentence", "exact"]
Gate = Literal["off", "update", "exit", "both"]
Trust = Literal["neutral", "exact"]
Errors = Literal["strict", "replace"]

MODEL, BUDGET, TEXT, RUN = "Model", "Budget and wording", "Document", "Run"


def option(
    panel: str | None,
    text: str,
    *names: str,
    metavar: str | None = None,
    low: float | None = None,
    default: bool = False,
) -> OptionInfo:
    """An option of a command.

    Args:
        panel: the heading that its help stands under; None for the first one.
        text: its help.
        names: other than that of its parameter.
        metavar: stands for the value.
        low: the least value.
        default: whether the help shows the default.
    """
    return typer.Option(
        *names, metavar=metavar, min=low, help=text, rich_help_panel=panel, show_default=default
    )


def argument(metavar: str, text: str) -> ArgumentInfo:
    """An argument of a command."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


RunArgument = Annotated[str, argument("ID", "As `memagent runs` lists it.")]
Doc = Annotated[str, argument("DOC", "A text file, plain or gzip; [b]-[/] is standard input.")]
Question = Annotated[str | None, argument("QUESTION", "What to find out.")]
Questions = Annotated[
    list[str] | None,
    option(
        None,
        "A question; repeat it to answer several in one pass.",
        "-q",
        "--question",
        metavar="QUESTION",
    ),
]

# --- model

Model = Annotated[
    str | None,
    option(
        MODEL,
        "vllm:NAME, sglang:NAME, openai:NAME, transformers:FOLDER, nano or extractive. Default: MEMAGENT_MODEL.",
        metavar="SPEC",
    ),
]
BaseUrl = Annotated[
    str | None,
    option(
        MODEL,
        "The server's address, up to /v1; several with commas between. Default: MEMAGENT_BASE_URL, "
        "OPENAI_BASE_URL, then localhost.",
        metavar="URL",
    ),
]
Tokenizer = Annotated[
    str | None,
    option(
        MODEL,
        "What counts tokens: a tokenizer file or folder, tiktoken:NAME, or bytes. Default: the model's tokenizer.",
        metavar="SPEC",
    ),
]
Timeout = Annotated[
    float | None,
    option(
        MODEL,
        "Seconds to wait for the reply to a call. Default: 600.",
        metavar="SECONDS",
        low=0.001,
    ),
]
Headers = Annotated[
    list[str] | None,
    option(
        MODEL,
        "A header to send with every request; may be repeated. It is not stored.",
        "--header",
        metavar="'NAME: VALUE'",
    ),
]
ExtraBody = Annotated[
    str | None,
    option(
        MODEL,
        """Further fields of every chat request: '{"top_k": 20}'. null leaves a field out.""",
        metavar="JSON",
    ),
]
Retries = Annotated[
    int | None,
    option(
        MODEL,
        "How often a failed call is sent again. Default: 4.",
        metavar="N",
        low=0,
    ),
]
Temperature = Annotated[
    float | None,
    option(
        MODEL,
        "Sampling temperature; 0 is greedy. Default: the policy's, else 0.7.",
        metavar="X",
        low=0,
    ),
]
Seed = Annotated[int, option(MODEL, "Seed of the run.", default=True)]

# --- budget and wording

Window = Annotated[
    int | None,
    option(
        BUDGET,
        "Tokens of prompt plus output. Default: the server's window, at most 8192.",
        metavar="TOKENS",
    ),
]
ChunkTokens = Annotated[
    int | None,
    option(
        BUDGET,
        "Tokens of a chunk. Default: what the window leaves, about 5000 of 8192.",
        metavar="TOKENS",
    ),
]
MemoryTokens = Annotated[
    int | None,
    option(
        BUDGET,
        "Tokens of the memory, and of one reply. Default: about 1000 of 8192.",
        metavar="TOKENS",
    ),
]
CutsOption = Annotated[
    Cuts | None,
    option(
        BUDGET,
        "Cut at sentence ends, or exactly at the limit. Default: the policy's, else sentence.",
    ),
]
Overlap = Annotated[
    int | None,
    option(
        BUDGET,
        "Tokens of a chunk that the next chunk repeats. Default: the policy's, else 0.",
        metavar="TOKENS",
        low=0,
    ),
]
Prompts = Annotated[
    str | None,
    option(
        BUDGET,
        "plain, boxed, or a TOML file. Default: the policy's, else plain.",
        metavar="NAME|FILE",
    ),
]
GateOption = Annotated[
    Gate | None,
    option(
        BUDGET,
        "update lets the model keep its memory in a few tokens, exit lets it stop early. Default: the policy's, "
        "else off.",
    ),
]
TrustOption = Annotated[
    Trust | None,
    option(
        BUDGET,
        "neutral makes look-alikes of prompt fields harmless; exact leaves them, for trained checkpoints. "
        "Default: the policy's, else neutral.",
    ),
]

# --- document

Encoding = Annotated[
    str | None,
    option(TEXT, "The document's encoding. Default: detected.", metavar="NAME"),
]
ErrorsOption = Annotated[
    Errors, option(TEXT, "Stop at a byte that does not decode, or replace it.", default=True)
]

# --- run

Store = Annotated[
    Path | None,
    option(
        RUN,
        "The file that holds the runs. Default: runs.sqlite in your state folder.",
        metavar="FILE",
    ),
]
Durable = Annotated[bool, option(RUN, "Lose nothing in a power cut either; slower.", "--durable")]
RunId = Annotated[
    str | None,
    option(RUN, "Name of the run. An unfinished run of that name is resumed.", metavar="ID"),
]
MaxCalls = Annotated[
    int | None,
    option(
        RUN,
        "Stop once the run has made N calls in all; it can be resumed. Default: no limit.",
        metavar="N",
        low=1,
    ),
]
DisplayOption = Annotated[
    Display | None,
    option(
        RUN,
        "full is for a terminal, plain prints lines, json one object, none the bare answer. "
        "Default: full on a terminal, else plain.",
    ),
]
Json = Annotated[bool, option(RUN, "Short for --display json.", "--json")]
