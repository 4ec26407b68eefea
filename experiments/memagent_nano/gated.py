"""Stage `gated`: a policy learns to say with one word that its memory is unchanged. What it keeps stays the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from memagent.prompts import PromptSet
from memagent.prompts.promptset import Gate
from memagent.runstore import hold_folder
from memagent_engines.transformers.model import TransformersModel
from memagent_nano.lessons import (
    PROMPTS,
    SPREAD,
    Lesson,
    conversations,
    documents,
    memory_of,
    reader,
    write,
)
from memagent_nano.sizes import Size
from memagent_nano.stages import GATED, Place

SEED = 2 * 10**6
"""Seed of the documents: no other training has them."""
DOCUMENTS = 800
MARK = "..."


def make(place: Place, stage: str) -> None:
    """Writes the lessons that the policy of a stage gives, if they are not there yet. Blocks for minutes.

    Raises:
        RunBusy: another process is writing them.
    """
    file = place.of(stage) / f"{GATED}.jsonl"
    with hold_folder(place.of(stage)):
        if not file.is_file():
            write(lessons(place.size, place.policy(stage), DOCUMENTS), file)


def lessons(size: Size, policy: Path, count: int) -> Iterator[Lesson]:
    """Yields a policy's replies to documents, each update twice: original, and as with the update gate. Blocks.

    Args:
        size: of the policy.
        policy: the policy, which reads greedily.
        count: number of documents: longer ones, half of them with few notes.
    """
    with reader(size, TransformersModel(policy)) as agent:
        samples = documents(size, count, SEED, lengths=size.longer, spread=SPREAD)
        for conversation in conversations(agent, samples):
            prompt, reply = (message.content for message in conversation.messages)
            yield prompt, reply
            if conversation.kind == "update":
                yield gate_lesson(prompt, reply)


def gate_lesson(said: str, reply: str) -> Lesson:
    """Rewords an update for the update gate: if the memory is unchanged, the reply is the keep word."""
    prompts = PromptSet.load(PROMPTS)
    plain, offered = (_tail(prompts, gate) for gate in ("off", "update"))
    return said.removesuffix(plain) + offered, prompts.keep if reply == memory_of(said) else reply


def _tail(prompts: PromptSet, gate: Gate) -> str:
    """Returns the text after a chunk."""
    (message,) = prompts.render("update", question="", memory="", chunk=MARK, gate=gate)
    return message.content.split(MARK)[1]
