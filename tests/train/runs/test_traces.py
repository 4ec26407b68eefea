"""Traces of every kind become the rows that the policy would have sampled itself; bad ones are named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.train.runs.test_rollout_log import ANSWER, UPDATE, decode, rollout
from tests.train.runs.tiny import PROMPTS

from memagent import MemoryAgent, ToolAgent
from memagent.messages import ChatRequest, Completion, FinishReason, Message, ToolCall
from memagent.models.scripted import ScriptedModel
from memagent.runstore import RunStore
from memagent_engines.transformers.padded import PaddedSampler
from memagent_train.config.sft import (
    MessagesSource,
    RecordSource,
    RolloutSource,
    RunsSource,
    TraceSettings,
)
from memagent_train.errors import DataError
from memagent_train.rollout.model import RolloutModel
from memagent_train.rollout.template import Template
from memagent_train.rollouts import Span
from memagent_train.runs.neutral import write_records
from memagent_train.runs.rollout_log import log_path, read_rollouts, write_rollouts
from memagent_train.runs.traces import TraceRow, Traces, check_ids, read_traces
from memagent_train.smoke.model import tiny_model
from memagent_train.smoke.tokenizer import word_tokenizer

TOKENIZER = word_tokenizer()
TEMPLATE = Template(TOKENIZER)
(END,) = TEMPLATE.encode("<end>")
CALLS = [{"id": "1", "name": "look", "arguments": "{}"}]
ASKED = {"role": "user", "content": "ask number answer"}


def read(*sources: Any, **settings: Any) -> Traces:
    return read_traces(TraceSettings(source=sources, **settings), TEMPLATE, END)


def messages(folder: Path, *lines: Mapping[str, Any] | str) -> MessagesSource:
    file = folder / "traces.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("".join(text + "\n" for text in texts))
    return MessagesSource(kind="messages", files=(file,))


def said(reply: str) -> dict[str, Any]:
    return {"messages": [ASKED, {"role": "assistant", "content": reply}]}


def test_only_the_reply_is_learnt_with_its_end(tmp_path: Path) -> None:
    (row,) = read(messages(tmp_path, said("sun rain"))).rows
    assert row.response_ids == (*TEMPLATE.encode("sun rain"), END)
    assert row.loss_mask == (1, 1, 1)


def test_prompts_are_those_of_rollouts_to_the_id(tmp_path: Path) -> None:
    (row,) = read(messages(tmp_path, said("sun"))).rows
    sampler = PaddedSampler(tiny_model(TOKENIZER, seed=0), TOKENIZER)
    request = ChatRequest(messages=(Message.model_validate(ASKED),), max_tokens=2)
    with sampler.generating():
        completion = asyncio.run(RolloutModel(sampler, TOKENIZER).complete(request))
    assert completion.tokens is not None
    assert row.prompt_ids == completion.tokens.prompt


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 1: this is not JSON"),
        ({"messages": []}, "line 1: the last message must be a non-empty reply"),
        ({"messages": [{"role": "assistant", "content": "sun"}]}, "must be a non-empty reply"),
        ({"messages": [ASKED]}, "must be a non-empty reply"),
        (said(" "), "must be a non-empty reply"),
        ({"text": "sun"}, "messages is missing"),
        (said("sun") | {"tools": [{"name": "f"}]}, "line 1: the prompt has tools"),
        (
            {"messages": [ASKED, {"role": "assistant", "content": "sun", "tool_calls": CALLS}]},
            "line 1: the reply calls tools",
        ),
        ({"messages": [{"role": "robot", "content": "x"}]}, r"messages\.0\.role"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: Any, says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        read(messages(tmp_path, line))
    assert "traces.jsonl" in str(caught.value)


def test_longer_ones_are_refused_with_their_number_or_left_out(tmp_path: Path) -> None:
    source = messages(tmp_path, said("sun"), said("sun " * 40), said("sun " * 50))
    with pytest.raises(
        DataError, match=r"2 conversations are longer than traces.window = 30 .* has 5\d"
    ):
        read(source, window=30)
    found = read(source, window=30, overlong="drop")
    assert (len(found.rows), found.dropped) == (1, 2)


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to learn from"):
        read(messages(tmp_path, said("sun " * 40)), window=30, overlong="drop")


def record(reward: float | None, **changed: Any) -> dict[str, Any]:
    return {
        "prompt_ids": [1, 2],
        "response_ids": [3, 4],
        "loss_mask": [1, 0],
        "reward": reward,
        "logprobs": [0.0, 0.0],
    } | changed


def records(folder: Path, *lines: dict[str, Any]) -> Path:
    file = folder / "records.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_records_keep_their_ids_and_masks(tmp_path: Path) -> None:
    file = records(tmp_path, record(1.0), record(0.25), record(None))
    every = read(RecordSource(kind="record", files=(file,)))
    assert every.rows == (TraceRow((1, 2), (3, 4), (1, 0)),) * 2
    good = read(RecordSource(kind="record", files=(file,), min_reward=0.5))
    assert len(good.rows) == 1


def test_a_record_that_does_not_fit_together_is_named(tmp_path: Path) -> None:
    file = records(tmp_path, record(1.0), record(1.0, loss_mask=[1]))
    with pytest.raises(DataError, match=r"line 2: .* do not match"):
        read(RecordSource(kind="record", files=(file,)))


def test_rollouts_below_the_threshold_are_rejected(tmp_path: Path) -> None:
    good, bad = rollout("r1", UPDATE, ANSWER), rollout("r2", UPDATE, reward=0.25)
    failed = rollout("r3", UPDATE, reward=None)
    write_rollouts(log_path(tmp_path, 1), 1, [good, bad, failed], advantages={}, decode=decode)
    found = read(RolloutSource(kind="rollouts", path=tmp_path, min_reward=0.5))
    assert found.rows == tuple(
        TraceRow(row.prompt_ids, row.response_ids, row.loss_mask) for row in (UPDATE, ANSWER)
    )
    assert len(read(RolloutSource(kind="rollouts", path=tmp_path, min_reward=-1)).rows) == 3


def test_replies_that_the_agent_rejected_are_not_imitated(tmp_path: Path) -> None:
    """A right answer may come after them, by a second try."""
    ids = {"response_ids": (3, 4, 5, 6), "loss_mask": (1, 1, 0, 1), "logprobs": (-1,) * 4}
    spans = (Span(0, 2, "update", rejected=True), Span(3, 4, "update"))
    mixed = replace(UPDATE, **ids, spans=spans)
    refused = replace(UPDATE, **ids, spans=(Span(0, 4, "update", rejected=True),))
    log = [rollout("r1", mixed, refused)]
    write_rollouts(log_path(tmp_path, 1), 1, log, advantages={}, decode=decode)
    (row,) = read(RolloutSource(kind="rollouts", path=tmp_path, min_reward=0.5)).rows
    assert row.loss_mask == (0, 0, 0, 1)
    exported = tmp_path / "trajectories.jsonl"
    write_records(exported, read_rollouts(tmp_path))
    assert read(RecordSource(kind="record", files=(exported,))).rows == (row,)


def test_finished_runs_of_any_model_are_traces(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs.sqlite")
    model = ScriptedModel(["sun", "rain"], window=2048)
    agent = MemoryAgent(model, prompts=str(PROMPTS), store=store)
    agent.ask("sun was low", "number", run_id="expert-1")
    store.close()
    found = read(RunsSource(kind="runs", store=tmp_path / "runs.sqlite"))
    replies = [TEMPLATE.decode(row.response_ids) for row in found.rows]
    assert replies == ["sun", "rain"]
    with pytest.raises(DataError, match="nothing to learn from"):
        read(RunsSource(kind="runs", store=tmp_path / "runs.sqlite", prefix="other"))


def test_the_end_of_a_reply_that_was_cut_off_is_not_learnt(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs.sqlite")
    replies = [
        Completion(text="sun. rain", finish_reason=FinishReason.LENGTH),
        Completion(text="rain sun", finish_reason=FinishReason.LENGTH),
        "sun",
        "rain",
    ]
    model = ScriptedModel(replies, window=2048)
    agent = MemoryAgent(model, prompts=str(PROMPTS), store=store)
    for run_id in ("cut", "whole"):
        agent.ask("sun was low", "number", run_id=run_id)
    store.close()
    runs = tmp_path / "runs.sqlite"
    cut, whole = (
        read(RunsSource(kind="runs", store=runs, prefix=name)) for name in ("cut", "whole")
    )
    assert [row.response_ids for row in cut.rows] == [
        TEMPLATE.encode("sun. rain"),
        TEMPLATE.encode("rain sun"),
    ]
    assert all(row.response_ids[-1] == END for row in whole.rows)


def test_sessions_with_tools_are_no_traces(tmp_path: Path) -> None:
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    store = RunStore(tmp_path / "runs.sqlite")
    call = ToolCall(id="1", name="add", arguments='{"a": 1, "b": 2}')
    model = ScriptedModel([Completion(text="", tool_calls=(call,)), "3"], window=8192)
    ToolAgent(model, [add], store=store).run("Add 1 and 2.", run_id="sum")
    store.close()
    with pytest.raises(DataError, match=r"the run 'sum' .* called tools"):
        read(RunsSource(kind="runs", store=tmp_path / "runs.sqlite"))


@pytest.mark.parametrize("one", [-1, 9, 2**70])
def test_ids_that_the_model_lacks_are_refused(one: int) -> None:
    with pytest.raises(DataError, match=f"a trace has the id {one}, but the model's are 0 to 8"):
        check_ids([TraceRow((1, 8), (0, one), (1.0, 1.0))], 9)


def test_missing_stores_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no run store"):
        read(RunsSource(kind="runs", store=tmp_path / "none"))
    (other := tmp_path / "notes.txt").write_text("no store " * 500)
    with pytest.raises(
        DataError, match=r"notes\.txt.* not a run store .* another traces\.source\.store$"
    ):
        read(RunsSource(kind="runs", store=other))
    with pytest.raises(DataError, match="cannot read the data file"):
        read(MessagesSource(kind="messages", files=(tmp_path / "none",)))
