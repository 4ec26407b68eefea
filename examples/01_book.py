"""A file, a question, an answer: first the estimated cost, then the reading itself.

    python examples/01_book.py [FILE [QUESTION]]

The model is `MEMAGENT_MODEL`, with its server at `MEMAGENT_BASE_URL`. Without these it is `extractive`, a stand-in
that only matches words and needs no server.
"""

import os
import sys
from pathlib import Path

from memagent import MemoryAgent

BOOK = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("epilogue.txt")
QUESTION = sys.argv[2] if len(sys.argv) > 2 else "When did Natasha marry?"

# The update gate lets the model keep its memory unchanged when a chunk has nothing new.
with MemoryAgent(os.environ.get("MEMAGENT_MODEL", "extractive"), gate="update") as agent:
    # Reads and cuts the file. A server is asked for its kind and token counts; nothing is generated.
    estimate = agent.estimate(BOOK, QUESTION)
    print(f"{BOOK.name}: {estimate.document_tokens:,} tokens in {estimate.chunks} chunks")
    print(f"at most {estimate.calls_max} calls, {estimate.prompt_tokens:,} prompt tokens")

    result = agent.ask(BOOK, QUESTION)

print("question:", QUESTION)
print("answer:", result.answer)  # None if the run stopped early: `result.detail` says why
print("memory:", result.memory)
usage = result.usage
print(
    f"{usage.calls} calls, {usage.prompt_tokens:,} prompt and {usage.completion_tokens:,} completion tokens"
)
print(f"every step of it: memagent show {result.run_id}")
