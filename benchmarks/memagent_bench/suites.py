"""The suites by name, and selections of their tasks."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module

from memagent.errors import ConfigError
from memagent.texts import name_extra, nearest
from memagent_bench.options import MakeTask

SUITES = {
    "ruler": "memagent_bench.ruler.tasks",
    "qa": "memagent_bench.longqa.tasks",
    "tracking": "memagent_bench.tracking.tasks",
    "notes": "memagent_bench.notes.tasks",
}
"""Name -> module with its `TASKS`, imported on demand."""
ABOUT = {
    "niah_single_1": "a number among lines of noise",
    "niah_single_2": "a number in essays",
    "niah_single_3": "a UUID in essays",
    "niah_multikey_1": "a number in essays, beside three for other words",
    "niah_multikey_2": "a number among numbers for other words",
    "niah_multikey_3": "a UUID among UUIDs for other UUIDs",
    "niah_multivalue": "four numbers for one word, in essays",
    "niah_multiquery": "four numbers for four words, in essays",
    "vt": "variables of one value, by a chain of assignments",
    "cwe": "the ten most common words of a numbered list",
    "fwe": "the three most frequent words of a coded text",
    "qa_1": "questions of SQuAD among its paragraphs",
    "qa_2": "questions of HotpotQA among its paragraphs",
    "hotpotqa": "questions of HotpotQA, at positions drawn afresh",
    "squad": "questions of SQuAD, at positions drawn afresh",
    "hotpotqa_no_context": "the same questions with nothing to read",
    "squad_no_context": "the same questions with nothing to read",
    "ledger": "balances that are overwritten: the last ones",
    "counter": "counters that go up and down: the end of one",
    "chain": "waymarks in random order: where a chain ends",
    "tally": "entries of several kinds: how many of one",
    "facts": "people and things that move: where one is at last",
    "once": "coins that are said once",
    "last": "coins that change: the last number",
    "hop": "the coins of somebody's master",
    "count": "coins that go in one at a time: how many at last",
    "pair": "the coins of two people",
    "sign": "hexadecimal digits that are said once",
    "once_names": "as once, names and numbers held out",
    "last_names": "as last, names and numbers held out",
    "hop_names": "as hop, names and numbers held out",
    "once_wording": "as once, sentences held out",
    "last_wording": "as last, sentences held out",
    "hop_wording": "as hop, sentences held out",
    "once_sparse": "as once, notes far apart",
    "last_sparse": "as last, notes far apart",
    "hop_sparse": "as hop, notes far apart",
    "once_few": "as once, a few notes at every length",
    "last_few": "as last, a few notes at every length",
    "hop_few": "as hop, a few notes at every length",
}
"""What each task asks for."""
ALL = "all"
CONTROL = "_no_context"
"""Suffix of tasks that ask another task's questions without the document; length is irrelevant to them."""


def name_row(system: str, task: str) -> str:
    """Returns the row for a system's scores at a task: controls, which don't count in its mean, have a separate row."""
    return f"{system} (no context)" if task.endswith(CONTROL) else system


def tasks_of(suite: str) -> dict[str, MakeTask]:
    """Returns the tasks of a suite by name.

    Raises:
        ConfigError: there is no such suite, or a package that it needs is not installed.
    """
    try:
        module = SUITES[one_of(suite, SUITES, "suite")]
        tasks: dict[str, MakeTask] = import_module(module).TASKS
    except ImportError as error:
        raise ConfigError(name_extra(f"the suite {suite!r}", "bench")) from error
    return tasks


def choose_tasks(suite: str, text: str, *, controls: bool = False) -> dict[str, MakeTask]:
    """Returns the tasks named in a text; `all` means all except the controls.

    Args:
        suite: its name.
        text: comma-separated names, or `all`.
        controls: also include the controls, which have nothing to read.

    Raises:
        ConfigError: there is no such suite or task.
    """
    tasks = tasks_of(suite)
    measured = [name for name in tasks if not name.endswith(CONTROL)]
    names = several_of(text, tasks, "task") if text.strip() != ALL else measured
    if controls:
        names = [*names, *(c for name in names if (c := name + CONTROL) in tasks)]
    return {name: tasks[name] for name in dict.fromkeys(names)}


def one_of(name: str, known: Collection[str], what: str) -> str:
    """Returns the name, if it is known.

    Raises:
        ConfigError: it is unknown; the message lists the known names.
    """
    if name in known:
        return name
    close = nearest(name, known)
    meant = f"; did you mean {close!r}?" if close else ""
    raise ConfigError(f"there is no {what} {name!r}{meant} (known: {', '.join(known)})")


def several_of(text: str, known: Collection[str], what: str) -> list[str]:
    """Parses comma-separated names, or `all`.

    Raises:
        ConfigError: a name is unknown, or the list is empty.
    """
    if text.strip() == ALL:
        return list(known)
    names = [name for part in text.split(",") if (name := part.strip())]
    if not names:
        raise ConfigError(f"{text!r} names no {what} (known: {', '.join(known)})")
    return list(dict.fromkeys(one_of(name, known, what) for name in names))
