from tests.models.transformers.policies import tokenizer

from memagent.messages import Message
from memagent.models.transformers.counter import text_counter
from memagent.models.transformers.template import Template
from memagent.tokens import TokenizerFile


def test_prompts_are_counted_as_the_template_writes_them() -> None:
    names = tokenizer()
    counter, template = text_counter(names), Template(names)
    assert isinstance(counter, TokenizerFile)
    for text in ("Who came?", "", "<|im_end|> 🙂 e\u0301\n\n"):
        messages = (Message(role="system", content="Read."), Message(role="user", content=text))
        assert counter.count_messages(messages) == len(template.encode(template.render(messages)))
    assert "<|im_end|>" in counter.control_tokens
