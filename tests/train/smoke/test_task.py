import asyncio
from pathlib import Path

import pytest

from memagent.chunking.stream import chunk_text
from memagent.errors import ConfigError
from memagent_train.smoke.expert import Expert
from memagent_train.smoke.folder import reader
from memagent_train.smoke.task import CHUNK_TOKENS, Relay
from memagent_train.smoke.tokenizer import KINDS

SAMPLES = 50


def test_a_value_is_carried_over_four_chunks_as_the_agent_cuts_them(laid_out: Path) -> None:
    values = {word for kind in KINDS.values() for word in kind}
    with reader(laid_out, Expert()) as agent:
        for sample in map(Relay().sample, range(SAMPLES)):
            chunker = asyncio.run(agent.plan((sample.question,))).chunker()
            chunks = [set(chunk.text.split()) for chunk in chunk_text([sample.context], chunker)]
            asked_for = [chunk & set(KINDS[sample.question]) for chunk in chunks]
            assert asked_for == [set(sample.outputs), set(), set(), set(), set()]
            assert all(chunk & values - set(sample.outputs) for chunk in chunks)


def test_the_evidence_is_the_value() -> None:
    for sample in map(Relay().sample, range(SAMPLES)):
        (place,) = sample.evidence
        assert (sample.context[place.start : place.end],) == sample.outputs == place.notes


def test_a_seed_gives_the_same_samples_and_another_one_others() -> None:
    assert Relay(seed=1).sample(7) == Relay(seed=1).sample(7)
    contexts = [
        Relay(seed=seed).sample(index).context for seed in range(5) for index in range(SAMPLES)
    ]
    assert len(set(contexts)) == len(contexts)


def test_documents_can_be_longer() -> None:
    sample = Relay(length=10 * CHUNK_TOKENS).sample(0)
    assert len(sample.context.split()) == sample.tokens == 320
    assert sample.context.split().count(sample.outputs[0]) == 1


@pytest.mark.parametrize("length", [0, 31, 33, -32])
def test_other_lengths_are_refused(length: int) -> None:
    with pytest.raises(ConfigError, match=f"multiple of 32 words, got {length}"):
        Relay(length=length)
