from collections.abc import Sequence

import pytest
from tests.models.transformers.policies import tokenizer
from tests.train.rollout.test_template import FORGETFUL

from memagent.messages import Message, ToolCall
from memagent_train.rollout import conversations
from memagent_train.rollout.conversations import Conversations
from memagent_train.rollout.template import Template

END = 2
PLAIN = Template(tokenizer())


class Watched(Template):
    """A template that notes what it is given to encode."""

    def __init__(self, chat_template: str | None = None) -> None:
        super().__init__(tokenizer(), chat_template)
        self.encoded: list[str] = []

    def encode(self, text: str) -> tuple[int, ...]:
        self.encoded.append(text)
        return super().encode(text)


def chat(*texts: str) -> tuple[Message, ...]:
    roles = ("user", "assistant") * len(texts)
    return tuple(Message(role=r, content=t) for r, t in zip(roles, texts, strict=False))


def say(
    known: Conversations, texts: Sequence[str], ids: Sequence[int], *, ended: bool = True
) -> str:
    """Has those ids sampled as the reply to a conversation."""
    messages = chat(*texts)
    prompt = known.prompt(messages)
    text = PLAIN.decode(ids)
    known.add_reply(messages, prompt, text, ids, ended=ended)
    return text


def ids_of(known: Conversations, *texts: str) -> tuple[int, ...]:
    return known.prompt(chat(*texts)).ids


def continues(known: Conversations, question: str) -> bool:
    """Whether the letters that were sampled in reply to the question are remembered."""
    texts = (question, "the prince", "And?")
    return ids_of(known, *texts) != PLAIN.encode(PLAIN.render(chat(*texts)))


def test_a_continuation_begins_with_the_ids_of_what_came_before() -> None:
    template = Watched()
    known = Conversations(template)
    first = ids_of(known, "Who came?")
    odd = tuple(template.encode(letter)[0] for letter in "the prince")  # one token a letter
    text = say(known, ["Who came?"], [*odd, END])
    assert template.encode(text) != odd
    template.encoded.clear()
    second = ids_of(known, "Who came?", text, "And then?")
    tail = template.encode("\n<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n")
    assert second == (*first, *odd, END, *tail)
    assert all(text not in encoded for encoded in template.encoded)


def test_a_reply_that_was_cut_off_gets_the_templates_end_token() -> None:
    known = Conversations(Watched())
    first = ids_of(known, "Who came?")
    text = say(known, ["Who came?"], [700, 301], ended=False)
    second = ids_of(known, "Who came?", text, "And?")
    assert second[: len(first) + 3] == (*first, 700, 301, END)
    assert second[len(first) + 3] != END


def test_a_conversation_goes_on_for_many_turns() -> None:
    known = Conversations(Watched())
    said: list[str] = []
    ids: tuple[int, ...] = ()
    for turn in range(6):
        said.append(f"question {turn}")
        prompt = ids_of(known, *said)
        assert prompt[: len(ids)] == ids
        sampled = (900 + turn, 333, 334 + turn, END)
        said.append(say(known, said, sampled))
        ids = (*prompt, *sampled)


def test_branches_and_changed_messages() -> None:
    template = Watched()
    known = Conversations(template)
    text = say(known, ["Who came?"], [700, 301, END])
    branches = [ids_of(known, "Who came?", text, after) for after in ("Why?", "When?")]
    assert branches[0][:10] == branches[1][:10]
    changed = ids_of(known, "Who came?", text + "!", "Why?")
    assert changed == template.encode(template.render(chat("Who came?", text + "!", "Why?")))


def test_a_template_that_rewrites_history_begins_afresh() -> None:
    template = Watched(FORGETFUL)
    known = Conversations(template)
    thought = template.encode("<think>It was long ago.</think>The prince.")
    text = say(known, ["Who came?"], [*thought, END])
    messages = chat("Who came?", text, "And then?")
    second = known.prompt(messages)
    assert second.ids == template.encode(template.render(messages))
    assert "long ago" not in template.decode(second.ids)
    known.add_reply(messages, second, "Nothing.", [700, END], ended=True)
    third = ids_of(known, "Who came?", text, "And then?", "Nothing.", "Sure?")
    assert third[: len(second.ids) + 2] == (*second.ids, 700, END)


def test_what_was_counted_is_not_tokenised_again() -> None:
    template = Watched()
    known = Conversations(template)
    messages = chat("Who came?")
    assert not known.has_prompt(messages)
    prompt = known.prompt(messages)
    assert known.has_prompt(messages)
    assert not known.has_prompt(messages, thinking=False)
    assert known.prompt(messages) is prompt
    assert len(template.encoded) == 1
    known.add_reply(messages, prompt, "x", [700], ended=False)
    assert not known.has_prompt(messages), "sent prompts are not kept"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MOST_IDS", 200)
    monkeypatch.setattr(conversations, "MOST_PROMPTS", 3)
    known = Conversations(Watched())
    letters = [PLAIN.encode(letter)[0] for letter in "the prince"]
    for place in range(50):
        say(known, [f"question {place}"], [*letters, END])
        known.prompt(chat(f"never sent {place}"))
    assert sum(known.has_prompt(chat(f"never sent {place}")) for place in range(50)) <= 3
    remembered = [place for place in range(50) if continues(known, f"question {place}")]
    each = len(PLAIN.encode(PLAIN.render(chat("question 49")))) + len(letters) + 1
    assert remembered == list(range(50 - len(remembered), 50)), "the latest"
    assert 0 < len(remembered) * each <= 200


def test_a_conversation_that_was_forgotten_is_read_afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MOST_IDS", 100)
    known = Conversations(Watched())
    letters = [PLAIN.encode(letter)[0] for letter in "the prince"]
    for place in range(5):
        say(known, [f"question {place}"], [*letters, END])
    assert [continues(known, f"question {place}") for place in (0, 4)] == [False, True]


def test_equal_messages_with_other_ids_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MOST_IDS", 100)
    known = Conversations(Watched())
    letters = [PLAIN.encode(letter)[0] for letter in "the prince"]
    say(known, ["Who left?"], [*letters, END])
    for _ in range(9):
        say(known, ["Who came?"], [*letters, END])
    assert continues(known, "Who left?"), "there is room for two"


def test_messages_that_differ_in_calls_or_ids_are_not_taken_for_each_other() -> None:
    source = (
        "{% for m in messages %}{{ m.role }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}"
        "{{ m.tool_call_id }}{% endfor %}"
    )
    known = Conversations(Watched(source))
    call = ToolCall(id="a", name="look", arguments="{}")
    said = Message(role="assistant", content="", tool_calls=(call,))
    asked = Message(role="user", content="")
    prompts = [
        (asked, said),
        (asked, said.model_copy(update={"tool_calls": ()})),
        (asked, Message(role="tool", content="", tool_call_id="a")),
        (asked, Message(role="tool", content="", tool_call_id="b")),
    ]
    assert len({known.prompt(prompt).text for prompt in prompts}) == 4
