"""Holds one conversation in forked children and kills each with SIGKILL at a random instant (see test_kill_session.py).

Usage: kill_session_driver.py FOLDER SEED KILLS EARLY
Prints one JSON object a process: what it sent and ran, and what was committed when it began.
"""

import json
import os
import re
import sys
import time
from functools import partial
from pathlib import Path

from tests.faults.kill_tools_driver import kill
from tests.session.adding import PROMPTS, Reply, StrictModel

from memagent import ChatRequest, ToolAgent, ToolCall, ToolContext, tool

MESSAGES, PAYMENTS, WINDOW = 25, 6, 6000
AMOUNTS = [100 * number + place for number in range(MESSAGES) for place in range(PAYMENTS)]


def said(number: int) -> str:
    return f"Pay what is due, this is message {number}!"


def respond(request: ChatRequest) -> Reply:
    """Makes the payments of the newest message one after another, then answers; it knows only what it is shown."""
    text = "\n".join(
        part
        for message in request.messages
        for part in (message.content, *(call.arguments for call in message.tool_calls))
    )
    number = max(map(int, re.findall(r"message (\d+)!", text)))
    amounts = map(int, re.findall(r'(?:"amount": |made up to )(\d+)', text))
    last = max(amounts, default=-1)
    if request.kind == "summary":
        return f"<summary>Payments were made up to {last}.</summary>"
    due = last + 1 if last // 100 == number else 100 * number
    if due % 100 == PAYMENTS:
        return f"Paid for {number}."
    return (ToolCall(id=f"c{due}", name="pay", arguments=f'{{"amount": {due}}}'),)


class Bank:
    """A service that takes a payment once for each key, as those with idempotency keys do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pay(self, amount: int, key: str) -> None:
        """Books the payment, and waits until the disk has it."""
        booked = self.path.read_text().split("\n") if self.path.exists() else []
        if not any(line.endswith(key) for line in booked):
            with self.path.open("a") as file:
                file.write(f"{amount} {key}\n")
                file.flush()
                os.fsync(file.fileno())
        time.sleep(0.003)  # done, and nobody has heard of it


def converse(folder: Path, store: str, early: float | None) -> None:
    log = os.open(folder / f"{store}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    bank = Bank(folder / f"{store}.bank")

    def reply(request: ChatRequest) -> Reply:
        # One atomic append: what was sent is known even after a kill.
        os.write(log, f"sent {request.kind} {request.seed}\n".encode())
        time.sleep(0.003)  # in flight: without it hardly any kill would find a call there
        return respond(request)

    @tool
    def pay(amount: int, context: ToolContext) -> str:
        """Pays an amount."""
        os.write(log, f"ran {amount} {context.attempt} {context.idempotency_key}\n".encode())
        bank.pay(amount, context.idempotency_key)
        return f"paid {amount}. " + "Thank you for your payment. " * 4

    agent = ToolAgent(
        StrictModel(reply, window=WINDOW),
        [pay],
        max_steps=10_000,
        max_summaries=10_000,
        early=early,
        prompts=PROMPTS,
        store=folder / store,
    )
    session = agent.session("r1")
    answered = sum(answer is not None for _, answer in session.history)
    for number in range(answered, MESSAGES):
        session.send(said(number))
        os.write(log, f"answered {number}\n".encode())
        time.sleep(
            0.02
        )  # between messages, where three kills have to find it on a busy machine too
    os._exit(0)


def main() -> None:
    folder, seed, kills = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    run = partial(converse, folder, early=float(sys.argv[4]) or None)
    print(json.dumps(kill(folder, seed, kills, run, after="answered")))


if __name__ == "__main__":
    main()
