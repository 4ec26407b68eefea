"""A byte-level BPE tokenizer, learnt from the policy's training books and notes."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from memagent_bench.notes.vocabulary import COINS, MASTER, TRAINED
from memagent_nano.books import TRAINING, sentences_of
from memagent_nano.sizes import Size

PAD, END, USER, POLICY = "<|pad|>", "<|end|>", "<|user|>", "<|policy|>"
TEMPLATE = (
    "{% if tools %}<|user|>{{ tools | tojson }}<|end|>{% endif %}"
    "{% for m in messages %}{{ '<|policy|>' if m.role == 'assistant' else '<|user|>' }}"
    "{{ m.content | trim }}<|end|>{% endfor %}{% if add_generation_prompt %}<|policy|>{% endif %}"
)
SENTENCES = 8000
NOTES = 8000


def new_tokenizer(size: Size) -> PreTrainedTokenizerFast:
    """Learns the tokenizer of a size. Each digit is a token, so that numbers are copied digit by digit."""
    backend = Tokenizer(models.BPE())
    split = [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
    backend.pre_tokenizer = pre_tokenizers.Sequence(split)  # pyright: ignore[reportAttributeAccessIssue]
    backend.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    trainer = trainers.BpeTrainer(
        vocab_size=size.vocabulary,
        special_tokens=[AddedToken(text, special=True) for text in (PAD, END, USER, POLICY)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_texts(size), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=END,
        additional_special_tokens=[USER, POLICY],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=size.window,
    )


def _texts(size: Size) -> Iterator[str]:
    """Yields sentences of the training's books, and notes, questions and memories in its words."""
    rng = Random(0)
    sentences = sentences_of(TRAINING)
    yield from rng.sample(sentences, min(SENTENCES, len(sentences)))
    words = size.words()
    for _ in range(NOTES):
        who, what = words.names(2, rng)
        number = words.number(rng)
        yield " " + rng.choice(TRAINED.notes[COINS]).format(who=who, what=number)
        yield " " + rng.choice(TRAINED.notes[MASTER]).format(who=who, what=what)
        kind = rng.choice((COINS, MASTER))
        question = rng.choice(TRAINED.questions[kind]).format(who=who)
        yield f"Question: {question}\nMemory:\nnone\nText: \nNew memory:"
        yield f"Question: {question}\nMemory:\n- {who} {number}\nAnswer:"
