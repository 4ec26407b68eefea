"""Writes the table of loops at a server into a page.

Usage: python -m memagent_bench.sessions.wire FOLDER [--write docs/sessions.md]

Shown is the work of the most steps. The folder is one of `memagent-bench sessions --games shifts --systems loops`.
"""

from __future__ import annotations

from pathlib import Path

from memagent.texts import plural
from memagent_bench.perf.measure import page_parser, show
from memagent_bench.sessions.record import read_sessions
from memagent_bench.sessions.wire.figures import markdown, rows

COMMAND = "sessions"
SHOWN = ("deepagents", "langchain", "openai-agents", "pydantic-ai-slim")


def main() -> None:
    """Prints the tables, and puts them into a page if one is given."""
    parser = page_parser(__doc__)
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    records = read_sessions(arguments.folder)
    difficulty = max(record.difficulty for record in records)
    records = [record for record in records if record.difficulty == difficulty]
    origin, seeds = records[-1].origin, {record.seed for record in records}
    packages = (f"{name} {origin.packages[name]}" for name in SHOWN if name in origin.packages)
    where = f"{origin.machine}; {', '.join(packages)}; n = {plural(len(seeds), 'deal')} each"
    tables = "\n".join(markdown(rows(records)))
    show(f"{where}.\n\n{tables}\n", COMMAND, arguments.write)


if __name__ == "__main__":
    main()
