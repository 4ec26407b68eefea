"""What every token counter promises, run over all of them and over awkward texts."""

import json
import string
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from memagent.errors import TokenizerError
from memagent.messages import Message, ToolCall, ToolSpec
from memagent.tokens import ByteBound, Tiktoken, TokenCounter, TokenizerFile, measured
from memagent.tokens.measured import MeasuredText

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests" / "data" / "tokenizer"
# A real vocabulary of 50,265 entries, where a checkout has it beside it; nothing depends on it.
GPT2 = ROOT.parent / "shared" / "data" / "gpt2-bpe-tokenizer" / "tokenizer.json.gz"

UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDING}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
CORPUS = [
    "The old prince's house, 1805! 'Tis there; they'll go.",
    "日本語と中文，한국어。",
    "don't DON'T e\u0301",
] * 9


def vocabulary() -> dict[str, int]:
    return json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]


def tik(pattern: str) -> TokenCounter:
    """The test vocabulary, as tiktoken holds one: bytes ranked in the order of their merges."""
    letters = {chr(i): i for i in [*range(33, 127), *range(161, 173), *range(174, 256)]}
    rest = [i for i in range(256) if i not in letters.values()]
    letters |= {chr(256 + n): i for n, i in enumerate(rest)}
    words = sorted((i, w) for w, i in vocabulary().items() if not w.startswith("<|"))
    ranks = {bytes(letters[c] for c in word): n for n, (_, word) in enumerate(words)}
    return Tiktoken(
        tiktoken.Encoding("test", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    )


def changed(folder: Path, change: Callable[[Tokenizer], object]) -> TokenCounter:
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    change(tokenizer)
    return saved(folder, tokenizer)


def saved(folder: Path, tokenizer: Tokenizer) -> TokenCounter:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return TokenizerFile(folder)


def trained(
    folder: Path, model: Any, trainer: Any, before: Any, normalizer: Any = None
) -> TokenCounter:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = before
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(CORPUS, trainer)
    return saved(folder, tokenizer)


def roberta(tokenizer: Tokenizer) -> None:
    """GPT-2's pre-tokeniser, offsets trimmed, a mask token that swallows white space before it."""
    tokenizer.normalizer = normalizers.Sequence([])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("<|im_end|>", 2), ("<|im_start|>", 1), True, False
    )
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=True)])


def awkward_tokens(tokenizer: Tokenizer) -> None:
    tokenizer.add_tokens([AddedToken("Tea time", rstrip=True), "the", "  ", ", "])


def whole_words(tokenizer: Tokenizer) -> None:
    tokenizer.add_tokens([AddedToken(t, single_word=True) for t in ("ab", ".x", ". ")])


def long_token(tokenizer: Tokenizer) -> None:
    tokenizer.add_tokens(
        [AddedToken("a. b. c. d. e. f.", normalized=False), AddedToken("e f", rstrip=True)]
    )


def spaced(tokenizer: Tokenizer) -> None:
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)


SPECIAL = ["[UNK]", "[CLS]"]
MAKERS: dict[str, Callable[[Path], TokenCounter]] = {
    "bytes": lambda _: ByteBound(),
    "test": lambda _: TokenizerFile(FOLDER),
    "roberta": lambda f: changed(f, roberta),
    "awkward tokens": lambda f: changed(f, awkward_tokens),
    "whole words": lambda f: changed(f, whole_words),
    "long token": lambda f: changed(f, long_token),
    "prefix space": lambda f: changed(f, spaced),
    "nfkc": lambda f: changed(f, lambda t: setattr(t, "normalizer", normalizers.NFKC())),
    "metaspace": lambda f: trained(
        f,
        models.BPE(unk_token="[UNK]", fuse_unk=True),
        trainers.BpeTrainer(vocab_size=120, special_tokens=SPECIAL, show_progress=False),
        pre_tokenizers.Metaspace(),
    ),
    "wordpiece": lambda f: trained(
        f,
        models.WordPiece(unk_token="[UNK]"),
        trainers.WordPieceTrainer(vocab_size=150, special_tokens=SPECIAL, show_progress=False),
        pre_tokenizers.BertPreTokenizer(),
        normalizers.BertNormalizer(),
    ),
    "unigram": lambda f: trained(
        f,
        models.Unigram(),
        trainers.UnigramTrainer(
            vocab_size=120, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False
        ),
        pre_tokenizers.Metaspace(prepend_scheme="first"),
        normalizers.NFKC(),
    ),
    "tiktoken cl100k": lambda _: tik(CL100K),
    "tiktoken o200k": lambda _: tik(O200K),
    "tiktoken other": lambda _: tik(r"\w+\s*|\W"),
}
if GPT2.is_file():
    MAKERS["gpt2"] = lambda _: TokenizerFile(GPT2)


@pytest.fixture(scope="module", params=["one part", "parts of a word"])
def parts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whether a text is tokenised whole, or in as many parts as it has stable points."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "parts of a word":
            for name, value in (("FIRST_SHARE", 0), ("STEP_SHARE", 0), ("STEP_CHARS", 6)):
                patch.setattr(measured, name, value)
        yield


