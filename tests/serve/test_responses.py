"""Responses: bytes that pass, documents that are read, and conversations packed into an item."""

import base64
import json
import re
import zlib
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI
from tests.integrations.book import SYSTEM, TASK, Book, Player, count
from tests.integrations.in_openai import TOOL
from tests.models.chat_server import CHATML_TOOLS, Behaviour, Handler, chat, send
from tests.serve.conftest import MODEL, Serve
from tests.serve.engine import WINDOW, Engine, read_or_echo, refuse
from tests.serve.test_reading import DOCUMENT, FACT, QUESTION

FUNCTION = {"type": "function", "strict": False, **TOOL["function"]}
PARTS = [{"type": "input_text", "text": text} for text in (DOCUMENT, QUESTION)]


def response_of(items: list[Any], usage: Any = None) -> dict[str, Any]:
    return {
        "id": "resp_1", "object": "response", "created_at": 0, "status": "completed", "model": MODEL,
        "output": items, "usage": usage, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    }  # fmt: skip


def text_item(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }


class Responder:
    """Has a `Player` answer requests for responses: what it gets must be whole."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, handler: Handler) -> None:
        body = handler.body
        self.bodies.append(body)
        messages: list[Any] = [{"role": "system", "content": body["instructions"]}]
        for item in body["input"]:
            if item.get("type") == "function_call":
                function = {"name": item["name"], "arguments": item["arguments"]}
                call = {"id": item["call_id"], "type": "function", "function": function}
                if messages[-1]["role"] == "assistant":
                    messages[-1].setdefault("tool_calls", []).append(call)
                else:
                    messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
            elif item.get("type") == "function_call_output":
                messages.append(
                    {"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]}
                )
            else:
                content = item["content"]
                if isinstance(content, list):
                    content = "".join(part["text"] for part in content)
                messages.append({"role": item["role"], "content": content})
        asked = {"messages": messages, "tools": [TOOL], "max_tokens": body["max_output_tokens"]}
        prompt = count(asked)
        if why := self.player.fault(asked, prompt):
            self.player.refused.append(why)
            send(400, {"error": {"message": why, "code": 400}})(handler)
            return
        self.player.acts += 1
        self.player.longest = max(self.player.longest, prompt)
        page, total = self.player.add_up(messages)
        if page == self.player.book.pages:
            items = [text_item(f"The total is {total}.")]
        else:
            arguments = json.dumps({"page": page + 1})
            call = {"type": "function_call", "id": "fc_1", "call_id": f"call{self.player.acts:05d}"}
            said = text_item(f"total {total} up to page {page}")
            items = [said, {**call, "name": "read", "arguments": arguments, "status": "completed"}]
        details: dict[str, Any] = {"input_tokens_details": {"cached_tokens": 0}}
        usage = details | {"input_tokens": prompt, "output_tokens": 20, "total_tokens": prompt + 20}
        send(200, response_of(items, usage | {"output_tokens_details": {"reasoning_tokens": 0}}))(
            handler
        )


@pytest.fixture
def player(engine: Engine) -> Player:
    """Plays in front of both routes."""
    engine.be_vllm(WINDOW, template=CHATML_TOOLS)
    engine.default = player = Player(Book(80), WINDOW)
    engine.others["/v1/responses"] = Responder(player)
    return player


def play(client: OpenAI, book: Book, **fields: Any) -> tuple[str, list[Any], list[Any]]:
    """The answer, the responses, and the items at the end."""
    items: list[Any] = [{"role": "user", "content": TASK}]
    replies: list[Any] = []
    while True:
        given: Any = {"model": MODEL, "instructions": SYSTEM, "tools": [FUNCTION], **fields}
        reply: Any = client.responses.create(input=items, max_output_tokens=100, **given)
        replies.append(reply)
        said = [item.model_dump(exclude_none=True) for item in reply.output]
        if said[0]["type"] == "compaction":
            items = []  # what came before is in it
        items += said
        calls = [item for item in said if item["type"] == "function_call"]
        if not calls:
            return reply.output_text, replies, items
        for call in calls:
            text = book.text(json.loads(call["arguments"])["page"])
            result = {"type": "function_call_output", "call_id": call["call_id"], "output": text}
            items.append(result)


def test_what_fits_is_untouched(engine: Engine, url: str, http: httpx.Client) -> None:
    answer = json.dumps(response_of([text_item("hi")])).encode() + b"  \n"
    engine.others["/v1/responses"] = send(200, answer)
    raw = b'{"model":"tiny",  "input":"Caf\\u00e9","x_unknown":[1.50],"context_management":[]}'
    response = http.post(
        f"{url}/responses", content=raw, headers={"Content-Type": "application/json"}
    )
    assert engine.raws == [raw]
    assert response.content == answer


@pytest.mark.timeout(300)
def test_a_loop_that_knows_nothing_of_it(player: Player, client: OpenAI) -> None:
    answer, replies, items = play(client, player.book)
    assert answer == player.book.answer
    assert player.refused == []
    assert player.summaries > 1
    assert len(items) > 200
    assert replies[-1].memagent["summaries"] == player.summaries
    assert all(reply.output[0].type != "compaction" for reply in replies)


@pytest.mark.timeout(300)
def test_a_loop_that_manages_its_context(engine: Engine, player: Player, client: OpenAI) -> None:
    rules = [{"type": "compaction", "compact_threshold": 1500}]
    answer, replies, items = play(client, player.book, context_management=rules)
    assert answer == player.book.answer
    assert player.refused == []
    assert player.longest <= 1500
    packed = [reply for reply in replies if reply.output[0].type == "compaction"]
    assert len(packed) > 3
    assert len(items) < 60  # the client threw away what the items stand for
    sent = engine.of("/v1/responses")
    assert not [body for body in sent if "compaction" in json.dumps(body["input"])]


def test_a_threshold_holds_though_counts_are_upper_bounds(engine: Engine, serve: Serve) -> None:
    engine.serve_models({"id": MODEL, "max_model_len": 8192})
    engine.others = {"/v1/responses": send(200, response_of([text_item("hi")]))}
    engine.default = send(200, chat("<summary>They talked.</summary>") | {"usage": None})
    rules = [{"type": "compaction", "compact_threshold": 3000}]
    with OpenAI(base_url=serve(), api_key="none", max_retries=0) as client:
        given: Any = {"model": MODEL, "input": talk(60), "context_management": rules}
        reply: Any = client.responses.create(**given)
    assert reply.memagent["summaries"] > 0
    assert reply.output[0].type == "compaction"


@pytest.mark.parametrize("threshold", [0, -5, "1500", 1500.5, True])
def test_a_threshold_that_is_none_is_refused(client: OpenAI, threshold: Any) -> None:
    rules: Any = [{"type": "compaction", "compact_threshold": threshold}]
    with pytest.raises(BadRequestError, match="compact_threshold must be a whole number") as caught:
        client.responses.create(model=MODEL, input="Hi", context_management=rules)
    assert caught.value.param == "context_management"


@pytest.mark.parametrize("overflow", ["read", "refuse"])
def test_a_threshold_never_fails_what_fits(engine: Engine, serve: Serve, overflow: str) -> None:
    engine.be_vllm(8192, template=CHATML_TOOLS)
    engine.others["/v1/responses"] = send(200, response_of([text_item("hi")]))
    engine.default = send(200, chat("") | {"usage": None})  # no summary
    url = serve(overflow=overflow)
    with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        for items, threshold in ((talk(60), 500), (talk(60), 1500), (talk(1), 10)):
            rules: Any = [{"type": "compaction", "compact_threshold": threshold}]
            reply = client.responses.create(model=MODEL, input=items, context_management=rules)
            assert reply.output_text == "hi"
            assert not hasattr(reply, "memagent")
            assert engine.of("/v1/responses")[-1]["input"] == items


def talk(turns: int) -> list[Any]:
    said = [("user", "What of it? "), ("assistant", "Nothing of it. ")] * turns
    return [{"role": role, "content": text * 3} for role, text in said] + [
        {"role": "user", "content": "And now?"}
    ]


def test_a_document_is_read(engine: Engine, serve: Serve) -> None:
    engine.default = read_or_echo
    url = serve(reading={"gate": "update"})
    with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        given: Any = [{"role": "user", "content": PARTS}]
        reply: Any = client.responses.create(model=MODEL, input=given)
        assert reply.output_text == FACT
        assert reply.usage.input_tokens > 1000
        (found,) = reply.memagent["read"]
        assert found["chunks"] > 3
        text = f"<document>{DOCUMENT}</document>\n{QUESTION}"
        assert client.responses.create(model=MODEL, input=text).output_text == FACT


async def test_a_document_is_read_as_a_stream(engine: Engine, serve: Serve) -> None:
    engine.default = read_or_echo
    url = serve(reading={"gate": "update"})
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        given: Any = [{"role": "user", "content": PARTS}]
        async with client.responses.stream(model=MODEL, input=given) as stream:
            kinds = [event.type async for event in stream]
            final: Any = await stream.get_final_response()
    assert final.output_text == FACT
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert "response.output_text.delta" in kinds
    assert final.memagent["read"][0]["chunks"] > 3


def test_notes_reach_the_engine_with_everything_else(engine: Engine, serve: Serve) -> None:
    engine.default = read_or_echo
    engine.others["/v1/responses"] = send(200, response_of([text_item("London.")]))
    url = serve(reading={"gate": "update"})
    with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        given: Any = [{"role": "user", "content": PARTS}]
        reply: Any = client.responses.create(
            model=MODEL,
            input=given,
            instructions="Be brief.",
            max_output_tokens=50,
            truncation="disabled",
        )
    (sent,) = engine.of("/v1/responses")
    assert sent["instructions"] == "Be brief."
    assert sent["truncation"] == "disabled"
    (item,) = sent["input"]
    assert item["role"] == "user"
    assert FACT in item["content"][0]["text"]
    assert item["content"][1] == PARTS[1]
    assert reply.output_text == "London."
    assert reply.memagent["read"][0]["chunks"] > 3


def without_tools(player: Player) -> Behaviour:
    """A request for a summary is known by its `tool_choice`, which there isn't without tools."""

    def behave(handler: Handler) -> None:
        handler.body.setdefault("tool_choice", "none")
        player(handler)

    return behave


