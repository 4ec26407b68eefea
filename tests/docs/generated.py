"""Writes what is generated of docs/: the reference of the commands, and the pictures for a dark page.

`make pages` runs it, and a test compares what it makes with what is committed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

DOCS = Path(__file__).resolve().parents[2] / "docs"
COMMANDS = {
    "memagent": "memagent.cli.app",
    "memagent-bench": "memagent_bench.cli.app",
    "memagent-train": "memagent_train.cli.app",
}
HEAD = """<!-- `make pages` writes this page. -->
# Commands

Every command has `--help`. Installing memagent brings three programs: `memagent` reads, `memagent-bench`
measures (extra `bench`), and `memagent-train` trains (extra `train`).
"""
DARK = {
    "#1f2933": "#e6edf3",
    "#52606d": "#a5b1bf",
    "#64748b": "#8b98a8",
    "#94a3b8": "#5f6c7b",
    "#e2e8f0": "#2b3441",
    "#fdecd0": "#43300f",
    "#b45309": "#f0b35a",
    "#d9f1ed": "#123f3b",
    "#0f766e": "#2dd4bf",
    "#b91c1c": "#ff8a80",
}
"""Colours of the pictures: on a light page, and on a dark one."""
PICTURES = ("loop", "resume", "layers")


def pages() -> dict[Path, str]:
    """Each generated file with what it holds."""
    made = {DOCS / "reference" / "cli.md": cli()}
    for name in PICTURES:
        light = (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8")
        dark = re.sub("#[0-9a-f]{6}", lambda colour: DARK[colour[0]], light)
        made[DOCS / "images" / f"{name}-dark.svg"] = dark
    return made


def cli() -> str:
    """The reference of all commands, in Markdown."""
    parts = [HEAD]
    for program, module in COMMANDS.items():
        group = typer.main.get_command(import_module(module).app)
        parts += [f"## {program}\n", *_paragraphs(group.help), *_exit_codes(group.epilog)]
        for name, command in _commands(group):
            parts += [f"### {program} {name}\n", *_paragraphs(command.help), *_options(command)]
    return "\n".join(parts)


def _commands(group: Any) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield name, command
        for inner, child in _commands(command) if hasattr(command, "commands") else ():
            yield f"{name} {inner}", child


def _paragraphs(text: str | None) -> list[str]:
    return [f"{_plain(' '.join(part.split()))}\n" for part in (text or "").split("\n\n")]


def _exit_codes(epilog: str | None) -> Iterator[str]:
    """A list of `Exit codes: 0 done; 1 ...`."""
    heading, codes = (epilog or "").rstrip(".").split(": ", 1)
    yield f"**{heading}**\n"
    for entry in codes.split("; "):
        code, meaning = entry.split(" ", 1)
        yield f"- `{int(code)}` {_plain(meaning)}"
    yield ""


def _options(command: Any) -> Iterator[str]:
    """A list of definitions for each panel of the command's help."""
    shown = [option for option in command.params if not option.hidden]
    order = list(dict.fromkeys(option.rich_help_panel for option in shown))
    shown.sort(key=lambda option: order.index(option.rich_help_panel))
    for panel, options in groupby(shown, key=lambda option: option.rich_help_panel):
        if panel:
            yield f"**{panel}**\n"
        for option in options:
            yield f"`{_name(option, typer.Context(command))}`\n:   {_plain(option.help or '')}{_default(option)}\n"


def _name(option: Any, context: typer.Context) -> str:
    if option.param_type_name == "argument":
        name = option.metavar or option.name.upper()
        return name if option.required else f"[{name}]"
    names = ", ".join(sorted((*option.opts, *option.secondary_opts), key=len))
    if option.is_flag:
        return names
    return f"{names} {option.metavar or option.display_type(context).strip('<>')}"


def _default(option: Any) -> str:
    if not option.show_default or option.default is None or option.default is False:
        return ""
    return f" Default: {option.default}."


def _plain(text: str) -> str:
    """Markdown of a help text, whose code typer marks with `[b]...[/]`; names of variables are code too."""
    pieces = re.split(r"\[b\](.*?)\[/\]|\b([A-Z]+_[A-Z_]+)\b", text)
    # Of three pieces the first is neither.
    return "".join(
        f"`{piece}`" if place % 3 else re.sub(r"([*_<|])", r"\\\1", piece)
        for place, piece in enumerate(pieces)
        if piece is not None
    )


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
