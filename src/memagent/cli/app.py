"""All commands in one app."""

from memagent.cli.ask import NOT_ESTIMATED, Resume, ask, estimate, resume
from memagent.cli.branch import Branch, branch
from memagent.cli.demo import demo
from memagent.cli.exits import EXIT_CODES
from memagent.cli.extract import NOT_LISTED, NOT_SUMMARIZED, Extract, Summarize, extract, summarize
from memagent.cli.fetch import fetch
from memagent.cli.map import NOT_MAPPED, Map, map_documents
from memagent.cli.options import command_of
from memagent.cli.probe import Probe, probe
from memagent.cli.runs import runs
from memagent.cli.session import make_app
from memagent.cli.setup import Ask
from memagent.cli.show import show
from memagent_mcp.command import NOT_SERVED, Mcp, serve_mcp
from memagent_serve.command import NOT_SET, Serve, serve

ABOUT = """Let a small-context model read documents of any length.

Start with [b]memagent demo[/], which needs no model; then
[b]memagent ask book.txt "Who did it?" --model vllm:NAME[/].
"""

app = make_app("memagent", ABOUT, EXIT_CODES)
app.command("ask")(command_of(Ask, ask))
app.command("estimate")(command_of(Ask, estimate, without=NOT_ESTIMATED))
app.command("extract")(command_of(Extract, extract, without=NOT_LISTED))
app.command("summarize")(command_of(Summarize, summarize, without=NOT_SUMMARIZED))
app.command("map")(command_of(Map, map_documents, without=NOT_MAPPED))
app.command("mcp")(command_of(Mcp, serve_mcp, without=NOT_SERVED))
app.command("probe")(command_of(Probe, probe))
app.command("resume")(command_of(Resume, resume))
app.command("branch")(command_of(Branch, branch))
app.command("serve")(command_of(Serve, serve, without=NOT_SET))
app.add_typer(runs, name="runs")
app.command()(show)
app.command()(demo)
app.command()(fetch)
