"""Reads traces for a policy to imitate, as the rows of ids that it would have seen and sampled itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from memagent.errors import StoreError, TokenizerError
from memagent.events import Answered, MemoryTruncated
from memagent.messages import Message
from memagent.runstore import RunStore
from memagent.texts import describe_problem
from memagent_train.config.sft import (
    MessagesSource,
    RecordSource,
    RolloutSource,
    RunsSource,
    TraceSettings,
)
from memagent_train.data.columns import BadRow
from memagent_train.data.jsonl import JsonlFile
from memagent_train.errors import DataError
from memagent_train.rollout.template import Template
from memagent_train.rollouts import Span
from memagent_train.runs.rollout_log import read_rollouts

L = TypeVar("L", bound=BaseModel)


class _Record(BaseModel):
    """The used fields of a neutral record."""

    prompt_ids: list[int]
    response_ids: list[int]
    loss_mask: list[int]
    spans: list[Span] | None = None
    """Spans of calls; records of other trainers have none."""
    reward: float | None = None


ONLY_TEXTS = (
    ", and only texts are imitated: leave the line out, or imitate a tool agent's rollouts "
    "(kind = 'rollouts')"
)


class _Line(BaseModel):
    """A conversation from a file of messages."""

    messages: list[Message]
    tools: list[object] | None = None
    """Tools of the prompt; refused, since they would be missing from the rendered prompt."""


@dataclass(frozen=True)
class TraceRow:
    """One conversation to learn from."""

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    """T ids after the prompt; the last is the end token if the reply ended."""
    loss_mask: tuple[float, ...]
    """T values of 0 or 1: 1 if the id is to be learned."""

    @property
    def length(self) -> int:
        """Number of tokens, prompt plus response."""
        return len(self.prompt_ids) + len(self.response_ids)


@dataclass(frozen=True)
class Traces:
    """The data to learn from."""

    rows: tuple[TraceRow, ...]
    dropped: int
    """Conversations dropped because they are longer than the window."""


def read_traces(settings: TraceSettings, template: Template, end: int) -> Traces:
    """Reads all sources. Blocks.

    Args:
        settings: the sources, and the maximum length of a conversation.
        template: renders prompts as in rollouts.
        end: id of the token that ends a reply.

    Raises:
        DataError: a source can't be read; a conversation is unusable (file and line are named) or too long; or there
            is none at all.
    """
    rows: list[TraceRow] = []
    overlong: list[int] = []
    for source in settings.source:
        for row in _rows(source, template, end):
            if row.length > settings.window:
                overlong.append(row.length)
            elif any(row.loss_mask):
                rows.append(row)
    if overlong and settings.overlong == "refuse":
        raise DataError(
            f"{len(overlong)} conversations are longer than traces.window = {settings.window!r} tokens, the "
            f"longest has {max(overlong)}: raise it, or set traces.overlong = 'drop' to leave them out"
        )
    if not rows:
        raise DataError(
            f"there is nothing to learn from: no conversation remains ({len(overlong)} were too long). Lower "
            f"min_reward, or add sources to [traces]"
        )
    return Traces(tuple(rows), len(overlong))


def check_ids(rows: Sequence[TraceRow], count: int) -> None:
    """Raises a `DataError` if a row has an id without one of the model's `count` embeddings."""
    for row in rows:
        for token in (*row.prompt_ids, *row.response_ids):
            if not 0 <= token < count:
                raise DataError(
                    f"a trace has the id {token!r}, but the model's are 0 to {count - 1}: it was made with another "
                    f"tokenizer"
                )


def render_trace(messages: list[Message], template: Template, end: int | None) -> TraceRow:
    """Renders a conversation whose last message is the reply: only the reply is learned.

    The prompt is rendered, and the reply encoded separately, as if it had been sampled.

    Args:
        messages: the conversation.
        template: renders the prompt.
        end: id of the token that ends the reply; None if it was cut off.

    Raises:
        DataError: the last message isn't a reply, is empty or calls tools; or the template rejects the others.
    """
    *context, reply = messages or [Message(role="user", content="")]
    if not context or reply.role != "assistant" or not reply.content.strip():
        raise DataError("the last message must be a non-empty reply, with role 'assistant'")
    if reply.tool_calls:
        raise DataError(f"the reply calls tools{ONLY_TEXTS}")
    try:
        prompt = template.encode(template.render(context))
    except TokenizerError as error:
        raise DataError(str(error)) from error
    response = (*template.encode(reply.content), *(() if end is None else (end,)))
    return TraceRow(prompt, response, (1,) * len(response))


