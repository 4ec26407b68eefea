"""Variable tracking: one chain of published size, exact lengths, lines that stand where the evidence says."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.bench.counters import line_ends

from memagent.errors import ConfigError
from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_bench.ruler.vt import GENERATE, VtTask

COUNTER = length_counter(None)
OPTIONS = DataOptions(counter=COUNTER)
FIRST = re.compile(r"VAR ([A-Z]{5}) = ([1-9][0-9]{4})")
HOP = re.compile(r"VAR ([A-Z]{5}) = VAR ([A-Z]{5})")


@pytest.mark.parametrize("counter", [COUNTER, line_ends()], ids=["gpt2", "line-ends"])
@settings(max_examples=20)
@given(index=st.integers(0, 10**6), length=st.integers(1024, 5000))
@example(index=237932, length=4573)
def test_every_sample_is_what_it_says(counter, index: int, length: int) -> None:
    task = VtTask(length, DataOptions(counter=counter))
    sample = task.sample(index)
    assert sample.tokens == counter.count(sample.prompt) + GENERATE
    assert length - 40 < sample.tokens <= length
    assert (sample.task, sample.index, sample.length, GENERATE) == ("vt", index, length, 30)

    lines = list(dict.fromkeys(sample.context[e.start : e.end] for e in sample.evidence))
    # As a word: a name may contain it, as that of the example above does.
    assert len(re.findall(r"\bVAR\b", sample.context)) == 1 + 2 * 4
    first = FIRST.fullmatch(lines[0])
    hops = [HOP.fullmatch(line) for line in lines[1:]]
    assert first
    assert all(hops)
    names = [first[1], *(hop[1] for hop in hops if hop)]
    assert [hop[2] for hop in hops if hop] == names[:-1]
    assert sample.outputs == tuple(names)
    assert len(set(names)) == 5
    # Each variable needs its own line and those before it, and stands for what led to it.
    assert [(sample.context[e.start : e.end], e.supports, e.notes) for e in sample.evidence] == [
        (lines[i], (j,), tuple(names[i : j + 1])) for i in range(5) for j in range(i, 5)
    ]
    assert first[2] in sample.question
    assert first[2] in sample.after
    assert {line.rstrip() for line in sample.context.split("\n")} - set(lines) == {
        "The road is long. The river is slow. The hills are far away. On we walk. Then home we come."
    }


def test_one_solved_example_stands_before() -> None:
    sample = VtTask(4096, OPTIONS).sample(0)
    example = sample.before
    chain = re.findall(r"VAR ([A-Z]{3}) = ", example)
    assert len(chain) == 5
    shown, reply, _ = example.partition(" " + " ".join(chain) + "\n\n")
    assert reply, "its reply names the variables"
    # RULER fills 500 tokens with noise; a line of it takes 23 or 24.
    assert 500 - 30 < COUNTER.count(shown) <= 500
    other = VtTask(4096, OPTIONS).sample(1).before
    assert other != example
    without_names = re.compile(r"[A-Z]{3}|\d{5}")
    assert without_names.sub("", other) == without_names.sub("", example), "the lines stay"


def test_an_example_as_long_as_rulers_has_fifteen_lines_of_noise_or_one_less(
    tmp_path: Path,
) -> None:
    wording = tmp_path / "published.toml"
    # As long as RULER's, word for word as many tokens.
    wording.write_text(
        """name = "as long"
[vt]
assign = "VAR {name} = {value}"
copy = "VAR {name} = VAR {source} "
noise = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
before = "Read and write the name(s) of many new words hidden in the following text.\\n\\n"
after = "\\nQuestion: Find all variables that are assigned the value {value} in the text above."
answer_prefix = " Answer: According to the name(s) of many words above, {count} of them have the value {value}: "
question = "{value} {count}"
answer = " {names}\\n\\n"
between = " "
"""
    )
    sample = VtTask(4096, replace(OPTIONS, frames=wording)).sample(0)
    assert sample.before.count("The grass is green.") in (14, 15), "by the tokens of the names"


def test_samples_depend_on_index_seed_and_length_alone() -> None:
    task, other = VtTask(2048, OPTIONS), VtTask(2048, OPTIONS)
    backwards = [other.sample(i) for i in (3, 2, 1)][::-1]
    assert [task.sample(i) for i in (1, 2, 3)] == backwards
    assert len({task.sample(i).outputs for i in range(20)}) == 20
    assert task.sample(1).outputs != VtTask(4096, OPTIONS).sample(1).outputs
    assert task.sample(1).outputs != VtTask(2048, replace(OPTIONS, seed=1)).sample(1).outputs


def test_lines_are_spread_over_the_text() -> None:
    samples = [VtTask(16384, OPTIONS).sample(i) for i in range(60)]
    depths = sorted(e.start / len(s.context) for s in samples for e in s.evidence)
    assert depths[0] < 0.02
    assert depths[-1] > 0.98
    assert max(b - a for a, b in pairwise(depths)) < 0.05


def test_nested_samples_have_the_same_chain_at_the_same_depths() -> None:
    nested = replace(OPTIONS, nested=True)
    short, long = VtTask(4096, nested).sample(5), VtTask(65536, nested).sample(5)
    assert short.outputs == long.outputs
    assert short.question == long.question
    assert short.before == long.before
    for a, b in zip(short.evidence, long.evidence, strict=True):
        assert a.start / len(short.context) == pytest.approx(b.start / len(long.context), abs=0.05)


def test_a_quarter_of_a_million_tokens() -> None:
    sample = VtTask(262144, OPTIONS).sample(1)
    assert COUNTER.count(sample.prompt) + GENERATE == sample.tokens
    assert 262144 - 40 < sample.tokens <= 262144


def test_too_short_a_length_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"512 tokens are too few for vt \(sample 0 needs 6\d\d\)"
    ):
        VtTask(512, OPTIONS).sample(0)


def test_facts() -> None:
    facts = VtTask(8192, OPTIONS).facts
    assert facts["positions"] == "shuffled"
    assert facts["length_tokenizer"] == COUNTER.name
    assert str(facts["wording"]).startswith("memagent:")