def test_a_conversation_can_be_compacted(engine: Engine, player: Player, client: OpenAI) -> None:
    engine.default = without_tools(player)
    items: list[Any] = [{"role": "user", "content": TASK}]
    for page in range(1, 31):
        call = {"type": "function_call", "call_id": f"call{page:05d}", "name": "read"}
        output = {"type": "function_call_output", "call_id": f"call{page:05d}"}
        items += [
            {**call, "arguments": json.dumps({"page": page})},
            {**output, "output": player.book.text(page)},
        ]
    done: Any = client.responses.compact(model=MODEL, input=items, instructions=SYSTEM)
    assert done.object == "response.compaction"
    (item,) = done.output
    assert item.type == "compaction"
    assert done.usage.total_tokens > 0
    given: Any = [item.model_dump(exclude_none=True), {"role": "user", "content": "Go on."}]
    tools: Any = [FUNCTION]
    reply = client.responses.create(
        model=MODEL, input=given, instructions=SYSTEM, tools=tools, max_output_tokens=100
    )
    assert player.refused == []
    (call,) = [item for item in reply.output if item.type == "function_call"]
    assert json.loads(call.arguments) == {"page": 31}


def test_a_conversation_is_compacted_again_and_again(engine: Engine, client: OpenAI) -> None:
    def summarise(handler: Handler) -> None:
        text = f"Summary {len(engine.bodies)}. {'They talked of it. ' * 20}"
        send(200, chat(f"<summary>{text}</summary>") | {"usage": None})(handler)

    engine.default = summarise
    items: list[Any] = [{"role": "user", "content": "Keep a list."}]
    written = 0
    for cycle in range(8):
        for n in range(20):
            items += [{"role": "assistant", "content": "Noted."}]
            items += [{"role": "user", "content": f"Item {cycle}-{n} is blue. " * 4}]
        done: Any = client.responses.compact(model=MODEL, input=items, instructions=SYSTEM)
        (packed,) = done.output
        held = json.loads(zlib.decompress(base64.b64decode(packed.encrypted_content)))
        assert str(held["messages"]).count("Summary ") == 1  # the last one
        assert done.memagent["summaries"] > written
        written = done.memagent["summaries"]
        items = [packed.model_dump(exclude_none=True), {"role": "user", "content": "Go on."}]


