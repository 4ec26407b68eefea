"""Several servers as one model: each call goes to a less busy server, and avoids one that is down.

    export MEMAGENT_MODEL=vllm:NAME MEMAGENT_BASE_URL=http://one:8000/v1,http://two:8000/v1
    python examples/06_several_servers.py

All of them must serve the same model. Reading one text for one question makes one call at a time; here six
chapters are read concurrently, each for two questions.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

import httpx

from memagent import MemoryAgent, Result

BOOK = Path(__file__).with_name("epilogue.txt")
QUESTIONS = ["When did Natasha marry?", "When did Nicholas marry Princess Mary?"]
COUNTS = re.compile(r"^(?:vllm:request_success|sglang:num_requests)_total\S* (\S+)$", re.MULTILINE)


def count_served(url: str) -> float:
    """Returns the requests that a server has completed, from its metrics (SGLang: with --enable-metrics)."""
    metrics = httpx.get(url.removesuffix("/v1") + "/metrics")
    return sum(float(count) for count in COUNTS.findall(metrics.text))


async def read(chapters: list[str]) -> list[list[Result]]:
    agent = (
        MemoryAgent()
    )  # the environment names the model and its servers; open_model(base_url=) takes a list
    results = await asyncio.gather(*(agent.aask_many(text, QUESTIONS) for text in chapters))
    await agent.aclose()
    return results


if "MEMAGENT_BASE_URL" not in os.environ:
    sys.exit("set MEMAGENT_MODEL and MEMAGENT_BASE_URL: the addresses, with commas between")
urls = os.environ["MEMAGENT_BASE_URL"].split(",")
before = [count_served(url) for url in urls]
chapters = BOOK.read_text("utf-8").split("CHAPTER ")[1:]
for chapter, results in zip(chapters, asyncio.run(read(chapters)), strict=True):
    print("chapter", chapter.splitlines()[0])
    for result in results:
        print(f"  {result.question} {result.answer}")
for url, count in zip(urls, before, strict=True):
    print(f"{url}: {count_served(url) - count:.0f} calls")
