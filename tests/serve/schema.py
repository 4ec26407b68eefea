"""Requests that schemathesis makes of the endpoint's own description: `make fuzz-serve`.

It is no test of pytest, because schemathesis pins other versions than the tests run with.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from tests.models.chat_server import say, send
from tests.serve.conftest import listening
from tests.serve.engine import serving
from tests.serve.test_responses import response_of, text_item

from memagent import RunStore

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance,ignored_auth"
)
"""What fits is the engine's to judge, so a request that violates the schema may well be answered."""
KEY = "the-key-of-a-caller"


def main(program: str, examples: str) -> int:
    """Returns the program's exit status."""
    with tempfile.TemporaryDirectory() as folder, serving() as engine:
        engine.default = say()
        engine.others["/v1/responses"] = send(200, response_of([text_item("hello")]))
        with (
            closing(RunStore(Path(folder) / "runs.sqlite")) as store,
            listening(engine.url, store, keys=(KEY,)) as url,
        ):
            there = f"{url.removesuffix('/v1')}/openapi.json"
            line = [program, "run", there, "--header", f"Authorization: Bearer {KEY}"]
            line += ["--checks", CHECKS, "--max-examples", examples, "--no-color"]
            return subprocess.run(line, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