@pytest.mark.parametrize("instructions", [None, "Be brief."])
@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("threshold", [None, 1200])
def test_rules_in_the_input_outlive_compaction(
    engine: Engine, client: OpenAI, role: str, instructions: str | None, threshold: int | None
) -> None:
    engine.default = send(200, chat("<summary>They talked.</summary>") | {"usage": None})
    engine.others["/v1/responses"] = send(200, response_of([text_item("hi")]))
    items: list[Any] = [{"role": role, "content": "Always answer in French."}]
    for n in range(30):
        items += [{"role": "user", "content": f"Question {n}: {'what of it? ' * 8}"}]
        items += [{"role": "assistant", "content": f"Answer {n}. {'Nothing of it. ' * 8}"}]
    given: Any = {"model": MODEL, "input": [*items, {"role": "user", "content": "And now?"}]}
    given |= {"instructions": instructions} if instructions else {}
    if threshold is None:
        packed: Any = client.responses.compact(**given).output[0]
    else:
        rules: Any = [{"type": "compaction", "compact_threshold": threshold}]
        packed = client.responses.create(**given, context_management=rules).output[0]
    held = json.loads(zlib.decompress(base64.b64decode(packed.encrypted_content)))
    assert "Be brief" not in str(held["messages"])
    given["input"] = [packed.model_dump(exclude_none=True), {"role": "user", "content": "Go on."}]
    client.responses.create(**given)
    sent = engine.of("/v1/responses")[-1]
    assert json.dumps(sent["input"]).count("Always answer in French.") == 1
    assert sent.get("instructions") == instructions