def _rows(source: Any, template: Template, end: int) -> Iterator[TraceRow]:
    match source:
        case MessagesSource():
            for file in source.files:
                yield from _from_messages(file, template, end)
        case RecordSource():
            for file in source.files:
                yield from _from_records(file, source.min_reward)
        case RolloutSource():
            yield from _from_rollouts(source.path, source.min_reward)
        case RunsSource():
            yield from _from_runs(source, template, end)
        case _:
            raise TypeError(f"unknown source of traces: {source!r}")


def _from_messages(file: Path, template: Template, end: int) -> Iterator[TraceRow]:
    lines = JsonlFile(file)
    for place in range(len(lines)):
        line = _parse_line(_Line, lines, place)
        if line.tools:
            raise DataError(f"{lines.where(place)}: the prompt has tools{ONLY_TEXTS}")
        try:
            yield render_trace(line.messages, template, end)
        except DataError as error:
            raise DataError(f"{lines.where(place)}: {error}") from error


def _from_records(file: Path, min_reward: float | None) -> Iterator[TraceRow]:
    lines = JsonlFile(file)
    for place in range(len(lines)):
        record = _parse_line(_Record, lines, place)
        if len(record.response_ids) != len(record.loss_mask) or not record.prompt_ids:
            raise DataError(
                f"{lines.where(place)}: {len(record.prompt_ids)} prompt_ids, {len(record.response_ids)} response_ids "
                f"and {len(record.loss_mask)} values of loss_mask do not match"
            )
        if record.reward is not None and (min_reward is None or record.reward >= min_reward):
            yield _read_logged(record.model_dump())


def _parse_line(kind: type[L], lines: JsonlFile, place: int) -> L:
    try:
        return kind.model_validate(lines.row(place))
    except BadRow as error:
        raise DataError(f"{lines.where(place)}: {error}") from error
    except ValidationError as error:
        raise DataError(f"{lines.where(place)}: {describe_problem(error)}") from error


def _from_rollouts(path: Path, min_reward: float) -> Iterator[TraceRow]:
    for row in read_rollouts(path):
        reward = row["reward"]
        if row["traj_idx"] is not None and reward is not None and reward >= min_reward:
            yield _read_logged(row)


def _read_logged(row: Mapping[str, Any]) -> TraceRow:
    mask = row["loss_mask"]
    for span in row.get("spans") or ():  # missing in logs of earlier versions
        if span["rejected"]:
            start, end = span["start"], span["end"]
            mask[start:end] = [0] * (end - start)
    return TraceRow(tuple(row["prompt_ids"]), tuple(row["response_ids"]), tuple(mask))


def _from_runs(source: RunsSource, template: Template, end: int) -> Iterator[TraceRow]:
    if not source.store.is_file():
        raise DataError(f"there is no run store {str(source.store)!r}: check traces.source.store")
    try:
        yield from _from_store(source, template, end)
    except StoreError as error:  # names the option of memagent's own commands
        raise DataError(str(error).replace("--store", "traces.source.store")) from error


def _from_store(source: RunsSource, template: Template, end: int) -> Iterator[TraceRow]:
    store = RunStore(source.store)
    try:
        for record in store.runs():
            if record.status != "finished" or not record.id.startswith(source.prefix):
                continue
            cut_off = _cut_off(store, record.id)
            for question in range(len(record.binding["questions"])):
                for conversation in store.conversations(record.id, question):
                    if any(message.tool_calls for message in conversation.messages):
                        raise DataError(
                            f"the run {record.id!r} in {str(source.store)!r} called tools, and of a run store only "
                            f"replies of readings are imitated: name a prefix that leaves it out, or imitate a tool "
                            f"agent's rollouts (kind = 'rollouts')"
                        )
                    ended = (question, conversation.chunk) not in cut_off
                    messages = list(conversation.messages)
                    yield render_trace(messages, template, end if ended else None)
    finally:
        store.close()


def _cut_off(store: RunStore, run_id: str) -> set[tuple[int, int | None]]:
    """Returns question and chunk of replies that were cut off or exceed their room; an answer's chunk is None."""
    places: set[tuple[int, int | None]] = set()
    for event in store.events(run_id):
        if isinstance(event, MemoryTruncated):
            places.add((event.question, event.chunk))
        elif isinstance(event, Answered) and event.truncated:
            places.add((event.question, None))
    return places
