"""Sandboxes for tests, and a program that does whatever it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest

from memagent_bench.outside.sandbox import Limits, NoSandbox, Sandbox

OBEDIENT = """
import json, os, socket, subprocess, sys, time
for line in sys.stdin:
    try:
        reply = {"value": repr(eval(json.loads(line)))}
    except BaseException as error:
        reply = {"raised": f"{type(error).__name__}: {error}"}
    print(json.dumps(reply), flush=True)
"""
Open = Callable[..., Sandbox]


@contextmanager
def opening() -> Iterator[Open]:
    """Makes sandboxes that are closed in the end. Skips the test where there are none."""
    with ExitStack() as stack:

        def make(source: str = OBEDIENT, **limits: Any) -> Sandbox:
            try:
                sandbox = Sandbox(source, Limits(**limits), "the test")
            except NoSandbox as error:
                pytest.skip(str(error))
            return stack.enter_context(closing(sandbox))

        yield make
