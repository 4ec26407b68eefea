"""Turns the calls of one rollout into rows of ids to train on."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from memagent.errors import BadResponse, ConfigError
from memagent.messages import CallKind, ChatRequest, Completion, FinishReason, Message, TokenIds
from memagent.models.base import ChatModel
from memagent.models.record import Recorder
from memagent_train.agents import Read
from memagent_train.roles import ROLE, Role
from memagent_train.rollouts import Row, Span


@dataclass(frozen=True)
class _Call:
    number: int
    """Place in the order of replies."""
    kind: CallKind
    role: Role
    cut_off: bool
    messages: tuple[Message, ...]
    again: bool
    """Whether reasoning was switched off, as memagent's agents do when they ask again."""
    task: str
    """Task of the tool session; empty in other calls."""
    replaces: bool
    """Whether a tool agent repeats its last act, with more room or after saying what was wrong."""


class RolloutRecorder(Recorder):
    """Records the calls of one rollout, with their roles, whoever makes them.

    Args:
        inner: the model that the rollout's agent calls.
    """

    def __init__(self, inner: ChatModel) -> None:
        super().__init__(inner)
        self._calls: list[list[_Call]] = []
        self._made = 0

    def note_call(self, place: int, request: ChatRequest, completion: Completion) -> None:
        """Stores facts about a call that its conversation lacks."""
        if place == len(self._calls):
            self._calls.append([])
        cut_off = completion.finish_reason is FinishReason.LENGTH
        # Custom agents may ask for several replies to a prompt, without reasoning.
        again = request.thinking is False and request.kind != "other"
        facts = request.messages, again, request.parts.get("task", ""), "again" in request.parts
        self._calls[place].append(_Call(self._made, request.kind, ROLE.get(), cut_off, *facts))
        self._made += 1

    @property
    def cut_off(self) -> bool:
        """Whether the reply to the last call was cut off at `max_tokens`."""
        return any(call.cut_off for calls in self._calls for call in calls if self._is_last(call))

    def clear(self) -> None:
        """Forgets everything."""
        super().clear()
        self._calls, self._made = [], 0

    def rows(self) -> tuple[Row, ...]:
        """Returns one row per conversation, in the order they were opened; none if nothing was sampled.

        Raises:
            BadResponse: a reply came without its ids or log-probabilities.
            ConfigError: no call was made.
        """
        if not self._made:
            raise ConfigError(
                "the agent made no call to its model: it must use the one that it is given"
            )
        rows: list[Row] = []
        rejected = _find_rejected([call for calls in self._calls for call in calls])
        for conversation, calls in zip(self.conversations, self._calls, strict=True):
            if not conversation.turns:
                raise BadResponse(
                    f"{self.name}: replies have no token ids, which training needs: use a RolloutModel, or "
                    f"OpenAIModel(..., tokens=True) with a server that returns them (vLLM, SGLang)"
                )
            if any(turn.sampled for turn in conversation.turns):
                row = self._row(conversation.turns, calls)
                rows.append(replace(row, spans=_spans(conversation.turns, calls, rejected)))
        return tuple(rows)

    def _is_last(self, call: _Call) -> bool:
        return call.number == self._made - 1

    def _row(self, turns: Sequence[TokenIds], calls: Sequence[_Call]) -> Row:
        """Builds the row of one conversation from its calls' ids and other facts."""
        response: list[int] = []
        mask: list[int] = []
        logprobs: list[float] = []
        for turn, call in zip(turns, calls, strict=True):
            if turn.logprobs is None:
                raise BadResponse(
                    f"{self.name}: replies have no log-probabilities, which training needs: use a RolloutModel, "
                    f"or a server that returns them"
                )
            if call is not calls[0]:  # what was shown between two replies
                response += turn.prompt
                mask += [0] * len(turn.prompt)
                logprobs += [0.0] * len(turn.prompt)
            response += turn.sampled
            mask += [int(call.role.train)] * len(turn.sampled)
            logprobs += turn.logprobs
        return Row(
            prompt_ids=turns[0].prompt,
            response_ids=tuple(response),
            loss_mask=tuple(mask),
            logprobs=tuple(logprobs),
            kind=calls[0].kind,
            final=self._is_last(calls[-1]),
            truncated=any(call.cut_off for call in calls),
        )


def _find_rejected(calls: Sequence[_Call]) -> set[int]:
    """Returns the numbers of calls whose replies were unusable and asked for again.

    memagent's agents then switch reasoning off. A tool agent may also change the messages: it makes room for a reply
    that was cut off, or says why an answer isn't of the output type; it then marks the request.
    """
    ordered = sorted(calls, key=lambda call: call.number)
    last = {(call.kind, call.messages): call.number for call in ordered if call.again}
    numbers = {
        attempt.number
        for attempt in ordered
        if last.get((attempt.kind, attempt.messages), -1) > attempt.number
    }
    newest: dict[tuple[Role, str], int] = {}
    for attempt in ordered:
        if attempt.kind != "act":
            continue
        session = attempt.role, attempt.task
        if attempt.replaces and session in newest:
            numbers.add(newest[session])
        newest[session] = attempt.number
    return numbers


def _spans(
    turns: Sequence[TokenIds], calls: Sequence[_Call], rejected: Collection[int]
) -> tuple[Span, ...]:
    """Returns where each call's ids lie in the response."""
    spans: list[Span] = []
    end = -len(turns[0].prompt)
    for turn, call in zip(turns, calls, strict=True):
        start = end + len(turn.prompt)
        end = start + len(turn.sampled)
        spans.append(Span(start, end, call.kind, call.role.name, call.number in rejected))
    return tuple(spans)


def with_reads(rows: Sequence[Row], reads: Sequence[Read]) -> tuple[Row, ...]:
    """Adds to the rows what an agent with an update gate did in each.

    Args:
        rows: C conversations.
        reads: one for each call whose reply was used; rows of other, retried calls have none.
    """
    reads_by_ids = {read.ids: read for read in reads}
    row_reads = [reads_by_ids.get(row.prompt_ids + row.response_ids) for row in rows]
    return tuple(
        row if read is None else replace(row, span=read.span, kept=read.kept)
        for row, read in zip(rows, row_reads, strict=True)
    )