@pytest.fixture(scope="module", params=list(MAKERS))
def counter(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TokenCounter:
    return made(request.param, tmp_path_factory.mktemp("tokenizer"))


@cache
def made(name: str, folder: Path) -> TokenCounter:
    return MAKERS[name](folder)


SPACES = [" ", "  ", " " * 40, "\n", "\n\n", "\r\n", "\t", "\u3000", "\xa0", "\u200b"]
WORDS = [
    "'s",
    "'LL",
    "’re",
    "a",
    "The",
    " prince",
    "ABC",
    "é",
    "e\u0301",
    "ſ",
    "K",
    "x" * 70,
    "1",
    "23",
    "4567890",
]
SCRIPTS = [
    "你好",
    "日本",
    "가",
    "\u1100\u1161",
    "ا",
    "क्ष",
    "\u0958",
    "ﷺ",
    "\u0338",
    "👩‍👩‍👧",
    "🇩🇪",
    "👍🏽",
]
MARKS = [*"。，,.!?\"'()-_/…\x00", ". "]
ADDED = ["<|im_end|>", "<|im", "end|>", "<mask>", " <mask> ", "<mas", "[UNK]", "[CLS] "]
ADDED += ["Tea time", "ab", ".x", ". x", "a. b. c. ", "d. e. f.", "e f"]
PARTS = st.sampled_from([*SPACES, *WORDS, *SCRIPTS, *MARKS, *ADDED])
PARTS |= st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
# Hypothesis draws lists of about five by itself; stable points lie further back than that.
TEXTS = (st.lists(PARTS, max_size=20) | st.lists(PARTS, min_size=20, max_size=60)).map("".join)


@pytest.mark.usefixtures("parts")
@given(text=TEXTS, data=st.data())
def test_prefixes_are_counted_exactly(
    counter: TokenCounter, text: str, data: st.DataObject
) -> None:
    text_measured = counter.measure(text)
    tokens = counter.count(text)
    ends = data.draw(st.lists(st.integers(0, len(text)), max_size=5))
    ends += [text_measured.chars_within(limit) for limit in (1, tokens // 2, tokens - 1)]
    for end in ends:
        assert text_measured.tokens_of_prefix(end) == counter.count(text[:end])
    assert text_measured.tokens == tokens


@pytest.mark.usefixtures("parts")
@given(text=TEXTS, more=TEXTS, data=st.data())
def test_what_is_known_of_a_text_holds_for_one_that_goes_on(
    counter: TokenCounter, text: str, more: str, data: st.DataObject
) -> None:
    known = counter.measure(text)
    if not isinstance(known, MeasuredText):
        return
    known.chars_within(data.draw(st.integers(1, 99)))
    start = data.draw(st.integers(0, len(text)))
    rest = known.rest(start, text[start:] + more)
    end = data.draw(st.integers(0, len(text) - start + len(more)))
    assert rest.tokens_of_prefix(end) == counter.count((text[start:] + more)[:end])
    assert rest.tokens == counter.count(text[start:] + more)


@pytest.mark.usefixtures("parts")
@given(text=TEXTS)
def test_guides_grow_with_the_limit_and_end_with_the_text(counter: TokenCounter, text: str) -> None:
    text_measured = counter.measure(text)
    tokens = counter.count(text)
    guides = [text_measured.chars_within(limit) for limit in range(-1, tokens + 2)]
    assert guides == sorted(guides)
    assert guides[0] == 0
    assert guides[-1] == len(text)
    assert all(0 <= guide <= len(text) for guide in guides)


def test_guides_are_near_what_fits(counter: TokenCounter) -> None:
    text = "The old prince's house stood there, and they'll go; in 1805 it was new. " * 40
    guide = counter.measure(text)
    for limit in (10, 50, 111):
        assert abs(counter.count(text[: guide.chars_within(limit)]) - limit) <= 2


def test_long_runs_are_counted(counter: TokenCounter) -> None:
    for run in (
        "a" * 20_000,
        " " * 20_000,
        "\n" * 5000,
        "1" * 5000,
        "日" * 5000,
        "!" * 5000,
        "👍" * 3000,
    ):
        guide = counter.measure(run)
        assert guide.tokens_of_prefix(len(run) // 2) == counter.count(run[: len(run) // 2])


def test_the_counter_says_what_it_is(counter: TokenCounter) -> None:
    assert counter.name
    assert all(isinstance(token, str) and token.strip() for token in counter.control_tokens)
    assert counter.count("") == 0


def test_prompts_are_longer_than_their_contents(counter: TokenCounter) -> None:
    messages = [
        Message(role="user", content=string.printable),
        Message(role="user", content="Why?"),
    ]
    assert counter.count_messages(messages) >= sum(counter.count(m.content) for m in messages)
    assert counter.count_messages(messages) > counter.count_messages(messages[:1])


def test_tools_and_calls_are_counted_or_refused(counter: TokenCounter) -> None:
    ask = Message(role="user", content="Where was he?")
    call = ToolCall(id="call00000", name="look", arguments='{"at": "' + "Mosk" * 99 + '"}')
    said = Message(role="assistant", content="", tool_calls=(call,))
    result = Message(role="tool", content="A house.", tool_call_id=call.id)
    tools = [ToolSpec(name="look", description="Looks far. " * 9), ToolSpec(name="go")]
    bare = counter.count_messages([ask])
    try:
        counts = [counter.count_messages([ask], tools=tools[:n]) for n in (1, 2)]
    except TokenizerError as error:
        if not isinstance(counter, TokenizerFile) or "text protocol" not in str(error):
            raise
        return
    assert bare < counts[0] < counts[1]
    talk = counter.count_messages([ask, said, result])
    assert talk > bare + counter.count(call.arguments) / 2
    assert counter.count_messages([ask, said, result], tools=tools) > talk


def test_surrogates_do_no_harm(counter: TokenCounter) -> None:
    text = "a\ud800b\udfff c"
    guide = counter.measure(text)
    assert guide.tokens == counter.count(text)
    assert guide.tokens_of_prefix(2) == counter.count(text[:2])
