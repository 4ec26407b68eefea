"""Tool calls as chat templates write them: rendered, sampled, parsed, and continued by their ids."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
import trl.chat_template_utils as templates
from tests.models.transformers.policies import tokenizer

from memagent.errors import ConfigError, TokenizerError
from memagent.messages import ChatRequest, FinishReason, Message, Sampling, ToolCall, ToolSpec
from memagent_engines.transformers.sampler import Sampled
from memagent_train.rollout.model import RolloutModel
from memagent_train.rollout.rows import RolloutRecorder

HERMES = """{% if tools %}<|im_start|>system
Tools: {% for tool in tools %}{{ tool.function | tojson }}{% endfor %}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}
<tool_call>
{{ c.function | tojson }}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
TEMPLATES = {
    "qwen2.5": templates.qwen2_5_chat_template,
    "qwen3": templates.qwen3_instruct_2507_chat_template,
    "hermes": HERMES,
}
LOOK = ToolSpec(
    name="look",
    description="Looks at a room.",
    parameters={"type": "object", "properties": {"room": {"type": "string"}}},
)


class Says:
    """An engine that samples the ids of given texts, each ended by the end token."""

    window = 8192

    def __init__(self, names: Any, *texts: str) -> None:
        self.names, self.texts = names, list(texts)
        self.prompts: list[tuple[int, ...]] = []

    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        self.prompts.append(tuple(prompt_ids))
        ids = self.names(self.texts.pop(0), add_special_tokens=False)["input_ids"]
        ids = (*ids, self.names.eos_token_id)
        return Sampled(ids, (-1.0,) * len(ids), FinishReason.STOP)

    def generating(self) -> Any:
        from contextlib import nullcontext

        return nullcontext()


def names_of(template: str) -> Any:
    names = tokenizer()
    names.chat_template = TEMPLATES[template]
    return names


def called(room: str, space: str = " ") -> str:
    arguments = f'{{"room":{space}{json.dumps(room)}}}'
    return f'<tool_call>\n{{"name": "look", "arguments": {arguments}}}\n</tool_call>'


def asked(*messages: Message, **fields: Any) -> ChatRequest:
    task = Message(role="user", content="Where is the key?")
    return ChatRequest(messages=(task, *messages), max_tokens=99, tools=(LOOK,), **fields)


def answered(reply: Any, result: str) -> tuple[Message, Message]:
    (call,) = reply.tool_calls
    said = Message(role="assistant", content=reply.text, tool_calls=reply.tool_calls)
    return said, Message(role="tool", content=result, tool_call_id=call.id)


@pytest.mark.parametrize("template", TEMPLATES)
async def test_calls_are_parsed_and_continued_by_their_ids(template: str) -> None:
    names = names_of(template)
    # The second call is written as no template would: its ids stay.
    engine = Says(names, called("hall"), f"Not there.\n{called('attic', space='   ')}", "The attic")
    recorder = RolloutRecorder(RolloutModel(engine, names))
    first = await recorder.complete(asked(kind="act"))
    assert first.text.strip() == ""
    assert [(call.name, call.values()) for call in first.tool_calls] == [("look", {"room": "hall"})]
    turns = answered(first, "a rug")
    second = await recorder.complete(asked(*turns, kind="act"))
    assert second.text.strip() == "Not there."
    assert second.tool_calls[0].values() == {"room": "attic"}
    assert second.tool_calls[0].id != first.tool_calls[0].id
    third = await recorder.complete(asked(*turns, *answered(second, "a key"), kind="act"))
    assert (third.text, third.tool_calls) == ("The attic", ())
    assert recorder.retokenised == 0
    (row,) = recorder.rows()
    assert [span.kind for span in row.spans] == ["act"] * 3
    said = [names.decode(row.response_ids[span.start : span.end]) for span in row.spans]
    assert said[1] == f"Not there.\n{called('attic', space='   ')}{names.eos_token}"
    assert "a rug" in names.decode(row.response_ids)


@pytest.mark.parametrize("template", TEMPLATES)
async def test_the_first_prompt_is_the_templates_own_with_the_tools(template: str) -> None:
    names = names_of(template)
    engine = Says(names, "I don't know")
    model = RolloutModel(engine, names)
    request = asked()
    await model.complete(request)
    whole = names.apply_chat_template(
        [{"role": "user", "content": "Where is the key?"}],
        tools=[LOOK.to_openai()],
        add_generation_prompt=True,
        tokenize=True,
    )
    assert engine.prompts == [tuple(whole["input_ids"])]
    counter = await model.counter()
    assert counter.count_messages(request.messages, tools=(LOOK,)) == len(engine.prompts[0])
    assert counter.count_messages(request.messages) < len(engine.prompts[0])


@pytest.mark.parametrize("template", TEMPLATES)
async def test_a_malformed_call_stays_text(template: str) -> None:
    names = names_of(template)
    broken = '<tool_call>\n{"name": "look", "arguments": {"room": \n</tool_call>'
    reply = await RolloutModel(Says(names, broken), names).complete(asked())
    assert reply.tool_calls == ()
    assert '"name": "look"' in reply.text


async def test_a_changed_call_is_tokenised_again() -> None:
    names = names_of("hermes")
    engine = Says(names, called("hall"), "The attic")
    recorder = RolloutRecorder(RolloutModel(engine, names))
    said, result = answered(await recorder.complete(asked()), "a rug")
    other = ToolCall(id=said.tool_calls[0].id, name="look", arguments='{"room": "cellar"}')
    await recorder.complete(asked(said.model_copy(update={"tool_calls": (other,)}), result))
    assert len(recorder.rows()) == 2


async def test_a_template_that_shows_no_tools_is_refused() -> None:
    engine = Says(tokenizer(), "no")
    with pytest.raises(TokenizerError, match="does not show the model the tools \\['look'\\]"):
        await RolloutModel(engine, tokenizer()).complete(asked())
    assert engine.prompts == []


async def test_a_template_whose_calls_are_unknown_is_refused() -> None:
    names = tokenizer()
    names.chat_template = HERMES.replace("tool_call>", "invoke>")
    with pytest.raises(ConfigError, match="protocol = 'text' or 'compact'"):
        await RolloutModel(Says(names, "no"), names).complete(asked())
