"""A tokenizer of 64 words, for a model that must learn its language within a minute."""

from collections.abc import Sequence
from itertools import chain

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
ROLES = ("<system>", "<user>", "<assistant>")
NOTHING = "none"
"""Text of an empty memory."""
WORDING = ("ask", "note", "read", "write", "answer", NOTHING, "keep", "done")
"""The words of prompts.toml."""
KINDS = {
    "number": ("one", "two", "three", "four", "five", "six"),
    "colour": ("red", "orange", "green", "blue", "brown", "white"),
    "animal": ("bear", "cat", "dog", "fox", "goat", "hare"),
}
"""The kinds of values that questions ask for, with the values of each."""
STORY = (
    "the sun was low over a hill and we went by on foot with bread in our bags till rain fell so then "
    "home it is far to go"
)
FILLER = tuple(STORY.split())
CHAT_TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}> {{ m.content }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant> {% endif %}"
)


def word_tokenizer(more: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Makes the tokenizer: one token per word, split at white space.

    Its chat template puts a role's token before each message and `<end>` after it, so a prompt is a prefix of
    the conversation that continues it.

    Args:
        more: additional words, for another training.
    """
    words = (
        PAD,
        END,
        UNKNOWN,
        *ROLES,
        *WORDING,
        *KINDS,
        *chain.from_iterable(KINDS.values()),
        *FILLER,
        *more,
    )
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        additional_special_tokens=list(ROLES),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
