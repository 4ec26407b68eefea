"""Spans of runs, as the SDK exports them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from memagent import MemoryAgent, ToolAgent
from memagent.errors import ModelError, ToolError
from memagent.messages import Completion, ToolCall
from memagent.models.scripted import ScriptedModel
from memagent.tools import tool

pytestmark = pytest.mark.extra

SECRET = "Natasha weds Pierre in 1813."


class Traced:
    """A provider, and what it exported."""

    def __init__(self) -> None:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self.exporter, self.provider = InMemorySpanExporter(), TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def trace(self, agent: Any, *, content: bool = False) -> Any:
        from memagent.integrations.opentelemetry import trace_agent

        return trace_agent(agent, provider=self.provider, content=content)

    @property
    def spans(self) -> list[dict[str, Any]]:
        """In the order in which they ended."""
        return [json.loads(span.to_json()) for span in self.exporter.get_finished_spans()]


def reading(**settings: Any) -> MemoryAgent:
    model = ScriptedModel([SECRET, "Pierre"], name="vllm:Qwen/Qwen3-4B")
    return MemoryAgent(model, store=None, **settings)


def test_a_run_holds_its_calls() -> None:
    traced = Traced()
    with traced.provider.get_tracer("mine").start_as_current_span("mine"):
        result = traced.trace(reading(seed=3)).ask(SECRET, "Whom does Natasha marry?")
    update, answer, run, mine = traced.spans
    assert (update["name"], answer["name"]) == ("chat Qwen/Qwen3-4B",) * 2
    assert (run["name"], mine["name"]) == ("invoke_agent MemoryAgent", "mine")
    assert update["parent_id"] == answer["parent_id"] == run["context"]["span_id"]
    assert run["parent_id"] == mine["context"]["span_id"]
    assert run["attributes"]["gen_ai.conversation.id"] == result.run_id
    assert (update["kind"], run["kind"]) == ("SpanKind.CLIENT", "SpanKind.INTERNAL")
    said = [call["attributes"] for call in (update, answer)]
    assert [fields["memagent.call.kind"] for fields in said] == ["update", "answer"]
    assert said[0]["gen_ai.provider.name"] == "vllm"
    assert said[0]["gen_ai.response.finish_reasons"] == ["stop"]
    for name, total in (
        ("input", result.usage.prompt_tokens),
        ("output", result.usage.completion_tokens),
    ):
        assert sum(fields[f"gen_ai.usage.{name}_tokens"] for fields in said) == total
    assert all(span["status"] == {"status_code": "UNSET"} for span in traced.spans)


def test_the_names_are_those_of_the_conventions() -> None:
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

    known = {name for name in vars(gen_ai_attributes).values() if isinstance(name, str)}
    traced = Traced()
    traced.trace(reading(), content=True).ask(SECRET, "Whom does Natasha marry?")
    used = {name for span in traced.spans for name in span["attributes"]}
    assert {name for name in used if not name.startswith("memagent.")} <= known


async def test_streams_are_traced_too() -> None:
    traced = Traced()
    async with traced.trace(reading()).stream(SECRET, "Whom?") as run:
        async for _ in run:
            pass
    assert [span["name"].split()[0] for span in traced.spans] == ["chat", "chat", "invoke_agent"]


@pytest.mark.parametrize("content", [False, True])
def test_content_is_recorded_only_on_request(content: bool) -> None:
    traced = Traced()
    traced.trace(reading(), content=content).ask(SECRET, "Whom does Natasha marry?")
    assert (SECRET in json.dumps(traced.spans)) is content
    if content:
        (said,) = json.loads(traced.spans[1]["attributes"]["gen_ai.output.messages"])
        text = {"type": "text", "content": "Pierre"}
        assert said == {"role": "assistant", "parts": [text], "finish_reason": "stop"}


@pytest.mark.parametrize("content", [False, True])
def test_errors_are_a_status(content: bool) -> None:
    traced = Traced()
    agent = MemoryAgent(ScriptedModel([ModelError(SECRET)]), store=None)
    with pytest.raises(ModelError):
        traced.trace(agent, content=content).ask(SECRET, "Whom does Natasha marry?")
    for span in traced.spans:
        assert span["status"]["status_code"] == "ERROR"
        assert span["attributes"]["error.type"] == "ModelError"
    assert (SECRET in json.dumps(traced.spans)) is content


def test_a_tool_that_took_too_long_has_an_error() -> None:
    async def wait() -> str:
        await asyncio.sleep(60)
        return "?"

    traced = Traced()
    slow = tool(wait, timeout=0.01)
    model = ScriptedModel([ToolCall(id="1", name="wait", arguments="{}"), "Pierre"])
    traced.trace(ToolAgent(model, tools=[slow], store=None)).run("Whom does Natasha marry?")
    (span,) = (span for span in traced.spans if span["name"] == "execute_tool wait")
    assert span["status"]["status_code"] == "ERROR"
    assert span["attributes"]["error.type"] == "ToolError"


@pytest.mark.parametrize("content", [False, True])
def test_tools_have_spans(content: bool) -> None:
    def look(page: str) -> str:
        """Open a page."""
        if page == "2":
            raise ToolError("no such page")
        return SECRET

    calls = [ToolCall(id=n, name="look", arguments=json.dumps({"page": n})) for n in "12"]
    model = ScriptedModel([*calls, "Pierre"])
    traced = Traced()
    agent = traced.trace(ToolAgent(model, tools=[look], store=None), content=content)
    assert agent.run("Whom does Natasha marry?").answer == "Pierre"
    *_, run = traced.spans
    assert run["name"] == "invoke_agent ToolAgent"
    good, bad = (span for span in traced.spans if span["name"] == "execute_tool look")
    assert good["parent_id"] == bad["parent_id"] == run["context"]["span_id"]
    assert (good["status"], run["status"]) == ({"status_code": "UNSET"},) * 2
    assert bad["attributes"]["error.type"] == "ToolError"
    assert (good["attributes"].get("gen_ai.tool.call.result") == SECRET) is content
    assert (SECRET in json.dumps(traced.spans)) is content


def test_calls_that_no_tool_of_the_agent_takes_have_spans() -> None:
    def look() -> str:
        """Open a page."""
        return "page"

    given = [("look", "{}"), ("look", "page 1"), (SECRET, "{}"), ("read_archived", "{}")]
    calls = [ToolCall(id=str(n), name=name, arguments=text) for n, (name, text) in enumerate(given)]
    traced = Traced()
    agent = ToolAgent(ScriptedModel([*calls, "Pierre"]), tools=[look], store=None)
    assert traced.trace(agent).run("Whom does Natasha marry?").answer == "Pierre"
    tools = [span for span in traced.spans if span["name"].startswith("execute_tool")]
    names = [span["name"].split()[1] for span in tools]
    assert names == ["look", "look", "unknown", "read_archived"]
    errors = [span["attributes"].get("error.type") for span in tools]
    assert errors == [None, *["BadArguments"] * 3]
    assert SECRET not in json.dumps(traced.spans)


def test_figures_that_a_server_leaves_out_are_counted() -> None:
    model = ScriptedModel([Completion(text="Pierre")] * 2)
    traced = Traced()
    result = traced.trace(MemoryAgent(model, store=None)).ask(SECRET, "Whom does Natasha marry?")
    fields = [s["attributes"] for s in traced.spans if s["name"].startswith("chat")]
    assert sum(f["gen_ai.usage.input_tokens"] for f in fields) == result.usage.prompt_tokens > 0
    output = result.usage.completion_tokens
    assert sum(f["gen_ai.usage.output_tokens"] for f in fields) == output > 0


def test_an_empty_result_keeps_its_id() -> None:
    def look() -> str:
        """Open a page."""
        return ""

    traced = Traced()
    model = ScriptedModel([ToolCall(id="7", name="look", arguments="{}"), "Pierre"])
    traced.trace(ToolAgent(model, tools=[look], store=None), content=True).run("Whom?")
    said = [span["attributes"].get("gen_ai.input.messages") for span in traced.spans]
    *_, result = json.loads(next(filter(None, reversed(said))))
    part = {"type": "tool_call_response", "id": "7", "response": ""}
    assert result == {"role": "tool", "parts": [part]}


def test_a_tools_lone_surrogates_are_repaired_as_exporters_refuse_them() -> None:
    def look() -> str:
        """Open a page."""
        return "page \ud800"

    model = ScriptedModel([ToolCall(id="1", name="look", arguments="{}"), "Pierre \udfff"])
    traced = Traced()
    traced.trace(ToolAgent(model, tools=[look], store=None), content=True).run("Whom?")
    said = [str(value) for span in traced.spans for value in span["attributes"].values()]
    assert "page \ufffd" in said
    assert "".join(said).encode()
