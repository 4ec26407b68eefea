"""What the user said in a session: one message after another, each of which is answered before the next."""

from dataclasses import dataclass
from typing import Any, Self

from memagent.errors import ConfigError, RunMismatch
from memagent.messages import Leaf, Usage
from memagent.runstore import RunStore
from memagent.session.plan import ToolSettings
from memagent.texts import quote


class Said(Leaf):
    """A message as committed (`said-N`), with where the session stood before it."""

    text: str
    output: dict[str, Any] | None = None
    """JSON schema of its answer, if that has a form."""
    step: int = 0
    """Number of its first reply."""
    stage: int = 0
    """Summaries written before."""
    seq: int = -1
    """Of the last event before it."""
    usage: Usage = Usage()
    """The run's cost before."""

    @classmethod
    def find(cls, store: RunStore, run_id: str, number: int) -> Self | None:
        """The message with a number; None if it isn't committed."""
        body = store.effect(run_id, f"said-{number}")
        return None if body is None else cls.model_validate(body)


@dataclass(frozen=True)
class Place:
    """The message that a loop works on."""

    number: int
    """The task is 0."""
    said: Said | None
    """None if it is new."""
    answer: dict[str, Any] | None
    """The effect of its answer; None if it has none yet."""
    seq: int
    """Of the last event before it."""


def find_place(
    store: RunStore,
    run_id: str,
    task: str,
    text: str | None,
    output: dict[str, Any] | None,
    *,
    first: bool = False,
) -> Place:
    """Where a message belongs: it resumes the unanswered one, or is the next. None resumes the last one. Blocks.

    Raises:
        RunMismatch: another message is still unanswered, or this one with another output type.
    """
    number, _ = store.latest(run_id, "said") or (0, {})
    number = 0 if first else number  # only the task is meant
    said, answer = Said.find(store, run_id, number), store.effect(run_id, f"answer-{number}/q0")
    if answer is not None:
        if text is None or first:
            return Place(number, said, answer, said.seq if said else -1)
        return Place(number + 1, None, None, store.last_seq(run_id))
    unanswered = said or Said(text=task, output=output)
    if text is not None and text != unanswered.text:
        raise RunMismatch(
            f"session {run_id!r} has not answered {quote(unanswered.text)} yet: send that again (or resume the run), "
            f"and {quote(text)} after it"
        )
    if output != unanswered.output:
        raise RunMismatch(
            f"run {run_id!r}: the output type is not that of its unanswered message {quote(unanswered.text)}: send the "
            f"message with the same output_type, or without one if it had none"
        )
    return Place(number, said, None, unanswered.seq)


def check_limits(store: RunStore, run_id: str, said: Said, settings: ToolSettings) -> None:
    """Refuses to replay only a part of the steps that a message has taken. Blocks.

    Raises:
        ConfigError: it has taken more steps or summaries than the settings allow.
    """
    events = store.events(run_id, said.seq, kind="compacted")
    stages = (event.compaction.stage for event in events if event.type == "compacted")
    made = (
        ("max_steps", settings.max_steps, store.count(run_id, "act") - said.step),
        ("max_summaries", settings.max_summaries, max(stages, default=said.stage) - said.stage),
    )
    for name, most, count in made:
        if count > most:
            raise ConfigError(
                f"{name}={most!r} is too low: run {run_id!r} has already used {count}; resume it with {name}={count} "
                f"or more"
            )
