"""All commands in one app."""

from __future__ import annotations

from memagent.cli.options import command_of
from memagent.cli.session import make_app
from memagent_bench.cli.generate import generate
from memagent_bench.cli.measure import measure
from memagent_bench.cli.options import Generate, Measure, MeasureFile, Reproduce
from memagent_bench.cli.pages import diagnose, report, systems, tasks
from memagent_bench.cli.perf import Perf, perf
from memagent_bench.cli.quick import LEFT_OUT, Quick, quick
from memagent_bench.cli.reproduce import reproduce
from memagent_bench.cli.score import score
from memagent_bench.cli.session_options import Sessions
from memagent_bench.cli.sessions import sessions

EPILOG = (
    "Exit codes: 0 done; 1 unexpected error; 2 wrong usage, a bad setting, or samples that cannot be made; 3 a "
    "document cannot be read; 4 the model failed; 5 the folder cannot be used; 6 samples without an answer, or stopped "
    "by a limit (repeat the command to resume); 130 interrupted; 143 terminated; 141 broken pipe."
)
RULER = """Run RULER: 13 tasks at any length.

    qa_1 needs --squad, qa_2 needs --hotpotqa. Records go to DIR/results.jsonl; repeat the command to resume.
    """
QA = "Measure question answering over long documents: HotpotQA and SQuAD, hidden among other paragraphs."
TRACKING = (
    "Ask what a single search can't find: ledgers, counters, chains, tallies, facts in books."
)
NOTES = """Ask about short notes on people and their coins, hidden in a book: for very small models.

    Tasks with _names or _wording have names and numbers, or sentences, that our training never shows; _sparse puts the
    notes far apart, and _few has eight at every length.
    """

OWN_SAMPLES = """Measure your own samples: a file of JSON lines.

    Each has context, question and outputs (the references), and may have task, scorer and tokens_to_generate. Lines
    from [b]memagent-bench generate[/] work too.
    """

ABOUT = """Measure how well systems read documents and work with tools, at any length.

Try [b]memagent-bench ruler --model extractive --tasks niah_single_2 --lengths 8k --out DIR[/]: it needs no server.
"""

app = make_app("memagent-bench", ABOUT, EPILOG)
SCATTERED = (
    "frames",
    "hotpotqa",
    "squad",
    "paragraphs",
    "allow_repeats",
    "positions",
    "no_context",
)
WITHOUT = {
    "ruler": ("paragraphs", "allow_repeats", "no_context"),
    "qa": ("essays", "positions"),
    "tracking": SCATTERED,
    "notes": SCATTERED,
    "samples": (*SCATTERED, "essays", "nested", "lengths", "tasks", "samples", "first"),
}
"""Options that have no effect in a suite."""
for name, doc in {"ruler": RULER, "qa": QA, "tracking": TRACKING, "notes": NOTES}.items():
    app.command(name)(command_of(Measure, measure(name, doc), without=WITHOUT[name]))
app.command("samples")(
    command_of(MeasureFile, measure("samples", OWN_SAMPLES), without=WITHOUT["samples"])
)
app.command("sessions")(command_of(Sessions, sessions))
app.command("quick")(command_of(Quick, quick, without=LEFT_OUT))
app.command("perf")(command_of(Perf, perf))
app.command()(score)
app.command("generate")(command_of(Generate, generate))
app.command("reproduce")(command_of(Reproduce, reproduce))
app.command()(report)
app.command()(diagnose)
app.command()(tasks)
app.command()(systems)
