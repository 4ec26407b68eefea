"""Two processes at one run: one wins, the other hears why it may not."""

import json
import subprocess
import sys
from pathlib import Path

WORKER = """
import json, sys, time
from memagent import MemoryAgent, ScriptedModel
from memagent.errors import RunBusy

def reply(request):
    time.sleep(0.05)
    return "noted."

agent = MemoryAgent(ScriptedModel(reply, window=1280), store=sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
try:
    result = agent.ask("Some text. " * 600, "What?", run_id="r1")
    print(json.dumps({"calls": result.usage.calls, "repeated": result.usage.repeated}))
except RunBusy as error:
    print(json.dumps({"busy": str(error), "run": error.run_id}))
"""


def test_one_wins_and_the_other_hears_why_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path / "runs.sqlite")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    rivals = [subprocess.Popen(command, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for rival in rivals:
        assert rival.stdout is not None
        assert rival.stdout.readline() == "ready\n"
    for rival in rivals:
        assert rival.stdin is not None
        rival.stdin.write("go\n")
        rival.stdin.flush()
    said = sorted((json.loads(rival.communicate()[0]) for rival in rivals), key=len)
    assert all(rival.returncode == 0 for rival in rivals)
    winner = next(one for one in said if "calls" in one)
    loser = next(one for one in said if "busy" in one)
    assert winner["calls"] > 5
    assert winner["repeated"] == 0
    assert "'r1'" in loser["busy"]
    assert "another process" in loser["busy"]
    assert loser["run"] == "r1"
