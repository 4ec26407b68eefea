"""All commands in one app."""

import warnings

from memagent.cli.session import make_app
from memagent_train.cli.evaluate import evaluate
from memagent_train.cli.export import export
from memagent_train.cli.grpo import config, grpo
from memagent_train.cli.sft import sft

EPILOG = (
    "Exit codes: 0 done; 1 training stopped, or unexpected error; 2 wrong usage, a bad setting or unusable data; "
    "4 a model failed; 5 the folder cannot be used; 130 interrupted; 143 terminated (repeat the command to resume); "
    "141 broken pipe."
)

ABOUT = """Fine-tune a model in the agent that you will run, memagent's or your own.

Try [b]memagent-train grpo recipes/single-gpu.toml --out DIR --dry-run[/]: it needs no GPU.
"""

# TRL warns about versions of vLLM outside its own range, but memagent talks to vLLM by itself.
warnings.filterwarnings("ignore", "TRL currently supports vLLM", UserWarning)

app = make_app("memagent-train", ABOUT, EPILOG)
app.command()(grpo)
app.command()(sft)
app.command()(config)
app.command("eval")(evaluate)
app.command()(export)
