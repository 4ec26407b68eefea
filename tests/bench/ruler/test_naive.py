"""The generator that is compared against makes the same kind of sample, with far more work."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.ruler.test_niah import STORY, Counting

from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_bench.ruler.naive import INCREMENTS, NaiveNiahTask
from memagent_bench.ruler.niah import GENERATE, NIAH


@pytest.fixture
def options(tmp_path: Path) -> DataOptions:
    path = tmp_path / "story.txt"
    path.write_text(STORY, encoding="utf-8")
    return DataOptions(counter=length_counter(None), essays=(path,))


@pytest.mark.parametrize("name", ["niah_single_1", "niah_multivalue", "niah_multikey_3"])
def test_samples_fit_and_hold_their_needles(options: DataOptions, name: str) -> None:
    task = NaiveNiahTask(name, 8192, options)
    for index in range(3):
        sample = task.sample(index)
        assert sample.tokens == options.counter.count(sample.prompt) + GENERATE
        # Steps down by whole increments where a draw turns out too long, as the published script does.
        assert 8192 - INCREMENTS[NIAH[name].haystack] * 70 < sample.tokens <= 8192
        for found in sample.evidence:
            assert found.notes[0] in sample.context[found.start : found.end]


def test_each_guess_and_each_sample_tokenises_everything(options: DataOptions) -> None:
    counter = Counting()
    task = NaiveNiahTask("niah_single_1", 8192, replace(options, counter=counter))
    size = len(task.sample(0).prompt)
    assert counter.chars > 8 * size
    before = counter.chars
    task.sample(1)
    assert counter.chars - before >= size * 0.99
