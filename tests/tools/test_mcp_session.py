"""An MCP server that is killed in the middle of a conversation is started again, and the conversation goes on."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from memagent import ChatRequest, RunStore, ScriptedModel, ToolAgent, ToolCall
from memagent.models.scripted import Reply
from memagent.tools.mcp import McpServer

CODE = """
import os, sys
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("counting", log_level="WARNING")

@server.tool()
def whoami() -> str:
    return str(os.getpid())

@server.tool()
def hang(note: str) -> str:
    Path(note).write_text(str(os.getpid()))
    import time; time.sleep(60)
    return "never"

server.run()
"""


def test_a_server_killed_between_and_within_calls(tmp_path: Path) -> None:
    script, note = tmp_path / "counting.py", tmp_path / "note"
    script.write_text(CODE)
    turns: list[Reply] = [
        ToolCall(id="1", name="whoami", arguments="{}"),
        "First.",
        ToolCall(id="2", name="hang", arguments=f'{{"note": "{note}"}}'),
        ToolCall(id="3", name="whoami", arguments="{}"),
        "Second.",
        ToolCall(id="4", name="whoami", arguments="{}"),
        "Third.",
    ]
    outputs: list[str] = []

    def reply(request: ChatRequest) -> Reply:
        outputs.extend(m.content for m in request.messages[-1:] if m.role == "tool")
        return turns.pop(0)

    def kill_when_it_hangs() -> None:
        def wait() -> None:
            while not (note.exists() and note.read_text()):
                time.sleep(0.01)
            os.kill(int(note.read_text()), signal.SIGKILL)

        threading.Thread(target=wait, daemon=True).start()

    store = RunStore(tmp_path / "runs.sqlite")
    with McpServer.stdio(sys.executable, str(script)) as server:
        model = ScriptedModel(reply, window=16_384)
        session = ToolAgent(model, server.tools, store=store).session("chat")
        assert session.send("Who?").answer == "First."
        kill_when_it_hangs()
        # Within a message: the call that it died in fails, and the next one has a new server.
        assert session.send("Hang, then say who.").answer == "Second."
        os.kill(int(outputs[-1]), signal.SIGKILL)  # and between messages
        assert session.send("Who now?").answer == "Third."
    first, failed, second, third = outputs
    assert "hang failed" in failed
    assert "Connection closed" in failed or "ended while it ran" in failed
    assert len({first, second, third}) == 3
    assert note.read_text() == first
    store.close()
