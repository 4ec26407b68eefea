"""`python -m memagent_draws`; see `command`."""

from memagent_draws.command import app

app()
