"""Runs pytest over a repository inside a sandbox: one line of JSON in, one out. Standard library only."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path("/tmp/repository")
PASSED = re.compile(r"^PASSED (\S.*)$", re.MULTILINE)


def main() -> None:
    """Serves one request."""
    request = json.loads(sys.stdin.buffer.readline())
    for name, text in request["files"].items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    ROOT.mkdir(exist_ok=True)
    options = ("-q", "-rA", "--color=no", "-p", "no:cacheprovider", "--tb=short")
    with Path("/tmp/output").open("wb") as output:
        subprocess.run(
            [sys.executable, "-B", "-m", "pytest", *options, *request["tests"]],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={"HOME": "/tmp", "LANG": "C.UTF-8", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            check=False,
        )
    text = Path("/tmp/output").read_text("utf-8", "replace")
    reply = {"passed": PASSED.findall(text), "output": text[-request["output"] :]}
    print(json.dumps(reply), flush=True)


main()
