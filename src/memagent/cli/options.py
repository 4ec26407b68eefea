"""Options that commands share, and commands whose options are the fields of a dataclass."""

import sys
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import partial
from inspect import Parameter, Signature, get_annotations
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from memagent.terminal import on_terminal

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


class Display(StrEnum):
    """How a command shows its progress and result."""

    FULL = "full"
    PLAIN = "plain"
    JSON = "json"
    NONE = "none"


def chosen_display(display: Display | None, *, json: bool = False) -> Display:
    """Chooses `full` if standard output is a terminal, else `plain`, even where `full` was asked for."""
    if json:
        return Display.JSON
    if display in (None, Display.FULL):
        return Display.FULL if on_terminal(sys.stdout) else Display.PLAIN
    return display


def screen_of(display: Display) -> IO[str] | None:
    """Returns the terminal to draw on, if any: standard error where standard output carries data."""
    stream = sys.stdout if display is Display.FULL else sys.stderr
    return stream if display is not Display.PLAIN and on_terminal(stream) else None


Cuts = Literal["sentence", "exact"]
Gate = Literal["off", "update", "exit", "both"]
Trust = Literal["neutral", "exact"]
Degenerate = Literal["retry", "keep", "take"]

MODEL, BUDGET, TEXT, RUN, LIMITS = "Model", "Budget and wording", "Document", "Run", "Limits"


def argument(metavar: str, text: str) -> ArgumentInfo:
    """Makes an argument of a command."""
    return typer.Argument(metavar=metavar, help=text, show_default=False)


def option(
    text: str,
    metavar: str | None = None,
    *names: str,
    panel: str | None = None,
    low: float | None = None,
    high: float | None = None,
    default: bool = False,
) -> OptionInfo:
    """Makes an option of a command. `metavar` names its value, empty for a flag; `panel` is its heading in the help."""
    return typer.Option(
        *names, metavar=metavar, min=low, max=high, help=text, rich_help_panel=panel, show_default=default
    )  # fmt: skip


_of_model = partial(option, panel=MODEL)
_of_budget = partial(option, panel=BUDGET)
_of_run = partial(option, panel=RUN)
limit = partial(option, metavar="N", panel=LIMITS, low=0)

DOC_HELP = "A file, a folder, or a pattern in quotes ('notes/*.md'); [b]-[/] is standard input."
MODEL_HELP = (
    "vllm:NAME, sglang:NAME, ollama:NAME, openai:NAME, transformers:FOLDER, vllm-engine:FOLDER, "
    "sglang-engine:FOLDER, smol, nano or extractive. Default: MEMAGENT_MODEL."
)
LANGUAGE_HELP = MODEL_HELP.replace("smol, nano or extractive", "smol or nano")
TOKENIZER_HELP = "A tokenizer file or folder, tiktoken:NAME, or bytes. Default: the model's."
GATE_HELP = (
    "update lets the model keep its memory unchanged for a few tokens, exit lets it stop early. Default: as the "
    "model was trained, else off."
)
DEGENERATE_HELP = (
    "If a new memory repeats itself or collapses: retry asks again, up to twice, then accepts it; keep asks again, "
    "then keeps the old one; take accepts it at once. Default: as the model was trained, else retry."
)
TRUST_HELP = (
    "neutral makes look-alikes of prompt fields harmless; exact leaves them, for trained checkpoints. Default: as the "
    "model was trained, else neutral."
)
AGAIN_HELP = "The document, if it was standard input or has moved; - is standard input."
WINDOW_HELP = "Tokens of prompt plus output. Default: the server's, at most 8192."
CHUNK_HELP = "Tokens of a chunk. Default: the rest of the window, about 5000 of 8192."
MEMORY_HELP = "Tokens of the memory, and of one reply. Default: about 1000 of 8192."
CUTS_HELP = "Cut at sentence ends, or exactly at the limit. Default: as the model was trained, else sentence."
PROMPTS_HELP = "plain, boxed, shared, small, summary, or a TOML file. Default: as the model was trained, else plain."
DISPLAY_HELP = (
    "full is for a terminal, plain prints lines, json one object, none only the result. Default: full on a terminal, "
    "else plain."
)

RunArgument = Annotated[str, argument("ID", "As `memagent runs` lists it.")]

DocumentAgain = Annotated[str | None, option(AGAIN_HELP, "FILE")]
Model = Annotated[str | None, _of_model(MODEL_HELP, "SPEC")]
LanguageModel = Annotated[str | None, _of_model(LANGUAGE_HELP, "SPEC")]
Tokenizer = Annotated[str | None, _of_model(TOKENIZER_HELP, "SPEC")]
Temperature = Annotated[
    float | None,
    _of_model("Temperature; 0 is greedy. Default: as the model was trained, else 0.7.", "X", low=0),
]

Window = Annotated[int | None, _of_budget(WINDOW_HELP, "TOKENS")]
ChunkTokens = Annotated[int | None, _of_budget(CHUNK_HELP, "TOKENS")]
MemoryTokens = Annotated[int | None, _of_budget(MEMORY_HELP, "TOKENS")]
CutsOption = Annotated[Cuts | None, _of_budget(CUTS_HELP)]
Prompts = Annotated[str | None, _of_budget(PROMPTS_HELP, "NAME|FILE")]
GateOption = Annotated[Gate | None, _of_budget(GATE_HELP)]
DegenerateOption = Annotated[Degenerate | None, _of_budget(DEGENERATE_HELP)]
ReadAhead = Annotated[
    str | None,
    _of_budget(
        "Chunks sent at once; the result is that of reading in order. A number, or [b]auto[/]. Default: 1. "
        "Needs --temperature 0; best with --gate update.",
        "N",
    ),
]
Reread = Annotated[
    int | None,
    _of_budget("How many chunks to read again if the model says that its memory doesn't settle the question. "
               "Default: as it was trained, else 0.", "N", low=0),
]  # fmt: skip
TrustOption = Annotated[Trust | None, _of_budget(TRUST_HELP)]

Store = Annotated[
    Path | None, _of_run("The file of runs. Default: runs.sqlite in your state folder.", "FILE")
]
Durable = Annotated[
    bool, _of_run("Survive a power cut without losing a step; slower.", "", "--durable")
]
DisplayOption = Annotated[Display | None, _of_run(DISPLAY_HELP)]
Json = Annotated[bool, _of_run("Short for --display json.", "", "--json")]


def command_of(
    options: type[T], run: Callable[[T], None], *, without: Collection[str] = ()
) -> Callable[..., None]:
    """Makes a function that typer can turn into a command: its options are the fields of `options`, except `without`.

    The fields are annotated like parameters of a command. `run` gets the instance; its docstring is the help.
    """
    hints = get_type_hints(options, include_extras=True)
    # A class's additions come before what it inherits: they are what its command is about.
    names = dict.fromkeys(name for kind in options.__mro__ for name in get_annotations(kind))
    defaults = {field.name: field.default for field in fields(options)}
    parameters = [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if defaults[name] is MISSING else defaults[name],
            annotation=hints[name],
        )
        for name in names
        if name in defaults and name not in without
    ]

    def command(**values: Any) -> None:
        run(options(**values))

    command.__doc__ = run.__doc__
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # Typer reads this attribute, which a plain function lacks.
    setattr(command, "__signature__", Signature(parameters))  # noqa: B010
    return command
