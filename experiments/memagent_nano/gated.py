"""Stage `gated`: a policy learns to say in a word that its memory stays as it is. What it keeps stays the same."""

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
"""Of the documents: no other training has them."""
DOCUMENTS = 800
MARK = "..."


def make(place: Place, stage: str) -> None:
    """Writes the lessons that the policy of a stage gives, if they are not there yet. Blocks for minutes.

    Raises:
        RunBusy: another process is at it.
    """
    file = place.of(stage) / f"{GATED}.jsonl"
    with hold_folder(place.of(stage)):
        if not file.is_file():
            write(lessons(place.size, place.policy(stage), DOCUMENTS), file)


def lessons(size: Size, policy: Path, count: int) -> Iterator[Lesson]:
    """What a policy makes of documents, each update twice: original, and as with the update gate. Blocks.

    Args:
        size: of the policy.
        policy: reads greedily.
        count: of documents: longer ones, half of them with few notes.
    """
    with reader(size, TransformersModel(policy)) as agent:
        samples = documents(size, count, SEED, lengths=size.longer, spread=SPREAD)
        for conversation in conversations(agent, samples):
            prompt, reply = (message.content for message in conversation.messages)
            yield prompt, reply
            if conversation.kind == "update":
                yield gate_lesson(prompt, reply)


def gate_lesson(said: str, reply: str) -> Lesson:
    """An update in the words of the update gate: if the memory is unchanged, the reply is the keep word."""
    prompts = PromptSet.load(PROMPTS)
    plain, offered = (_tail(prompts, gate) for gate in ("off", "update"))
    return said.removesuffix(plain) + offered, prompts.keep if reply == memory_of(said) else reply


def _tail(prompts: PromptSet, gate: Gate) -> str:
    """What stands behind a chunk."""
    (message,) = prompts.render("update", question="", memory="", chunk=MARK, gate=gate)
    return message.content.split(MARK)[1]