def test_a_short_conversation_is_packed_as_it_is(player: Player, client: OpenAI) -> None:
    done = client.responses.compact(model=MODEL, input=TASK)
    item: Any = done.output[0]
    raw = zlib.decompress(base64.b64decode(item.encrypted_content))
    assert json.loads(raw)["messages"] == [{"role": "user", "content": TASK}]
    assert player.summaries == 0


@pytest.mark.parametrize(
    "content",
    [
        "x", "", 5, None, ["x"],
        base64.b64encode(b"x").decode(),
        base64.b64encode(zlib.compress(b"{")).decode(),
        base64.b64encode(zlib.compress(b"5")).decode(),
        base64.b64encode(zlib.compress(b'{"messages": [{"role": "god"}], "state": {}}')).decode(),
        base64.b64encode(zlib.compress(b'{"messages": [], "state": {}}')).decode(),
        base64.b64encode(zlib.compress(b'{"messages": 5, "state": {}}')).decode(),
        base64.b64encode(zlib.compress(b"[" * 100_000)).decode(),
        base64.b64encode(zlib.compress(b" " * 100_000_000)).decode(),
    ],
    ids=range(13),
)  # fmt: skip
def test_items_that_others_made_are_refused(
    engine: Engine, url: str, http: httpx.Client, content: Any
) -> None:
    item = {"type": "compaction", "encrypted_content": content}
    response = http.post(f"{url}/responses", json={"model": MODEL, "input": [item]})
    assert response.status_code == 400
    assert "compaction item" in response.json()["error"]["message"]
    assert engine.raws == []


@pytest.mark.parametrize(
    "content",
    [b'{"messages":[' + b"[]," * 40_000 + b'1],"state":{"version":1}}', b'"' + b"a" * 400_000],
    ids=["values", "bytes"],
)
def test_items_may_hold_no_more_than_a_body(
    serve: Serve, http: httpx.Client, content: bytes
) -> None:
    item = {
        "type": "compaction",
        "encrypted_content": base64.b64encode(zlib.compress(content)).decode(),
    }
    request = {"model": MODEL, "input": [item, {"role": "user", "content": "Hi"}]}
    response = http.post(f"{serve(max_body=200_000)}/responses", json=request)
    assert response.status_code == 400
    assert re.search("has more than (3,125 JSON values|200,000 bytes)", response.text)


def test_the_response_of_a_reading_can_not_be_referred_to(engine: Engine, serve: Serve) -> None:
    engine.default = read_or_echo
    with OpenAI(base_url=serve(reading={"gate": "update"}), api_key="none") as client:
        given: Any = [{"role": "user", "content": PARTS}]
        first = client.responses.create(model=MODEL, input=given)
        with pytest.raises(BadRequestError, match="came from a reading") as caught:
            client.responses.create(model=MODEL, input="And?", previous_response_id=first.id)
        assert caught.value.param == "previous_response_id"


def test_state_of_the_engine_is_left_to_it(engine: Engine, client: OpenAI) -> None:
    engine.others["/v1/responses"] = send(200, response_of([text_item("hi")]))
    given: Any = [{"role": "user", "content": DOCUMENT}]
    client.responses.create(model=MODEL, input=given, previous_response_id="resp_0")
    assert len(engine.raws) == 1
    engine.others["/v1/responses"] = refuse(400, "maximum context length is 2048 tokens")
    with pytest.raises(BadRequestError, match="2048"):  # the engine's own words
        client.responses.create(model=MODEL, input=given, previous_response_id="resp_0")
    reference: Any = {"type": "item_reference", "id": "msg_0"}
    with pytest.raises(BadRequestError, match="2048"):
        client.responses.create(model=MODEL, input=[reference, *given])
    with pytest.raises(BadRequestError, match="keeps no responses"):
        client.responses.compact(model=MODEL, previous_response_id="resp_0")
    with pytest.raises(NotFoundError):
        client.responses.compact(model="gpt-6-sol", input="Hi")
