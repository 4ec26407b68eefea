"""An OpenAI-compatible server that answers at once, with a memory of about 600 tokens and the true token counts.

Usage: python -m memagent_bench.perf.instant TOKENIZER TEXT (prints its port; ends when its input does)
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

from memagent.messages import Message
from memagent.tokens.local import TokenizerFile

MODEL = "instant"
WINDOW = 8192
MEMORY_TOKENS = 600
MEMORIES = 16
"""Number of different replies, used in turn: equal ones might be cheaper than a model's."""
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
MODELS = {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": WINDOW}]}


class Instant:
    """A server that answers at once.

    Args:
        counter: counts prompts as clients with the same tokenizer do.
        text: source of the memories.
    """

    def __init__(self, counter: TokenizerFile, text: str) -> None:
        self._counter = counter
        parts = (text[len(text) * i // MEMORIES :][: 8 * MEMORY_TOKENS] for i in range(MEMORIES))
        self._memories = cycle(
            [part[: counter.measure(part).chars_within(MEMORY_TOKENS)] for part in parts]
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                match = LENGTH.search(head)
                body = await reader.readexactly(int(match[1])) if match else b""
                path = head.split(b" ", 2)[1]
                reply: dict[str, Any] | None = None
                if path == b"/v1/models":
                    reply = MODELS
                elif path == b"/v1/chat/completions":
                    reply = self._reply(json.loads(body))
                status = b"404 Not Found" if reply is None else b"200 OK"
                text = json.dumps(reply or {"error": {"message": "no such path"}}).encode()
                headers = b"content-type: application/json\r\ncontent-length: %d" % len(text)
                writer.write(b"HTTP/1.1 %s\r\n%s\r\n\r\n%s" % (status, headers, text))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client disconnected
        finally:
            writer.close()

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        messages = [Message(role=m["role"], content=m["content"]) for m in request["messages"]]
        prompt, memory = self._counter.count_messages(messages), next(self._memories)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": MEMORY_TOKENS,
            "total_tokens": prompt + MEMORY_TOKENS,
        }
        message = {"role": "assistant", "content": memory}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage,
        }


async def main(tokenizer: Path, text: Path) -> None:
    """Serves on a free port until the input ends."""
    instant = Instant(TokenizerFile(tokenizer), await asyncio.to_thread(text.read_text))
    server = await asyncio.start_server(instant.serve, "127.0.0.1", 0, limit=1 << 20)
    async with server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
