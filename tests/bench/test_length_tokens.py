"""Lengths are counted as GPT-2 counts, from files of the package."""

import gzip
import hashlib
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from memagent.errors import ConfigError, TokenizerError
from memagent_bench.length_tokens import byte_alphabet, gpt2, length_counter

PUBLISHED = "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"
"""SHA-256 of OpenAI's vocab.bpe, as tiktoken expects it."""
TEXTS = {
    "": 0,
    "Hello world": 2,
    "The quick brown fox jumps over the lazy dog.": 10,
    "One of the numbers is 1234567.": 9,
    "“Eh bien, mon prince,” said Anna Pávlovna.\n\n  And then?\n": 25,
    "00000000-1111-4222-8333-444444444444": 16,
    "<|endoftext|>": 7,
    "日本語 👩‍🚀": 13,
}


def merges() -> str:
    packed = resources.files("memagent_bench").joinpath("data/gpt2_merges.txt.gz").read_bytes()
    return gzip.decompress(packed).decode()


@pytest.fixture(scope="module")
def other() -> Tokenizer:
    """The same merges in another library."""
    pairs = [(line.split(" ")[0], line.split(" ")[1]) for line in merges().splitlines()]
    texts = [*byte_alphabet(), *(first + second for first, second in pairs)]
    tokenizer = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return tokenizer


def test_the_merges_are_those_that_were_published() -> None:
    original = "#version: 0.2\n" + merges()
    assert hashlib.sha256(original.encode()).hexdigest() == PUBLISHED


def test_counts_of_some_texts() -> None:
    assert {text: length_counter(None).count(text) for text in TEXTS} == TEXTS


def test_ids_are_gpt2s() -> None:
    encoding = gpt2()
    assert encoding.encode_ordinary("Hello world") == [15496, 995]
    assert encoding.encode("<|endoftext|>", allowed_special="all") == [50256]
    assert encoding.decode([0, 198, 220]) == "!\n "


@given(st.text(max_size=200))
def test_another_library_counts_the_same(other: Tokenizer, text: str) -> None:
    assert length_counter(None).count(text) == len(other.encode(text).ids)


def test_it_is_named_as_tiktoken_names_it_and_loaded_once() -> None:
    assert length_counter(None).name == "tiktoken:gpt2"
    assert length_counter(None) is length_counter(None)


def test_another_tokenizer_can_name_lengths(tmp_path: Path) -> None:
    assert length_counter("bytes").count("é") == 2
    with pytest.raises(TokenizerError, match="no tokenizer"):
        length_counter(str(tmp_path / "none.json"))


def test_without_tiktoken_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['tiktoken'] = None\n"
        "from memagent_bench.length_tokens import length_counter\n"
        "length_counter(None)"
    )
    path = Path(__file__).parents[2] / "benchmarks"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ConfigError.__name__ in ran.stderr
    assert "memagent[bench]" in ran.stderr
