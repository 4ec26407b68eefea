"""One reading of a whole document in a process of its own; what it cost is printed as a JSON object.

Usage: python -m memagent_bench.perf.reading agent|langchain|llamaindex|floor BASE_URL TOKENIZER TEXT [CALLS]
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from memagent_bench.perf.instant import MODEL
from memagent_bench.perf.measure import measure_resident

QUESTION = "Whom does Natasha marry?"
PIECE = 65536
FRAME = ".frame"
"""Suffix of the file beside the document with what memagent's prompt says besides question, memory and chunk."""


async def floor(base_url: str, tokenizer: Path, text: Path, calls: int) -> dict[str, Any]:
    """Tokenises the text once, and sends as many prompts of the same size with the bare client."""
    import gzip

    from openai import AsyncOpenAI
    from tokenizers import Tokenizer

    raw = tokenizer.read_bytes()  # noqa: ASYNC240 (nothing else runs)
    encoder = Tokenizer.from_buffer(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    document = text.read_text()  # noqa: ASYNC240 (nothing else runs)
    tokens = sum(
        len(encoder.encode(document[start : start + PIECE], add_special_tokens=False))
        for start in range(0, len(document), PIECE)
    )
    frame = text.with_suffix(FRAME).read_text()
    memory, sent = "", 0
    size = -(-len(document) // calls)
    async with AsyncOpenAI(base_url=base_url, api_key="EMPTY", max_retries=0) as client:
        for start in range(0, size * calls, size):
            chunk = document[start : start + size]
            prompt = f"{frame}\n{QUESTION}\n{memory}\n{chunk}"
            reply = await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": prompt}],
                max_tokens=1024,
                temperature=0.7,
                top_p=0.95,
                seed=start,
            )
            assert reply.usage is not None
            sent += reply.usage.prompt_tokens
            memory = reply.choices[0].message.content or ""
    return {"calls": calls, "prompts": sent, "tokens": tokens}


def agent(base_url: str, tokenizer: Path, text: Path, calls: int) -> dict[str, Any]:
    """`MemoryAgent.ask` over the file, with a run store in a file.

    Args:
        base_url: of the server.
        tokenizer: the model's.
        text: the document.
        calls: about as many as it will make; memory is read after a quarter of them too. 0 reads it at the end alone.
    """
    from memagent import ChatRequest, Completion, MemoryAgent, open_model
    from memagent.models.base import Wrapper

    class Watched(Wrapper):
        """Reads the process's memory at a quarter of the run."""

        seen = 0
        quarter = 0.0

        async def complete(self, request: ChatRequest) -> Completion:
            """Counts, and passes the request on."""
            self.seen += 1
            if self.seen == calls // 4:
                self.quarter = measure_resident("VmRSS")
            return await self.inner.complete(request)

    model = Watched(open_model(f"openai:{MODEL}", base_url=base_url, tokenizer=tokenizer))
    store = text.with_suffix(".sqlite")
    store.unlink(missing_ok=True)
    with MemoryAgent(model, store=store) as reader:
        usage = reader.ask(text, QUESTION).usage
        end = measure_resident("VmRSS")
    return {
        "calls": usage.calls,
        "prompts": usage.prompt_tokens,
        "quarter": model.quarter,
        "end": end,
    }


async def peer(name: str, base_url: str, tokenizer: Path, text: Path) -> dict[str, Any]:
    """Another framework's refine loop, as `memagent-bench` runs it: over the same chunks and the same client."""
    from memagent import PromptSet, RunStore, open_model
    from memagent.memory.plan import MemorySettings
    from memagent.tasks import Sample
    from memagent_bench.systems.base import Setting
    from memagent_bench.systems.peers import Peer

    if name == "langchain":
        from memagent_bench.systems.langchain_refine import LangChainRefine as Refine
    else:
        from memagent_bench.systems.llamaindex_refine import LlamaIndexRefine as Refine
    setting = Setting(
        open_model(f"openai:{MODEL}", base_url=base_url, tokenizer=tokenizer),
        PromptSet.load("plain"),
        MemorySettings(),
        RunStore(None),
    )
    sample = Sample(
        task="speed",
        index=0,
        length=1,
        tokens=1,
        context=text.read_text(),  # noqa: ASYNC240 (nothing else runs)
        question=QUESTION,
        outputs=("Pierre",),
        generate=1,
    )
    outcome = await Peer(name, setting, Refine()).answer(sample, "run")
    return {"calls": outcome.usage.calls, "prompts": outcome.usage.prompt_tokens}


def main(kind: str, base_url: str, tokenizer: Path, text: Path, calls: int) -> dict[str, Any]:
    """Reads, and adds what the process cost: seconds of the processor, and MiB at the peak."""
    if kind == "floor":
        found = asyncio.run(floor(base_url, tokenizer, text, calls))
    elif kind == "agent":
        found = agent(base_url, tokenizer, text, calls)
    else:
        found = asyncio.run(peer(kind, base_url, tokenizer, text))
    return {**found, "cpu": time.process_time(), "peak": measure_resident()}


if __name__ == "__main__":
    what, url, vocabulary, document, *rest = sys.argv[1:]
    result = main(what, url, Path(vocabulary), Path(document), int(rest[0]) if rest else 0)
    print(json.dumps(result))
