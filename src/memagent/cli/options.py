"""The options that several commands share, and the agent that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memagent.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from memagent.agents.memory import MemoryAgent
    from memagent.runstore import RunStore


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
        help="vllm:NAME, sglang:NAME, openai:NAME or extractive. Default: MEMAGENT_MODEL.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
BaseUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The server, up to /v1. Default: MEMAGENT_BASE_URL, OPENAI_BASE_URL, then localhost.",
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
    Cuts,
    typer.Option(help="Cut at sentence ends, or exactly at the limit.", rich_help_panel=BUDGET),
]
Prompts = Annotated[
    str,
    typer.Option(metavar="NAME|FILE", help="plain, boxed, or a TOML file.", rich_help_panel=BUDGET),
]
GateOption = Annotated[
    Gate,
    typer.Option(
        help="update lets the model keep its memory in one token, exit lets it stop early.",
        rich_help_panel=BUDGET,
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


@dataclass(frozen=True)
class Setup:
    """What a new agent is made of."""

    model: str | None
    base_url: str | None
    tokenizer: str | None
    window: int | None
    chunk_tokens: int | None
    memory_tokens: int | None
    cuts: Cuts
    prompts: str
    gate: Gate
    seed: int

    def agent(self, store: RunStore | None) -> MemoryAgent:
        """Makes the agent.

        Raises:
            ConfigError: a setting is wrong, or no model is named.
        """
        from memagent.agents.memory import MemoryAgent

        return MemoryAgent(
            self.model,
            base_url=self.base_url,
            tokenizer=self.tokenizer,
            prompts=self.prompts,
            window=self.window,
            chunk_tokens=self.chunk_tokens,
            memory_tokens=self.memory_tokens,
            cuts=self.cuts.value,
            gate=self.gate.value,
            seed=self.seed,
            store=store,
        )


def agent_again(
    settings: dict[str, Any], store: RunStore, *, base_url: str | None, run_id: str
) -> MemoryAgent:
    """Makes the agent of a stored run again.

    Args:
        settings: `RunRecord.settings`.
        store: where the run is.
        base_url: the server, where it is another one now.
        run_id: the run, for messages.

    Raises:
        ConfigError: the model was an object of a Python program.
    """
    from memagent.agents.memory import MemoryAgent
    from memagent.messages import Sampling
    from memagent.models.spec import SCHEMES
    from memagent.prompts import PromptSet

    given = dict(settings)
    model: str = given.pop("model")
    if model.partition(":")[0] not in SCHEMES:
        raise ConfigError(
            f"run {run_id!r} was made with the model {model!r}, which only the program that made it knows: "
            f"resume it from Python, with MemoryAgent(that_model, ...).resume({run_id!r})"
        )
    prompts = PromptSet.parse(given.pop("prompts").encode(), name="the run's prompt set")
    kept_url: str | None = given.pop("base_url")
    sampling = Sampling.model_validate(given.pop("sampling"))
    return MemoryAgent(
        model,
        base_url=base_url or kept_url,
        prompts=prompts,
        sampling=sampling,
        store=store,
        **given,
    )


def chosen_questions(question: str | None, more: list[str] | None) -> tuple[str, ...]:
    """The questions in the order of the command line.

    Raises:
        ConfigError: there is none.
    """
    questions = (*([] if question is None else [question]), *(more or ()))
    if not questions:
        raise ConfigError(
            "no question: give it after the document (memagent ask DOC 'QUESTION'), or one or more times "
            "with -q (memagent ask DOC -q 'QUESTION' -q 'ANOTHER')"
        )
    return questions


def chosen_display(display: Display | None) -> Display:
    """`full` where standard output is a terminal, else `plain`; `full` elsewhere is `plain` too."""
    import sys

    from memagent.cli.output import on_terminal

    if display is not None and display is not Display.FULL:
        return display
    return Display.FULL if on_terminal(sys.stdout) else Display.PLAIN


def chosen_store(store: Path | None, *, durable: bool = False) -> RunStore:
    """The store to write to, made where it is missing."""
    from memagent.runstore import RunStore

    return RunStore(RunStore.default_path() if store is None else store, durable=durable)


def existing_store(store: Path | None) -> RunStore:
    """The store to read from.

    Raises:
        StoreError: `--store` names a file that does not exist.
    """
    if store is not None and not store.expanduser().exists():
        raise StoreError(f"there is no run store {str(store)!r}; check --store")
    return chosen_store(store)
