"""Several questions, one pass over the text. Each has its own memory.

    python examples/03_many_questions.py

The model is `MEMAGENT_MODEL`, else the stand-in `extractive`. The calls for one chunk are sent at the same time, so a
server batches them.
"""

import os
from pathlib import Path

from memagent import MemoryAgent

BOOK = Path(__file__).with_name("epilogue.txt")
QUESTIONS = [
    "When did Natasha marry?",
    "When did Nicholas marry Princess Mary?",
    "How large were the debts of the old count?",
]

# `concurrency` bounds the calls that this agent has in flight.
with MemoryAgent(
    os.environ.get("MEMAGENT_MODEL", "extractive"), gate="update", concurrency=8
) as agent:
    results = agent.ask_many(BOOK, QUESTIONS)

for result in results:
    print("question:", result.question)
    print("answer:", result.answer)
calls = sum(result.usage.calls for result in results)
print(f"one run, {results[0].run_id}: {results[0].chunks} chunks, {calls} calls")
