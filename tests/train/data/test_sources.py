"""What all sources share."""

from collections import Counter

from tests.train.rewards.made import sample

from memagent.tasks import Sample
from memagent_train.data.sources import as_training, digest_of, draw_length


def test_lengths_are_drawn_alike_for_the_same_key() -> None:
    lengths = (10, 20, 30)
    found = Counter(draw_length(lengths, "seed", item, 0) for item in range(300))
    assert set(found) == set(lengths)
    assert min(found.values()) > 70
    assert draw_length(lengths, "seed", 3, 0) == draw_length(lengths, "seed", 3, 0)
    assert [draw_length(lengths, "s", i, 0) for i in range(20)] != [
        draw_length(lengths, "s", i, 1) for i in range(20)
    ]


def test_a_tasks_sample_gets_its_tasks_score() -> None:
    plain = Sample(**{k: v for k, v in sample() if k in Sample.model_fields})
    made = as_training(plain, "f1")
    assert (made.scorer, made.context) == ("f1", plain.context)
    own = sample(scorer="exact_match", columns={"a": 1})
    assert as_training(own, "f1") is own
    assert as_training(sample(columns={"a": 1}), "f1").columns == {"a": 1}


def test_digests_tell_samples_apart() -> None:
    digests = {
        digest_of(sample()),
        digest_of(sample(context="Another.")),
        digest_of(sample(question="Another?")),
        digest_of(sample("1", "2")),
        digest_of(sample("12", "")),
    }
    assert len(digests) == 5
    assert digest_of(sample(index=7)) == digest_of(sample())
