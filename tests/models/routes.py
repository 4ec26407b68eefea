"""What the tests of several servers share."""

from collections.abc import Callable

from memagent.models.router import Router

MakeRouter = Callable[..., Router]
URLS = [f"http://localhost:{port}/v1" for port in (1, 2, 3)]
"""Of servers that are asked nothing."""


class Clock:
    """`time`, for the router alone."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Seconds that pass only when a test says so."""
        return self.now
