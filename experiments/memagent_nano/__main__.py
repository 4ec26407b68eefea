"""`python -m memagent_nano`; see `command`."""

from memagent_nano.command import app

app()
